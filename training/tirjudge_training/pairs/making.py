"""Makes items from problems: samples answers, checks them, and combines right and wrong ones.

Files in the output folder:

    journal/samples.jsonl   all answers, unchanged
    journal/checks.jsonl    results of checking the answers to each problem
    candidates.jsonl        the answers, marked as right or wrong
    items.parquet           the items, in each mode for which there are enough answers
    manifest.json           endpoint, models and settings, and counts of answers and items
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tirjudge.durable import Journal, parse_lines, write_file
from tirjudge.types import MODEL_MODES, Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_training.data.problems import (
    AnswerCheck,
    AnsweredProblem,
    CandidateAnswer,
    TrainingProblem,
    item_of,
    with_candidates,
    write_candidates,
)
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.items import TrainingItem, write_items
from tirjudge_training.pairs.checks import Verifier, marked, open_checks
from tirjudge_training.pairs.endpoint import Endpoint
from tirjudge_training.pairs.sampling import AnswerPlan, Ask, Samples, asks_of, sample

CHUNK = 32
"""Number of problems that are checked together, so that math-verify is loaded only once for them."""

OnProgress = Callable[[str, int, int], None]
"""Arguments: the text `answers` or `checks`, the number of newly finished answers or checks, and their total number."""


class CheckLine(BaseModel):
    """Results of checking the answers to one problem, as stored in the journal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """Hash of the problem, the check, its reference and the answers."""
    right: tuple[bool | None, ...] = ()
    """Whether each answer is right."""
    answers: tuple[str | None, ...] = ()
    """Final answer of each sampled answer. None: no final answer was found."""
    rejected: str | None = None
    """Reason why the answers cannot be checked. None: they were checked."""
    detail: str = ""
    """Details on the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The result of `make_pairs`."""

    items: tuple[TrainingItem, ...]
    manifest: Mapping[str, Any]
    """Content of manifest.json."""


async def make_pairs(
    problems: Sequence[TrainingProblem],
    *,
    endpoint: Endpoint,
    plan: AnswerPlan,
    out: Path,
    modes: Sequence[Mode] = MODEL_MODES,
    slots: int | None = None,
    verifiers: Mapping[AnswerCheck, Verifier] | None = None,
    on_progress: OnProgress = lambda stage, more, total: None,
) -> Made:
    """Make items from problems. Results of an earlier run in the same folder are reused.

    Args:
        problems: Problems to answer.
        endpoint: Chat endpoint that serves the models.
        plan: Models and sampling settings.
        out: Output folder.
        modes: Modes of the items.
        slots: Maximum number of concurrent programs in the sandbox. None: one per core.
        verifiers: Additional verifiers, by kind of check. None: only the built-in one.
        on_progress: Called after each answer and each batch of checks.

    Raises:
        ValueError: no problem can be checked, a problem occurs twice, or another process writes to the folder.
        RequestRefused, EngineUnavailable, SandboxUnavailable: the run cannot continue; its results so far are kept.
    """
    _check_problems(problems)
    asks = asks_of(problems, plan=plan)
    with (
        Journal(out / "journal" / "samples.jsonl") as answers,
        Journal(out / "journal" / "checks.jsonl") as checks,
    ):
        samples = await sample(
            asks,
            endpoint=endpoint,
            journal=answers,
            concurrency=plan.concurrency,
            on_answer=lambda more: on_progress("answers", more, len(asks)),
        )
        answered = list(_answered(problems, asks=asks, samples=samples))
        async with open_checks(slots=slots) as pool:
            found: list[TrainingProblem | Rejected] = []
            known = {line.key: line for line in parse_lines(checks.lines, model=CheckLine, path=checks.path)}
            for start in range(0, len(answered), CHUNK):
                chunk = answered[start : start + CHUNK]
                found += await _checked(chunk, known=known, journal=checks, pool=pool, verifiers=verifiers)
                on_progress("checks", len(chunk), len(answered))
    return _write(problems, found=found, samples=samples, plan=plan, modes=modes, out=out, url=endpoint.url)


def _check_problems(problems: Sequence[TrainingProblem]) -> None:
    if not any(problem.check is not AnswerCheck.PREFERENCE for problem in problems):
        raise ValueError("problems: none can be checked; give problems with reference answers, unit tests or verifiers")
    twice = [name for name, count in Counter((p.source, p.id) for p in problems).items() if count > 1]
    if twice:
        raise ValueError(f"problems: {'/'.join(twice[0])} occurs twice; ids must be unique within a source")


