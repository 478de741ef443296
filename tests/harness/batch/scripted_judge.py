"""A judge with a scripted model. The function that opens it can be pickled and sent to other processes.

Of two responses, `yes` and `no`, the judge chooses `yes`. It fails if the prompt contains `LOST`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.types import Completion, JudgeRequest, Judgment, Sampling
from tirjudge_harness.batch.asking import Opening
from tirjudge_harness.batch.plan import Piece
from tirjudge_harness.batch.results import Result
from tirjudge_harness.batch.run import BatchExecutor, OpenedJudging
from tirjudge_harness.judges import OpenJudge

LOST = "the engine is lost"
"""A request whose prompt contains this text fails with EngineUnavailable."""


class Engine(ScriptedEngine):
    """A scripted engine that does not record its calls."""

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        self.calls.clear()
        return await super().generate(token_ids, sampling=sampling, session=session)


def _label(sequence: str) -> str:
    return "A" if sequence.rindex("\nyes\n") < sequence.rindex("\nno\n") else "B"


def _probabilities(sequence: str) -> Mapping[str, float]:
    return {"A": 0.9, "B": 0.1} if _label(sequence) == "A" else {"A": 0.1, "B": 0.9}


@asynccontextmanager
async def open_scripted(*, delay_s: float = 0.0, fingerprint: str = "scripted") -> AsyncIterator[OpenJudge]:
    """Open the judge, without a sandbox.

    Args:
        delay_s: duration of each judgment.
        fingerprint: fingerprint of the model.
    """
    engine = Engine(
        lambda sequence: f"<preference>{_label(sequence)}</preference>", label_probs=_probabilities, delay_s=delay_s
    )
    judge = Judge(engine=engine, tools=(), profile=Profile(name="scripted"))

    async def one(request: JudgeRequest) -> Judgment:
        if LOST in str(request.prompt):
            raise EngineUnavailable("the engine does not answer")
        return await judge.judge(request)

    yield OpenJudge(judge=one, kind="local", url=None, model="scripted", fingerprint=fingerprint)


def pair(number: int, **fields: Any) -> dict[str, Any]:
    """Return a row. Even numbers have `yes` as the first response."""
    responses = ["yes", "no"] if number % 2 == 0 else ["no", "yes"]
    return {"key": f"k{number}", "prompt": f"Is {number} a number?", "responses": responses, "tools": "off"} | fields


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Wraps an executor and records the time of each result."""

    judging: BatchExecutor
    times: list[float] = field(default_factory=list)
    """Monotonic time of each result."""

    @asynccontextmanager
    async def opened(self, opening: Opening, *, place: str) -> AsyncIterator[OpenedWatched]:
        async with self.judging.opened(opening, place=place) as opened:
            yield OpenedWatched(opened=opened, times=self.times)


@dataclass(frozen=True, kw_only=True)
class OpenedWatched:
    opened: OpenedJudging
    times: list[float]

    @property
    def identity(self) -> Mapping[str, Any]:
        return self.opened.identity

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        def take(result: Result) -> None:
            self.times.append(monotonic())
            on_result(result)

        await self.opened.judge(pieces, on_result=take)
