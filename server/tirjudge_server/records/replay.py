"""Replays a judgment: runs its programs again, and compares their output with what the judge was shown.

Nothing is measured in seconds: a program that was ended for its time, then or now, is neither the same nor different.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any, Literal

from tirjudge.concurrency import map_concurrently
from tirjudge.control_tokens import FAMILIES
from tirjudge.formats.base import Format
from tirjudge.formats.texts import TRUNCATED
from tirjudge.tools.python import Sandbox
from tirjudge.types import ExecResult, JudgeRequest, Outcome, RolloutRecord, TurnRecord, Wire
from tirjudge_server.records.record import StoredJudgment, Versions

MAX_RUNNING = 4
"""Programs of one replay side by side, so that it leaves slots to judgments."""

_EDGE = 32
"""Characters next to a cut that are not compared: a delimiter across it is broken in one of the two texts only."""


class ReplayedProgram(Wire):
    rollout: int
    """Index of its rollout."""
    turn: int
    """Index of its turn in that rollout."""
    result: Literal["same", "differs", "timed_out"]
    """`timed_out`: it was ended for its time, so there is nothing to compare."""
    outcome: Outcome
    replayed_outcome: Outcome
    output: str | None
    """What the judge was shown; None if it is the same now."""
    replayed_output: str | None
    """What it would be shown now, uncut; None if it is the same."""


class ChangedVersion(Wire):
    then: Any
    now: Any


class Replay(Wire):
    """What a replay found."""

    id: str
    object: Literal["judgment.replay"] = "judgment.replay"
    same: bool
    """Whether no program differs."""
    programs: list[ReplayedProgram]
    versions: dict[str, ChangedVersion]
    """What of the server has changed since, and may be why."""


async def replay(record: StoredJudgment, *, sandbox: Sandbox | None, format: Format, versions: Versions) -> Replay:
    """Run the programs of a judgment again.

    Args:
        record: nothing of it is erased.
        sandbox: None: it has no programs.
        format: that it was asked in.
        versions: of this server.

    Raises:
        SandboxUnavailable: a program could not be run.
    """
    request = JudgeRequest.model_validate(record.request_fields)

    async def run(rollout: RolloutRecord, turn: TurnRecord) -> ExecResult:
        assert sandbox is not None
        return await sandbox.run(turn.code or "", bindings=format.bindings(request, order=rollout.order))

    ran = [(i, k, rollout, turn) for i, rollout in enumerate(record.judgment.rollouts) for k, turn in programs(rollout)]
    works = (run(rollout, turn) for _, _, rollout, turn in ran)
    results = await map_concurrently(works, num_at_once=MAX_RUNNING)
    compared = [
        _compared(turn, again, rollout=i, number=k, format=format)
        for (i, k, _, turn), again in zip(ran, results, strict=True)
    ]
    then, now = record.values["versions"], asdict(versions)
    return Replay(
        id=record.id,
        same=all(program.result != "differs" for program in compared),
        programs=compared,
        versions={
            name: ChangedVersion(then=then.get(name), now=now[name]) for name in now if then.get(name) != now[name]
        },
    )


def programs(rollout: RolloutRecord) -> list[tuple[int, TurnRecord]]:
    """The turns whose program really ran, with their index."""
    return [
        (number, turn)
        for number, turn in enumerate(rollout.turns)
        if turn.code is not None and turn.tool is None and turn.ran
    ]


def _compared(turn: TurnRecord, again: ExecResult, *, rollout: int, number: int, format: Format) -> ReplayedProgram:
    assert turn.outcome is not None
    output = format.shown_output(again, limit=sys.maxsize, control_tokens=FAMILIES)
    if Outcome.TIMEOUT in (turn.outcome, again.outcome):
        result = "timed_out"
    elif turn.outcome is again.outcome and is_same_output(turn.output or "", again=output):
        result = "same"
    else:
        result = "differs"
    return ReplayedProgram(
        rollout=rollout,
        turn=number,
        result=result,
        outcome=turn.outcome,
        replayed_outcome=again.outcome,
        output=None if result == "same" else turn.output,
        replayed_output=None if result == "same" else output,
    )


def is_same_output(shown: str, *, again: str) -> bool:
    """Whether `again`, which is whole, may have been shown as `shown`, which may be cut.

    >>> is_same_output("42", again="42"), is_same_output("42", again="43")
    (True, False)
    """
    if shown == again:
        return True
    head, marker, tail = shown.partition(f"\n{TRUNCATED}\n")
    if not marker or len(again) < len(head) + len(tail):
        return False
    return again.startswith(head[: max(0, len(head) - _EDGE)]) and again.endswith(tail[_EDGE:])
