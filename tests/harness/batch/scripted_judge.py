"""A judge whose model is scripted, opened by a function that can be handed to other processes.

Of two responses, `yes` and `no`, it names `yes`. What else it does, the prompt says.
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
"""A prompt with this in it fails as if there were no engine."""


class Engine(ScriptedEngine):
    """Keeps no list of what it was asked."""

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        self.calls.clear()
        return await super().generate(token_ids, sampling=sampling, session=session)


def _label(sequence: str) -> str:
    return "A" if sequence.rindex("\nyes\n") < sequence.rindex("\nno\n") else "B"


def _probabilities(sequence: str) -> Mapping[str, float]:
    return {"A": 0.9, "B": 0.1} if _label(sequence) == "A" else {"A": 0.1, "B": 0.9}


@asynccontextmanager
async def open_scripted(*, delay_s: float = 0.0, fingerprint: str = "scripted") -> AsyncIterator[OpenJudge]:
    """That judge, without a sandbox.

    Args:
        delay_s: what each judgment takes.
        fingerprint: of its model.
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
    """A row; of two numbers that follow one another, one has `yes` first."""
    responses = ["yes", "no"] if number % 2 == 0 else ["no", "yes"]
    return {"key": f"k{number}", "prompt": f"Is {number} a number?", "responses": responses, "tools": "off"} | fields


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Judges as `judging` does, and can be watched meanwhile."""

    judging: BatchExecutor
    times: list[float] = field(default_factory=list)
    """When each result came, on the monotonic clock."""

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
