"""Problems with right and wrong answers: the intermediate form between rows of a data set and items.

A data set of preferences yields problems with two labeled candidates. A data set of questions with references yields
problems without candidates. Candidates for these are sampled (`tirjudge train pairs`) and checked as specified by
`TrainingProblem.check`.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tirjudge.types import ChatMessage, Mode
from tirjudge_training.data.quality import MAX_CHARS, Reason, Rejected, num_chars
from tirjudge_training.items import TrainingItem
from tirjudge_training.row_files import read_lines, write_lines

MIN_NEGATIVES, MAX_NEGATIVES = 3, 5
"""Range of the number of wrong responses in a listwise item."""


class AnswerCheck(StrEnum):
    """Method for checking whether an answer is right."""

    PREFERENCE = "preference"
    """No check: annotators or the authors of the data set labeled the better candidate."""
    MATH = "math"
    """`reference` is an answer; math-verify compares."""
    TEXT = "text"
    """`reference` is a short answer (a choice, yes or no); it is compared as text."""
    TESTS = "tests"
    """`reference` is a JSON list of Python sources, each with classes of unittest; they are run in the sandbox."""
    INSTRUCTIONS = "instructions"
    """`reference` is a JSON object: `func_name`, the verifier function, and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateAnswer:
    """One answer to a problem."""

    text: str
    right: bool | None = None
    """Whether it is right. None: not checked yet."""
    answer: str | None = None
    """Final answer. Candidates with the same final answer are equivalent. None: the text is the answer."""
    generator: str = ""
    """Model that wrote it. Empty: unknown, or a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProblem:
    """A prompt, the method for checking answers, and candidates."""

    id: str
    """Identifier, unique within a source."""
    prompt: str | tuple[ChatMessage, ...]
    check: AnswerCheck
    task: str
    """Task, such as `math` or `safety`, as in `TrainingItem`."""
    source: str
    licence: str
    verifiable: bool
    """Whether a program can decide which answer is better, as in `TrainingItem`."""
    reference: str = ""
    """Reference for `check`. Empty for a preference."""
    candidates: tuple[CandidateAnswer, ...] = ()
    """Answers to the problem."""


def item_of(problem: TrainingProblem, *, mode: Mode, seed: int, max_chars: int = MAX_CHARS) -> TrainingItem | Rejected:
    """Make an item from a problem with checked candidates; `Rejected` if the candidates are not suitable.

    Pointwise and pairwise items have one right and one wrong candidate. Listwise items have one right and three to five
    wrong candidates with distinct final answers. The choice, the positions and the order shown are drawn from the seed
    and the id.

    Args:
        problem: Problem with checked candidates.
        mode: Mode of the item.
        seed: Seed of the draw.
        max_chars: Maximum length of the prompt with its responses, in characters.
    """
    digest = hashlib.sha256(f"{seed}/{problem.source}/{problem.id}".encode()).digest()
    draw = random.Random(int.from_bytes(digest[:8], "big"))
    sides = sides_of(problem)
    if isinstance(sides, Rejected):
        return sides
    right, wrong = sides
    best = draw.choice(right)
    negatives = draw.sample(wrong, len(wrong))
    if mode is Mode.LISTWISE:
        if len(negatives) < MIN_NEGATIVES:
            return Rejected(reason=Reason.NO_NEGATIVE, detail=f"{len(negatives)} distinct wrong answers")
        negatives = negatives[: draw.randint(MIN_NEGATIVES, min(MAX_NEGATIVES, len(negatives)))]
    else:
        negatives = negatives[:1]
    shown = [best, *negatives]
    draw.shuffle(shown)
    responses = tuple(candidate.text for candidate in shown)
    if num_chars(problem.prompt, responses=responses) > max_chars:
        return Rejected(reason=Reason.TOO_LONG)
    order = list(range(len(shown)))
    if mode is not Mode.POINTWISE:
        draw.shuffle(order)
    return TrainingItem(
        id=f"{problem.source}/{problem.id}",
        mode=mode,
        prompt=problem.prompt,
        responses=responses,
        best=shown.index(best),
        task=problem.task,
        source=problem.source,
        verifiable=problem.verifiable,
        order=tuple(order),
        licence=problem.licence,
        generator=", ".join(sorted({candidate.generator for candidate in shown if candidate.generator})),
    )


def sides_of(problem: TrainingProblem) -> tuple[list[CandidateAnswer], list[CandidateAnswer]] | Rejected:
    """Return the right and the wrong candidates, one for each final answer.

    Wrong candidates with the same answer as a right one are dropped. `Rejected`: one side is empty.
    """
    if not problem.candidates:
        return Rejected(reason=Reason.NO_CANDIDATES)
    right = _distinct([candidate for candidate in problem.candidates if candidate.right], but=[])
    if not right:
        return Rejected(reason=Reason.NO_POSITIVE)
    all_wrong = [candidate for candidate in problem.candidates if candidate.right is False]
    wrong = _distinct(all_wrong, but=right)
    if not wrong:
        return Rejected(reason=Reason.EQUAL_ANSWERS if all_wrong else Reason.NO_NEGATIVE)
    return right, wrong


def _distinct(candidates: Sequence[CandidateAnswer], *, but: Sequence[CandidateAnswer]) -> list[CandidateAnswer]:
    known = {key for candidate in but for key in _keys(candidate)}
    kept: list[CandidateAnswer] = []
    for candidate in candidates:
        keys = _keys(candidate)
        if candidate.text.strip() and not keys & known:
            kept.append(candidate)
            known |= keys
    return kept


def _keys(candidate: CandidateAnswer) -> set[str]:
    text = " ".join(candidate.text.split())
    return {f"text:{text}"} if candidate.answer is None else {f"text:{text}", f"answer:{candidate.answer}"}


def possible_modes(problem: TrainingProblem) -> tuple[Mode, ...]:
    """Return the modes for which there are enough checked candidates."""
    sides = sides_of(problem)
    if isinstance(sides, Rejected):
        return ()
    pairs = (Mode.POINTWISE, Mode.PAIRWISE)
    return (*pairs, Mode.LISTWISE) if len(sides[1]) >= MIN_NEGATIVES else pairs


def with_candidates(problem: TrainingProblem, candidates: Iterable[CandidateAnswer]) -> TrainingProblem:
    """Return the problem with additional candidates."""
    return replace(problem, candidates=(*problem.candidates, *candidates))


def id_of(*texts: str) -> str:
    """Return an id for a row: 16 hex digits of a hash of its texts."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


