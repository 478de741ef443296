"""The written sentences: one folder per writer.

A language model wrote each set in the role of one writer, sentence by sentence, without templates and without sight of
the other sets.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tirjudge_training.instructions.notation import Check, parse_checks

WRITERS = Path(__file__).parent / "writers"
"""Folder with one folder for each writer."""
TRAINING_WRITERS = (
    "abel",
    "ada",
    "ali",
    "amos",
    "art",
    "axel",
    "beth",
    "bo",
    "bob",
    "bree",
    "cass",
    "cher",
    "clay",
    "cleo",
    "cole",
    "dale",
    "dee",
    "demi",
    "deon",
    "dora",
    "drew",
    "edna",
    "ella",
    "elsa",
    "eve",
    "fay",
    "faye",
    "finn",
    "fred",
    "fritz",
    "gabe",
    "gina",
    "gus",
    "gwen",
    "hana",
    "hans",
    "hope",
    "hugh",
    "ian",
    "ines",
    "ivo",
    "jana",
    "jed",
    "jo",
    "june",
    "kara",
    "kim",
    "kit",
    "lia",
    "lou",
    "max",
    "mia",
    "nan",
    "ned",
    "otto",
    "pat",
    "paul",
    "rex",
    "ria",
    "ron",
    "rosa",
    "seth",
    "skye",
    "sol",
    "sue",
    "tara",
    "ted",
    "theo",
    "tia",
    "umar",
    "val",
    "vera",
    "vic",
    "wes",
    "will",
    "yan",
    "zed",
)
HELD_OUT_WRITERS = ("dov",)
"""Writers whose texts are for evaluation only."""
HELD_OUT_FORM_WRITERS = ("nell", "rae")
"""Writers of the checks that are newer than `HELD_OUT_WRITERS`, for evaluation only."""
HELD_OUT_LATEST_WRITERS = ("nora",)
"""Writer of the checks that are newer than `HELD_OUT_FORM_WRITERS`, for evaluation only."""
HELD_OUT_REGEX_WRITERS = ("uli",)
"""Writer of sentences about regular expressions, for evaluation only."""
ANSWERED_FORM_WRITERS = ("ivy", "ugo")
"""Writers of requests about the form of an answer, with instructions of their own choice, each with a right and a wrong
answer, for evaluation only."""
ANSWERED_REGEX_WRITER = "una"
"""Writer of requests for a regular expression with a right and a wrong answer, for evaluation only."""

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """A sentence with the checks that it asks for. Slots in the sentence stand for the values of its checks."""

    checks: tuple[Check, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Everything that some writers wrote."""

    by_name: dict[str, tuple[Instruction, ...]]
    """Name of a check -> the sentences for which the writer named it first."""
    prompts: tuple[Instruction, ...]
    """Whole prompts with literal values."""
    tasks: tuple[str, ...]
    """Requests without an instruction that can be checked."""
    soft: tuple[str, ...]
    """Instructions that no program can check."""
    facts: tuple[str, ...]
    """Background that is no instruction."""
    refused: tuple[str, ...] = ()
    """Lines that are not valid, with the reason."""


@cache
def written_by(writers: tuple[str, ...]) -> Written:
    """Return everything that some of this package's writers wrote. Held-out sentences that a training writer also wrote are
    left out.

    Raises:
        ValueError: a line is not valid.
    """
    written = read_written([WRITERS / name for name in writers])
    if written.refused:
        raise ValueError(f"writers: {written.refused[0]}")
    if not set(writers) <= {
        *HELD_OUT_WRITERS,
        *HELD_OUT_FORM_WRITERS,
        *HELD_OUT_LATEST_WRITERS,
        *HELD_OUT_REGEX_WRITERS,
    }:
        return written
    known = {normalized(one.text) for each in written_by(TRAINING_WRITERS).by_name.values() for one in each}
    by_name = {
        name: tuple(one for one in each if normalized(one.text) not in known) for name, each in written.by_name.items()
    }
    return replace(written, by_name=by_name)


def normalized(text: str) -> str:
    """Return the words and slots of a text in lower case, joined by blanks."""
    return " ".join(re.findall(r"\w+|[{}]", text.lower()))


