"""Replay a judgment: run its programs again, and compare their output with the output that the judge read.

Function calls are answered from the record, except queries of stores of evidence; see `replayed_calls`. The stores must be
the same as in the judgment. A program that timed out, in the judgment or in the replay, is not compared.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from tirjudge.concurrency import map_concurrently
from tirjudge.control_tokens import NONE
from tirjudge.engines.base import Tokenizer
from tirjudge.formats.base import Format, response_names
from tirjudge.formats.texts import TRUNCATED
from tirjudge.tools.functions import Offer, ToolFunction
from tirjudge.tools.python import Sandbox
from tirjudge.types import ExecResult, JudgeRequest, Outcome, RolloutRecord, TurnRecord, Wire, is_none
from tirjudge_evidence.stores import attached_digest
from tirjudge_server.records.record import StoredJudgment, Versions
from tirjudge_server.records.replayed_calls import ReplayedCalls

MAX_RUNNING = 4
"""Maximum number of programs of one replay that run concurrently. Leaves sandbox slots for judgments."""

_EDGE = 32
"""Number of characters next to a cut that are not compared. If truncation splits a delimiter, it is escaped only in the
complete output, so the texts differ there."""


class StoreChanged(ValueError):
    """A store of evidence is not the one that the judgment queried."""


class ReplayedProgram(Wire):
    """Comparison of one program."""

    rollout: int
    """Index of the rollout."""
    turn: int
    """Index of the turn in the rollout."""
    result: Literal["same", "differs", "timed_out"]
    """`timed_out`: the program timed out in the judgment or in the replay, and is not compared."""
    outcome: Outcome
    """Outcome in the judgment."""
    replayed_outcome: Outcome
    """Outcome in the replay."""
    output: str | None
    """Output that the judge read. None: the output is the same."""
    replayed_output: str | None
    """Output of the replay, not truncated. None: the output is the same."""
    calls_fed_back: int = Field(default=0, exclude_if=lambda number: not number)
    """Number of function calls that were answered from the record. 0 is omitted from JSON."""
    calls_run_again: int = Field(default=0, exclude_if=lambda number: not number)
    """Number of function calls that were made again, because their results were too large for the record. 0 is omitted from
    JSON."""
    reason: str | None = Field(default=None, exclude_if=is_none)
    """How the function calls differ from those in the judgment. None (omitted from JSON): they are the same."""


class ChangedVersion(Wire):
    """A version that has changed since the judgment."""

    then: Any
    """Version at the time of the judgment."""
    now: Any
    """Version on this server."""


class Replay(Wire):
    """Result of a replay."""

    id: str
    """Id of the judgment."""
    object: Literal["judgment.replay"] = "judgment.replay"
    """Type of this object."""
    same: bool
    """Whether no program differs."""
    programs: list[ReplayedProgram]
    """The programs of the judgment, with their recorded and their new output."""
    versions: dict[str, ChangedVersion]
    """Versions on this server that have changed since the judgment, and may explain a difference."""


async def replay(
    record: StoredJudgment,
    *,
    sandbox: Sandbox | None,
    functions: Sequence[ToolFunction] = (),
    format: Format,
    tokenizer: Tokenizer,
    versions: Versions,
    only: tuple[int, int] | None = None,
) -> Replay:
    """Run the programs of a judgment again.

    Args:
        record: The judgment. None of its fields may have been erased.
        sandbox: Runs the programs. None: allowed if the judgment has no programs.
        functions: Functions of this server.
        format: Format of the judgment.
        tokenizer: Tokenizer of the served model, whose control tokens were broken in the recorded outputs.
        versions: Versions of this server.
        only: Index of a rollout and of a turn in it: only this program runs. None: all.

    Raises:
        StoreChanged: A store of evidence changed, or is not registered on this server.
        SandboxUnavailable: A program could not be run.
        EngineUnavailable: The control tokens could not be read.
    """
    request = JudgeRequest.model_validate(record.request_fields)
    _check_stores(record, request=request, registered=versions.stores)
    offered = _offered(record, names=request.functions)

    async def run(rollout: RolloutRecord, turn: TurnRecord, calls: ReplayedCalls) -> ExecResult:
        assert sandbox is not None
        bindings = format.bindings(request, order=rollout.order)
        offer = Offer(
            functions=calls.functions,
            candidate_code=request.candidate_code,
            watched=response_names(bindings),
            request=request,
        )
        return await sandbox.run(turn.code or "", bindings=bindings, offer=offer)

    ran = [
        (i, k, rollout, turn, ReplayedCalls(turn.calls, offered=offered, present=functions))
        for i, rollout in enumerate(record.judgment.rollouts)
        for k, turn in programs(rollout)
        if only in (None, (i, k))
    ]
    works = (run(rollout, turn, calls) for _, _, rollout, turn, calls in ran)
    results = await map_concurrently(works, num_at_once=MAX_RUNNING)
    compared = []
    for (i, k, _, turn, calls), again in zip(ran, results, strict=True):
        output = await _shown_again(turn, again, format=format, tokenizer=tokenizer)
        compared.append(_compared(turn, again, output, calls=calls, rollout=i, number=k))
    then, now = record.values["versions"], asdict(versions)
    return Replay(
        id=record.id,
        same=all(program.result != "differs" for program in compared),
        programs=compared,
        versions={
            name: ChangedVersion(then=then.get(name), now=now[name])
            for name in now
            if (then.get(name) or None) != (now[name] or None)
        },
    )


def _check_stores(record: StoredJudgment, *, request: JudgeRequest, registered: Mapping[str, Any]) -> None:
    """
    Raises:
        StoreChanged: A store of the judgment differs from the attached or registered store of its name.
    """
    attached = {store.name: store for store in request.evidence or ()}
    for card in record.judgment.stores:
        if card.name in attached:
            now = attached_digest(attached[card.name])
        elif card.name in registered:
            now = registered[card.name]["sha256"]
        else:
            raise StoreChanged(
                f"the judgment queried the store {card.name} with SHA-256 {card.sha256}, which is not registered here; "
                "start the server with this store"
            )
        if now != card.sha256:
            raise StoreChanged(
                f"the store {card.name} changed: the judgment queried SHA-256 {card.sha256}, the store has {now} now; "
                "start the server with the files of that time"
            )


def _offered(record: StoredJudgment, *, names: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the functions that the programs of a judgment could call, with their parameters."""
    functions = record.values["versions"].get("functions", {})
    chosen = functions if names is None else [name for name in names if name in functions]
    return {name: functions[name]["parameters"] for name in chosen}


