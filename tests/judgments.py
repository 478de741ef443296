"""Builders of the wire types for tests: requests, verdicts, rollouts and judgments, with defaults for every field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tirjudge.types import (
    Basis,
    ChatMessage,
    JudgeRequest,
    Judgment,
    Mode,
    Outcome,
    RolloutRecord,
    RolloutVerdict,
    StopReason,
    Timing,
    TurnRecord,
    Usage,
    Verdict,
)

Status = Literal["decided", "tie", "abstained"]


def build_request(
    prompt: str | list[ChatMessage] = "p",
    responses: Sequence[str] = ("a", "b"),
    *,
    mode: Mode = Mode.PAIRWISE,
    **fields: Any,
) -> JudgeRequest:
    """A request. By default it has two responses and the mode pairwise. `fields`: other fields of the request."""
    return JudgeRequest(mode=mode, prompt=prompt, responses=list(responses), **fields)


def build_turn(
    outcome: Outcome | None = None, *, text: str = "t", code: str | None = None, output: str | None = None
) -> TurnRecord:
    """A turn of a model. With an `outcome`, the turn ran a program, whose default code is "1" and default output is empty."""
    if outcome is not None:
        code, output = "1" if code is None else code, output or ""
    return TurnRecord(text=text, code=code, output=output, outcome=outcome)


def build_rollout_verdict(
    label: str = "A",
    *,
    best: int | None = None,
    score: float | None = None,
    probabilities: Mapping[str, float] | None = None,
    label_mass: float | None = 1.0,
    forced: bool = False,
) -> RolloutVerdict:
    """The verdict of one rollout. `probabilities`: label -> probability; None: the engine returns no probabilities."""
    return RolloutVerdict(
        label=label,
        best=best,
        score=score,
        probabilities=dict(probabilities or {}),
        label_mass=label_mass,
        forced=forced,
    )


def build_rollout(
    order: Sequence[int] = (0, 1),
    *,
    verdict: RolloutVerdict | None = None,
    turns: Sequence[TurnRecord] = (),
    stop_reason: StopReason | None = None,
) -> RolloutRecord:
    """One rollout. By default its stop reason is VERDICT if it has a verdict, otherwise NO_VERDICT."""
    if stop_reason is None:
        stop_reason = StopReason.NO_VERDICT if verdict is None else StopReason.VERDICT
    return RolloutRecord(order=list(order), turns=list(turns), stop_reason=stop_reason, verdict=verdict)


def without_times(rollout: RolloutRecord) -> RolloutRecord:
    """The rollout without the durations of its turns, for comparison with another one."""
    turns = [turn.model_copy(update={"engine_ms": None, "tool_ms": None}) for turn in rollout.turns]
    return rollout.model_copy(update={"turns": turns})


def build_verdict(
    status: Status = "decided",
    *,
    best: int | None = None,
    label: str | None = None,
    scores: Sequence[float | None] | None = None,
    probabilities: Sequence[float] | None = None,
    confidence: float | None = None,
    label_mass: float | None = None,
    forced: bool = False,
    reason: str | None = None,
    basis: Basis | None = None,
) -> Verdict:
    """The verdict of a judgment. By default its status is decided, and its other fields are None."""
    return Verdict(
        status=status,
        best=best,
        label=label,
        scores=None if scores is None else list(scores),
        probabilities=None if probabilities is None else list(probabilities),
        confidence=confidence,
        label_mass=label_mass,
        forced=forced,
        reason=reason,
        basis=basis,
    )


def build_judgment(
    verdict: Verdict | None = None,
    *,
    id: str = "jdg_1",
    created: int = 0,
    mode: Mode = Mode.PAIRWISE,
    model: str = "judge",
    model_version: str | None = None,
    rollouts: Sequence[RolloutRecord] = (),
    input_tokens: int = 0,
    cached_tokens: int = 0,
    output_tokens: int = 0,
    tool_calls: int | None = None,
    total_s: float = 0.0,
    engine_s: float = 0.0,
    sandbox_s: float = 0.0,
) -> Judgment:
    """A judgment. Its usage is computed from `rollouts`: their number, and their tool calls unless `tool_calls` is given."""
    calls = sum(len(rollout.outcomes) for rollout in rollouts)
    return Judgment(
        id=id,
        created=created,
        mode=mode,
        model=model,
        model_version=model_version,
        verdict=verdict or build_verdict(),
        rollouts=list(rollouts),
        usage=Usage(
            input_tokens=input_tokens,
            cached_tokens=cached_tokens,
            output_tokens=output_tokens,
            tool_calls=calls if tool_calls is None else tool_calls,
            rollouts=len(rollouts),
        ),
        timing=Timing(total_s=total_s, engine_s=engine_s, sandbox_s=sandbox_s),
    )
