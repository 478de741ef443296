"""Adapter for ms-swift: a judge as a reward function of GRPO, in a user's plugin.

    # plugin.py
    from swift.rewards import orms
    from tirjudge.integrations.ms_swift import judge_orm

    orms["tir_judge"] = judge_orm("http://judge:8400", fallback=0.0, reference_column="solution")

    swift rlhf --rlhf_type grpo --external_plugins plugin.py --reward_funcs tir_judge ...

ms-swift counts a missing reward as 0. A completion without a verdict gets the score `fallback`, and a warning reports
the number of such completions and a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tirjudge.integrations.scoring import Scorer, ScoringSample

logger = logging.getLogger(__name__)


def judge_orm(url: str, *, fallback: float = 0.0, reference_column: str | None = None, **scorer: Any) -> type[Any]:
    """Return a subclass of `AsyncORM` for the table `orms`.

    Args:
        url: URL of the server.
        fallback: score, 0 to 1, of a completion without a verdict.
        reference_column: column of the dataset with known good answers. None: no references.
        scorer: other fields of `Scorer`, such as `api_key`, `tools`, `deadline_s` or `strategy`.
    """
    from swift.rewards import AsyncORM

    judge = Scorer(url=url, **scorer)

    class TirJudge(AsyncORM):
        async def __call__(self, completions: Sequence[str], **columns: Any) -> list[float]:
            references = columns[reference_column] if reference_column else [None] * len(completions)
            scored = await judge.score(
                [
                    ScoringSample(prompt=messages[:-1], response=completion, reference=reference)
                    for messages, completion, reference in zip(
                        columns["messages"], completions, references, strict=True
                    )
                ]
            )
            reasons = [one.reason for one in scored if one.score is None]
            if reasons:
                logger.warning(
                    "%d of %d have no verdict and get %g: %s", len(reasons), len(scored), fallback, reasons[0]
                )
            return [fallback if one.score is None else one.score for one in scored]

    return TirJudge
