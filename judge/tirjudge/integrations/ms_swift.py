"""ms-swift: a server's judge as a reward function of GRPO, in a plugin of your own.

    # plugin.py
    from swift.rewards import orms
    from tirjudge.integrations.ms_swift import judge_orm

    orms["tir_judge"] = judge_orm("http://judge:8400", fallback=0.0, reference_column="solution")

    swift rlhf --rlhf_type grpo --external_plugins plugin.py --reward_funcs tir_judge ...

ms-swift adds up rewards as if one that is missing were 0: a completion without a verdict gets `fallback`, and a warning
says how many there were and why.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tirjudge.integrations.scoring import Scorer, ScoringSample

logger = logging.getLogger(__name__)


def judge_orm(url: str, *, fallback: float = 0.0, reference_column: str | None = None, **scorer: Any) -> type[Any]:
    """A subclass of `AsyncORM` for the table `orms`.

    Args:
        url: of the server.
        fallback: the score, 0 to 1, where there is no verdict.
        reference_column: the column of the data set that holds answers known to be good; None: there is none.
        scorer: other fields of `Scorer`, such as `api_key`, `tools`, `deadline_s` or `strategy`.
    """
    from swift.rewards import AsyncORM  # pyright: ignore

    asked = Scorer(url=url, **scorer)

    class TirJudge(AsyncORM):
        async def __call__(self, completions: Sequence[str], **columns: Any) -> list[float]:
            references = columns[reference_column] if reference_column else [None] * len(completions)
            scored = await asked.score(
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
