"""Export a run as an Inspect log. Each example is a sample, its turns are messages, and the credit of its
comparisons is the score.

The folder of a run does not contain prompts and responses. If the examples are available, the log contains them.
Without them, a sample has the id of its example and the turns of the judge.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from tirjudge.right import scores_of
from tirjudge.types import Judgment, Outcome, RolloutRecord, label_of, prompt_text
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import ComparisonScore, MetricValue
from tirjudge_harness.own_data.rows import RATING
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.run import AskedComparison, PlannedExample

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessage, ModelUsage

SCORER = "credit"
SUFFIX = ".eval"


def write_inspect_log(log: EvalLog, *, out: Path) -> None:
    """Write a log with Inspect's own writer.

    Raises:
        InputError: the name of the file does not end in `.eval`, or the file cannot be written.
    """
    from inspect_ai.log import write_eval_log

    if out.suffix != SUFFIX:
        raise InputError(f"--out: expected a name that ends in {SUFFIX}, because Inspect reads no others; got {out}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_eval_log(log, location=str(out.resolve()), format="eval")
    except OSError as error:
        raise InputError(f"{out}: {error.strerror or error}; give a path that can be written") from error


def inspect_log(run: ScoredRun, *, planned: Sequence[PlannedExample], texts: Mapping[str, Example]) -> EvalLog:
    """Return a scored run as an Inspect log.

    Args:
        run: the run.
        planned: the plan of the run, one entry per example.
        texts: the available examples, by id.
    """
    from inspect_ai.log import EvalError, EvalLog, EvalStats

    marks: dict[str, list[ComparisonScore]] = defaultdict(list)
    for mark in run.marks:
        marks[mark.outline.id].append(mark)
    judged = {one.outline.id: one for one in run.examples}
    samples = [
        _sample(
            judged[plan.outline.id], asked=plan.asked, marks=marks[plan.outline.id], text=texts.get(plan.outline.id)
        )
        for plan in planned
    ]
    num_open = sum(bool(plan.asked) and not sample.scores for plan, sample in zip(planned, samples, strict=True))
    missing = (
        f"{num_open} of {len(samples)} examples have no score: not judged, or not enough judgments for the protocol"
    )
    times = [judgment.created for one in run.examples for judgment in one.judgments] or [run.manifest.created]
    return EvalLog(
        status="error" if num_open else "success",
        error=EvalError(message=missing, traceback=missing, traceback_ansi=missing) if num_open else None,
        eval=_spec(run, sample_ids=[sample.id for sample in samples]),
        results=_results(run, num_scored=len(samples) - num_open, num_samples=len(samples)),
        stats=EvalStats(started_at=_time(min(times)), completed_at=_time(max(times)), model_usage=_usage(run.examples)),
        samples=samples,
    )


def _spec(run: ScoredRun, *, sample_ids: Sequence[str | int]):
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec

    manifest = run.manifest
    name = hashlib.sha256(manifest.model_dump_json().encode()).hexdigest()[:22]
    kept = manifest.model_dump(mode="json")
    sources = ", ".join(manifest.data.sources.values())
    return EvalSpec(
        created=_time(manifest.created),
        task=run.benchmark.name,
        task_display_name=run.benchmark.title,
        task_id=name,
        eval_id=name,
        run_id=name,
        task_args={"mode": manifest.mode_name, "protocol": run.protocol.name, "tools": manifest.tools},
        dataset=EvalDataset(
            name=run.benchmark.title,
            location=manifest.data.path or sources,
            samples=len(sample_ids),
            sample_ids=[str(id) for id in sample_ids],
        ),
        model=f"tirjudge/{manifest.judge.model}",
        model_base_url=manifest.judge.url,
        config=EvalConfig(epochs=1),
        packages={"tirjudge": manifest.version},
        metadata=kept | {"citation": run.benchmark.citation},
    )


def _results(run: ScoredRun, *, num_scored: int, num_samples: int):
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    metrics = {
        name: EvalMetric(name=name, value=figure.value, metadata={"interval": figure.interval, "n": figure.num_marks})
        for name, figure in _by_path(run.figures).items()
        if figure.value is not None
    }
    score = EvalScore(
        name=SCORER,
        scorer=SCORER,
        scored_samples=num_scored,
        unscored_samples=num_samples - num_scored,
        metrics=metrics,
    )
    return EvalResults(total_samples=num_samples, completed_samples=num_scored, scores=[score])


def _by_path(figures: Sequence[MetricValue]) -> dict[str, MetricValue]:
    """Return figures by path, such as `Overall/Chat`, because parts of different figures may have the same name."""
    found: dict[str, MetricValue] = {}
    path: list[str] = []
    for figure in figures:
        path[figure.depth :] = [figure.name]
        found["/".join(path)] = figure
    return found


def _sample(
    one: JudgedExample, *, asked: Sequence[AskedComparison], marks: Sequence[ComparisonScore], text: Example | None
) -> EvalSample:
    from inspect_ai.log import EvalError, EvalSample

    outline = one.outline
    metadata = {"subset": outline.subset, "cluster": outline.cluster, **outline.tags, **outline.facts}
    questions = list(zip(asked, one.judgments, strict=True)) if one.judgments else []
    why = "not judged: the run is incomplete, or the judgment failed"
    return EvalSample(
        id=outline.id,
        epoch=1,
        input=_writable(prompt_text(text.prompt)) if text else f"{outline.id} (the log was made without the texts)",
        choices=[_writable(response) for response in text.responses] if text else None,
        target=[label_of(index) for index in outline.correct],
        messages=[message for question in questions for message in _messages(*question)],
        scores={SCORER: _score(one, marks=marks)} if marks else _rated_score(one),
        metadata=metadata,
        model_usage=_usage([one]),
        error=None if marks or questions or not asked else EvalError(message=why, traceback=why, traceback_ansi=why),
        started_at=_time(min(judgment.created for judgment in one.judgments)) if one.judgments else None,
        total_time=sum(judgment.timing.total_s for judgment in one.judgments) if one.judgments else None,
    )


def _score(one: JudgedExample, *, marks: Sequence[ComparisonScore]):
    from inspect_ai.scorer import Score

    named = [label_of(decision.best) for decision in one.decisions if decision.best is not None]
    scores = [
        f"{label_of(decision.shown[0])} {decision.score:g}" for decision in one.decisions if decision.score is not None
    ]
    lines = [f"{' and '.join(map(label_of, mark.compared))}: {mark.result}, credit {mark.credit:g}" for mark in marks]
    return Score(
        value=fmean(mark.credit for mark in marks),
        answer=", ".join(named or scores) or None,
        explanation="\n".join(lines),
        metadata={
            "marks": [{"compared": list(m.compared), "result": m.result, "credit": m.credit} for m in marks],
            "forced": sum(decision.forced for decision in one.decisions),
        },
    )


def _rated_score(one: JudgedExample):
    """Return the judge's score of a response that has a rating instead of a label. None: no score or no rating."""
    from inspect_ai.scorer import Score

    score, rating = scores_of(one.decisions, expected=False).get(0), one.outline.facts.get(RATING)
    if score is None or rating is None:
        return None
    return {SCORER: Score(value=score, explanation=f"score {score:g}, rating {rating:g}", metadata={RATING: rating})}


