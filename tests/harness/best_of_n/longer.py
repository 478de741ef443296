"""A judge that prefers the longer response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_verdict
from tirjudge.errors import EngineUnavailable
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.judges import OpenJudge


class LongerIsBetter:
    """A judge whose scores and comparisons are based on the number of words.

    Args:
        fails_after: number of judgments after which the judge raises `EngineUnavailable`. None: it never raises.
    """

    def __init__(self, *, fails_after: int | None = None) -> None:
        self.asked: list[JudgeRequest] = []
        self.fails_after = fails_after

    async def __call__(self, request: JudgeRequest) -> Judgment:
        await asyncio.sleep(0)
        if self.fails_after is not None and len(self.asked) >= self.fails_after:
            raise EngineUnavailable("gone")
        self.asked.append(request)
        words = [len(text.split()) for text in request.responses]
        pointwise = request.mode is Mode.POINTWISE
        best = None if pointwise else words.index(max(words))
        label = str(min(10, words[0])) if pointwise else "AB"[best == 1]
        verdict = build_verdict(
            best=best,
            label=label,
            scores=[float(min(10, words[0]))] if pointwise else None,
            probabilities=None if pointwise else [count / sum(words) for count in words],
        )
        return build_judgment(
            verdict,
            id=f"jdg_{len(self.asked)}",
            mode=request.mode,
            model="longer",
            rollouts=[build_rollout(range(len(words)), verdict=build_rollout_verdict(label, best=best))],
            input_tokens=10,
            output_tokens=1,
        )

    @property
    def opened(self) -> OpenJudge:
        return OpenJudge(judge=self, kind="local", url=None, model="longer", fingerprint="f1")

    @asynccontextmanager
    async def opening(self) -> AsyncIterator[OpenJudge]:
        yield self.opened
