"""Judges requests with a fleet of real workers, and extracts the results that must not depend on killed workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tirjudge.judge import Judge
from tirjudge.types import JudgeRequest, Judgment

TOPICS = ("sea", "city", "forest", "desert", "moon", "river", "harbour", "market", "garden", "mountain")


def requests(num: int, *, orders: str = "both") -> list[JudgeRequest]:
    """Distinct greedy requests that the bundled judge can judge."""
    return [
        JudgeRequest.model_validate(
            {
                "mode": "pairwise",
                "prompt": f"Describe the {TOPICS[i % 10]} in at least {2 + i % 4} sentences. Do not use any commas.",
                "responses": ["It is wide. " * (1 + i % 5), f"It moves, it sings, it is number {i}. " * (2 + i % 3)],
                "orders": orders,
                "temperature": 0.0,
            }
        )
        for i in range(num)
    ]


async def judge_all(
    judge: Judge,
    asked: Sequence[JudgeRequest],
    *,
    concurrency: int = 8,
    on_end: Callable[[int], None] = lambda num_ended: None,
) -> list[Judgment | BaseException]:
    """Judge requests concurrently; return the judgments in order, or the exception in place of a failed one.

    Args:
        judge: makes the judgments.
        asked: the requests.
        concurrency: maximum number of concurrent judgments.
        on_end: called with the number of finished judgments each time one finishes.
    """
    places, num_ended = asyncio.Semaphore(concurrency), 0

    async def one(request: JudgeRequest) -> Judgment:
        nonlocal num_ended
        async with places:
            judgment = await judge.judge(request)
        num_ended += 1
        on_end(num_ended)
        return judgment

    return await asyncio.gather(*map(one, asked), return_exceptions=True)


def decided(judgment: Judgment | BaseException) -> Any:
    """The verdict, its rounded probabilities, and the turns with programs and outputs; or the exception."""
    if isinstance(judgment, BaseException):
        return repr(judgment)
    turns = [[(turn.text, turn.code, turn.output) for turn in rollout.turns] for rollout in judgment.rollouts]
    return judgment.verdict.best, [round(p, 3) for p in judgment.verdict.probabilities or ()], turns