def read_written(folders: Sequence[Path]) -> Written:
    """Read the files of some writers. Lines that are not valid are left out and reported.

    The checks of whole prompts are in the order of the file, which is that of the prompt. Those of sentences are sorted.
    """
    by_name: dict[str, list[Instruction]] = defaultdict(list)
    prompts: list[Instruction] = []
    plain: dict[str, list[str]] = {"tasks": [], "soft": [], "facts": []}
    refused: list[str] = []
    for folder in folders:
        for line in lines_of(folder / "sentences.txt"):
            try:
                one = _instruction(*line.split(" | ", 1))
            except (ValueError, TypeError) as error:
                refused.append(f"{line}: {error}")
            else:
                by_name[one.checks[0].name].append(one)
        for block in re.split(r"(?m)^---\s*$", _text(folder / "prompts.txt")):
            if block.strip():
                try:
                    first, _, text = block.strip().partition("\n")
                    prompts.append(Instruction(parse_checks(first.removeprefix("#").strip()), text.strip()))
                except ValueError as error:
                    refused.append(f"{block.strip()[:80]}: {error}")
        for name, lines in plain.items():
            lines += [line.replace("\\n", "\n") for line in lines_of(folder / f"{name}.txt")]
    cues = cues_of(one for found in by_name.values() for one in found)
    return Written(
        by_name={name: tuple(in_order(one, cues) for one in found) for name, found in by_name.items()},
        prompts=tuple(prompts),
        tasks=tuple(plain["tasks"]),
        soft=tuple(plain["soft"]),
        facts=tuple(plain["facts"]),
        refused=tuple(refused),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def lines_of(path: Path) -> list[str]:
    """Return the lines of a writer's file, without headings. A missing file has none."""
    return [line.strip() for line in _text(path).splitlines() if line.strip() and not line.startswith("##")]


def _instruction(notation: str, text: str) -> Instruction:
    checks = parse_checks(notation)
    asked = {slot for check in checks for slot in check.slots}
    shown = set(_SLOT.findall(text))
    if asked != shown:
        raise ValueError(f"slots {sorted(asked)} in the checks, {sorted(shown)} in the sentence")
    if not checks:
        raise ValueError("no check")
    return Instruction(checks, text.strip())


# Order ------------------------------------------------------------------------------------------------------------------

_CUE = re.compile(r"[a-z']{2,}|[^\w\s{}.,']+")
"""A word, or symbols such as `<<`."""

MIN_CUES = 2
"""Minimum number of sentences of a check with a word that tells where the check is asked for."""

Cues = Mapping[str, Mapping[str, float]]
"""Name of a check -> word -> how much more frequent the word is in sentences of this check than in all, as a logarithm."""


def cues_of(instructions: Iterable[Instruction]) -> Cues:
    """Learn from the sentences with one check which words ask for which check."""
    words: dict[str, Counter[str]] = defaultdict(Counter)
    sizes: Counter[str] = Counter()
    for one in instructions:
        if len(one.checks) == 1:
            sizes[one.checks[0].name] += 1
            words[one.checks[0].name].update(set(_CUE.findall(one.text.lower())))
    total, in_all = sum(sizes.values()), sum(words.values(), Counter[str]())

    def score(name: str, word: str) -> float:
        return math.log(words[name][word] / (sizes[name] + 1)) - math.log(in_all[word] / (total + 1))

    return {
        name: {word: score(name, word) for word, num in found.items() if num >= MIN_CUES}
        for name, found in words.items()
    }


def in_order(one: Instruction, cues: Cues) -> Instruction:
    """Return a sentence with its checks in the order in which it asks for them.

    The place of a check is that of its values, and for checks with one value that of their strongest cues. A check without
    a value in the sentence has the place of its strongest cue; without one, it stays behind the check before it.
    """
    if len(one.checks) == 1:
        return one
    places: list[tuple[int, int]] = []
    for check in one.checks:
        numbers = (re.search(rf"(?<!\d){re.escape(number)}(?!\d)", one.text) for number in check.numbers)
        values = [found.start() for found in numbers if found is not None]
        values += [one.text.find(value) for value in check.texts if value in one.text]
        known = cues.get(check.name, {})
        found = [(known[match[0]], match.start()) for match in _CUE.finditer(one.text.lower()) if match[0] in known]
        last = places[-1][0] if places else 0
        cue = max(found, key=lambda each: each[0])[1] if found else last
        places.append((min(values, default=cue), cue))
    order = sorted(range(len(places)), key=places.__getitem__)
    return replace(one, checks=tuple(one.checks[place] for place in order))