# Files with one JSON object per line.

_PROBLEM = TypeAdapter(TrainingProblem)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredProblem:
    """A line of a file of candidates."""

    source: str
    problem: str
    """Id of the problem, unique in the source."""
    candidates: tuple[CandidateAnswer, ...]


_ANSWERED = TypeAdapter(AnsweredProblem)


def write_problems(problems: Iterable[TrainingProblem], path: Path) -> None:
    """Write problems to a `.jsonl` or `.jsonl.gz` file, one per line."""
    _write_lines((_PROBLEM.dump_python(problem, mode="json") for problem in problems), path)


def read_problems(path: Path) -> list[TrainingProblem]:
    """Read problems from a `.jsonl` or `.jsonl.gz` file.

    Raises:
        ValueError: a line is not a valid problem. The message has the line number.
    """
    return list(_read_lines(_PROBLEM, path))


def write_candidates(answered: Iterable[AnsweredProblem], path: Path) -> None:
    """Write candidates to a `.jsonl` or `.jsonl.gz` file, one problem per line."""
    _write_lines((asdict(line) for line in answered), path)


def read_candidates(path: Path) -> Mapping[tuple[str, str], tuple[CandidateAnswer, ...]]:
    """Read candidates from a file or from all `.jsonl[.gz]` files of a folder.

    Returns:
        (source, id of the problem) -> candidates.

    Raises:
        ValueError: the file is missing, or a line is invalid.
    """
    files = sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path}: no .jsonl or .jsonl.gz file in this folder; give a file or folder of candidates")
    found: dict[tuple[str, str], tuple[CandidateAnswer, ...]] = {}
    for file in files:
        for line in _read_lines(_ANSWERED, file):
            key = (line.source, line.problem)
            found[key] = (*found.get(key, ()), *line.candidates)
    return found


def _write_lines(lines: Iterable[Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(lines, path, gzipped=path.suffix == ".gz")


def _read_lines(kind: TypeAdapter[Any], path: Path) -> Iterator[Any]:
    for number, line in read_lines(path):
        try:
            yield kind.validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path}: line {number}: {place}: {first['msg']}") from None