def programs(rollout: RolloutRecord) -> list[tuple[int, TurnRecord]]:
    """Return the turns whose program was run, with their index."""
    return [
        (number, turn)
        for number, turn in enumerate(rollout.turns)
        if turn.code is not None and turn.tool is None and turn.ran
    ]


async def _shown_again(turn: TurnRecord, again: ExecResult, *, format: Format, tokenizer: Tokenizer) -> str:
    """Return the complete output of the replay, with the same tokens broken as in the recorded output."""
    output = format.shown_output(again, limit=sys.maxsize, control_tokens=NONE)
    if is_same_output(turn.output or "", again=output):
        return output
    control_tokens = await tokenizer.control_tokens([again.stdout, again.error or ""])
    return format.shown_output(again, limit=sys.maxsize, control_tokens=control_tokens)


def _compared(
    turn: TurnRecord, again: ExecResult, output: str, *, calls: ReplayedCalls, rollout: int, number: int
) -> ReplayedProgram:
    assert turn.outcome is not None
    if Outcome.TIMEOUT in (turn.outcome, again.outcome):
        result = "timed_out"
    elif turn.outcome is again.outcome and is_same_output(turn.output or "", again=output) and calls.difference is None:
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
        calls_fed_back=calls.num_fed_back,
        calls_run_again=calls.num_run_again,
        reason=calls.difference if result == "differs" else None,
    )


def is_same_output(shown: str, *, again: str) -> bool:
    """Whether two outputs are the same, as far as a truncated output can tell.

    Args:
        shown: The output that the judge read, possibly truncated.
        again: The complete output of the replay.

    >>> is_same_output("42", again="42"), is_same_output("42", again="43")
    (True, False)
    """
    if shown == again:
        return True
    head, marker, tail = shown.partition(f"\n{TRUNCATED}\n")
    if not marker or len(again) < len(head) + len(tail):
        return False
    return again.startswith(head[: max(0, len(head) - _EDGE)]) and again.endswith(tail[_EDGE:])
