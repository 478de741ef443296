"""Adapter for TRL: a judge as a reward function of `GRPOTrainer` or `RLOOTrainer`.

    from trl import GRPOTrainer
    from tirjudge.integrations.trl import TRLJudgeReward

    trainer = GRPOTrainer(
        model="Qwen/Qwen3-0.6B",
        reward_funcs=TRLJudgeReward("http://judge:8400", reference_column="solution"),
        train_dataset=dataset,
    )

A completion without a verdict gets `None`: TRL ignores this reward for it, and warns if it has no other reward. The
share of these completions is logged as `judge/abstained`. The column `judgment` of the table of completions has the
reason or the ids of the judgments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tirjudge.integrations.scoring import Prompt, Scorer, ScoringSample, response_of


class TRLJudgeReward:
    """Reward function with scores from 0 to 1. All completions of a batch are judged concurrently.

    Args:
        url: URL of the server.
        reference_column: column of the dataset with known good answers. None: no references.
        scorer: other fields of `Scorer`, such as `api_key`, `tools`, `deadline_s` or `strategy`.
    """

    __name__ = "JudgeReward"
    """Name in TRL's metrics."""

    def __init__(self, url: str, *, reference_column: str | None = None, **scorer: Any) -> None:
        self._scorer = Scorer(url=url, **scorer)
        self._reference_column = reference_column

    async def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[Prompt],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return one reward per completion; `None` without a verdict.

        Raises:
            RequestRefused: the server rejects the configuration, such as the key or the model.
        """
        references = columns[self._reference_column] if self._reference_column else [None] * len(prompts)
        scored = await self._scorer.score(
            [
                ScoringSample(prompt=prompt, response=response_of(completion), reference=reference)
                for prompt, completion, reference in zip(prompts, completions, references, strict=True)
            ]
        )
        if log_metric is not None:
            log_metric("judge/abstained", sum(one.score is None for one in scored) / len(scored))
            log_metric("judge/tool_calls", sum(one.num_tool_calls for one in scored) / len(scored))
        if log_extra is not None:
            log_extra("judgment", [one.reason or " ".join(one.judgment_ids) for one in scored])
        return [one.score for one in scored]