def _messages(asked: AskedComparison, judgment: Judgment) -> Iterator[ChatMessage]:
    """Yield the messages of each rollout. They name responses by choice and by the letter shown to the judge."""
    from inspect_ai.model import ChatMessageUser

    for number, rollout in enumerate(judgment.rollouts, start=1):
        shown = [asked.responses[index] for index in rollout.order]
        verdict = "no verdict" if rollout.verdict is None else f"verdict {rollout.verdict.label}"
        forced = ", forced" if rollout.verdict is not None and rollout.verdict.forced else ""
        responses = " and ".join(
            f"response {label_of(index)} (shown as {label_of(place)})" for place, index in enumerate(shown)
        )
        yield ChatMessageUser(
            content=f"Judge {responses}, {judgment.mode.value}.",
            metadata={
                "rollout": number,
                "stop_reason": rollout.stop_reason.value,
                "verdict": f"{verdict}{forced}",
                "judgment": judgment.id,
            },
        )
        yield from _turns(rollout, judgment=judgment, number=number)


def _turns(rollout: RolloutRecord, *, judgment: Judgment, number: int) -> Iterator[ChatMessage]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool
    from inspect_ai.tool import ToolCall, ToolCallError

    for place, turn in enumerate(rollout.turns):
        call = f"{judgment.id}-{number}-{place}"
        ran = turn.code is not None and turn.outcome is not None
        yield ChatMessageAssistant(
            content=turn.text,
            model=judgment.model,
            tool_calls=[ToolCall(id=call, function="python", arguments={"code": turn.code})] if ran else None,
        )
        if ran:
            failed = None
            if turn.outcome is not None and not turn.outcome.is_ok:
                kind = "timeout" if turn.outcome is Outcome.TIMEOUT else "unknown"
                failed = ToolCallError(kind, f"the program ended with {turn.outcome.value}: {turn.output or ''}")
            yield ChatMessageTool(content=turn.output or "", tool_call_id=call, function="python", error=failed)


def _usage(examples: Sequence[JudgedExample]) -> dict[str, ModelUsage]:
    """Return token usage by model. A judgment that several examples share counts once."""
    from inspect_ai.model import ModelUsage

    judgments = {judgment.id: judgment for one in examples for judgment in one.judgments}
    usage: dict[str, ModelUsage] = {}
    for judgment in judgments.values():
        spent = ModelUsage(
            input_tokens=judgment.usage.input_tokens or 0,
            output_tokens=judgment.usage.output_tokens or 0,
            total_tokens=(judgment.usage.input_tokens or 0) + (judgment.usage.output_tokens or 0),
            input_tokens_cache_read=judgment.usage.cached_tokens,
        )
        name = f"tirjudge/{judgment.model}"
        usage[name] = usage[name] + spent if name in usage else spent
    return usage


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat()


def _writable(text: str) -> str:
    """Replace unpaired surrogates, which cannot be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()