def _answered(
    problems: Sequence[TrainingProblem], *, asks: Sequence[Ask], samples: Samples
) -> Iterator[TrainingProblem]:
    """Yield the problems with their usable answers, which are those that are complete and not empty."""
    lines: dict[tuple[str, str], list[CandidateAnswer]] = {}
    for ask in asks:
        line = samples.lines.get(ask.key)
        if line is not None and not line.was_cut and line.text.strip():
            key = (ask.problem.source, ask.problem.id)
            lines.setdefault(key, []).append(CandidateAnswer(text=line.text, generator=line.model))
    for problem in problems:
        yield with_candidates(problem, lines.get((problem.source, problem.id), ()))


async def _checked(
    problems: Sequence[TrainingProblem],
    *,
    known: dict[str, CheckLine],
    journal: Journal,
    pool: SandboxPool,
    verifiers: Mapping[AnswerCheck, Verifier] | None,
) -> list[TrainingProblem | Rejected]:
    """Check the problems that are not in the journal, and append their results to it."""
    keys = [_key_of(problem) for problem in problems]
    missing = [index for index, key in enumerate(keys) if key not in known]
    results = await marked([problems[index] for index in missing], pool=pool, verifiers=verifiers)
    for index, result in zip(missing, results, strict=True):
        known[keys[index]] = _line(result, key=keys[index])
        journal.write(known[keys[index]].model_dump_json().encode())
    return [_from_line(problem, line=known[key]) for problem, key in zip(problems, keys, strict=True)]


def _key_of(problem: TrainingProblem) -> str:
    texts = [candidate.text for candidate in problem.candidates]
    asked = json.dumps([problem.source, problem.id, problem.check, problem.reference, texts], ensure_ascii=False)
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def _line(result: TrainingProblem | Rejected, *, key: str) -> CheckLine:
    if isinstance(result, Rejected):
        return CheckLine(key=key, rejected=result.reason, detail=result.detail)
    return CheckLine(
        key=key,
        right=tuple(candidate.right for candidate in result.candidates),
        answers=tuple(candidate.answer for candidate in result.candidates),
    )


def _from_line(problem: TrainingProblem, *, line: CheckLine) -> TrainingProblem | Rejected:
    if line.rejected is not None:
        return Rejected(reason=Reason(line.rejected), detail=line.detail)
    results = zip(problem.candidates, line.right, line.answers, strict=True)
    candidates = tuple(replace(one, right=right, answer=answer) for one, right, answer in results)
    return replace(problem, candidates=candidates)


def _write(
    problems: Sequence[TrainingProblem],
    *,
    found: Sequence[TrainingProblem | Rejected],
    samples: Samples,
    plan: AnswerPlan,
    modes: Sequence[Mode],
    out: Path,
    url: str,
) -> Made:
    items: list[TrainingItem] = []
    rejected: Counter[str] = Counter()
    for one in found:
        for mode in modes:
            made = one if isinstance(one, Rejected) else item_of(one, mode=mode, seed=plan.seed)
            if isinstance(made, Rejected):
                rejected[f"{mode}/{made.reason}"] += 1
            else:
                items.append(replace(made, id=f"{made.id}/{mode}"))
    checked = [one for one in found if isinstance(one, TrainingProblem)]
    own = {(problem.source, problem.id): len(problem.candidates) for problem in problems}
    sampled = {(one.source, one.id): one.candidates[own[one.source, one.id] :] for one in checked}
    manifest = {
        "endpoint": url,
        "plan": asdict(plan),
        "problems": len(problems),
        "answers": len(samples.lines),
        "answers_cut": sum(line.was_cut for line in samples.lines.values()),
        "tokens": sum(line.num_tokens for line in samples.lines.values()),
        "refused": samples.failures,
        "right_by_model": _right_by_model([one for some in sampled.values() for one in some]),
        "items": dict(Counter(f"{item.task}/{item.mode}" for item in items)),
        "rejected": dict(rejected),
    }
    write_candidates(
        (AnsweredProblem(source=key[0], problem=key[1], candidates=some) for key, some in sampled.items() if some),
        out / "candidates.jsonl",
    )
    write_items(items, out / "items.parquet")
    write_file(out / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    return Made(items=tuple(items), manifest=manifest)


def _right_by_model(candidates: Sequence[CandidateAnswer]) -> dict[str, dict[str, int]]:
    """Return, for each model, the number of its checked answers and the number of right ones."""
    models = dict.fromkeys(candidate.generator for candidate in candidates)
    by_model = {model: [one.right for one in candidates if one.generator == model] for model in models}
    return {model: {"checked": len(right), "right": sum(map(bool, right))} for model, right in by_model.items()}
