"""Adapter for AReaL: a judge as the reward function of a workflow.

    from areal.workflow.rlvr import RLVRWorkflow
    from tirjudge.integrations.areal import ArealJudgeReward

    workflow = RLVRWorkflow(
        reward_fn=ArealJudgeReward("http://judge:8400", reference_column="answer"), gconfig=gconfig, tokenizer=tokenizer
    )

AReaL waits 15 s for a reward, tries four times, and then silently uses 0. This adapter times out earlier and raises, so
that AReaL drops the rollout. For longer judgments, increase AReaL's timeout too:

    workflow.async_reward_fn = AsyncRewardWrapper(ArealJudgeReward(url, deadline_s=110), timeout_seconds=120)
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from tirjudge.integrations.detemplate import without_end
from tirjudge.integrations.scoring import NoVerdict, Scorer, ScoringSample

logger = logging.getLogger(__name__)

DEADLINE_S = 12.0
"""Default time limit of a judgment, in seconds. It is shorter than AReaL's 15 s."""


class ArealJudgeReward:
    """Reward function with scores from 0 to 1. It can be pickled, because AReaL calls it in a process pool.

    Args:
        url: URL of the server.
        fallback: score of a completion without a verdict, used with a warning. None: raise `NoVerdict`.
        prompt_column: column of the dataset with the messages of the prompt. If it is missing, the rendered prompt is
            parsed.
        reference_column: column with known good answers. None: no references.
        deadline_s: time limit per completion, in seconds, including retries. It must be shorter than AReaL's timeout.
        scorer: other fields of `Scorer`, such as `tools` or `api_key_file`.
    """

    def __init__(
        self,
        url: str,
        *,
        fallback: float | None = None,
        prompt_column: str = "messages",
        reference_column: str | None = None,
        deadline_s: float = DEADLINE_S,
        **scorer: Any,
    ) -> None:
        self._scorer = Scorer(url=url, deadline_s=deadline_s, **scorer)
        self._fallback = fallback
        self._prompt_column = prompt_column
        self._reference_column = reference_column

    def __call__(
        self, prompt: str, completions: str, prompt_ids: list[int], completion_ids: list[int], **columns: Any
    ) -> float:
        """Return the reward of one completion.

        Raises:
            NoVerdict: neither a verdict nor a `fallback`.
            RequestRefused: the server rejects the configuration, such as the key or the model.
        """
        reference = columns[self._reference_column] if self._reference_column else None
        messages = columns.get(self._prompt_column)
        if messages is None:
            asking = self._scorer.score_rendered(prompt + completions, prompt=prompt, reference=reference)
        else:
            candidate = ScoringSample(prompt=messages, response=without_end(completions), reference=reference)
            asking = self._scorer.score_one(candidate)
        scored = asyncio.run(asking)
        if scored.score is not None:
            return scored.score
        if self._fallback is None:
            raise NoVerdict(scored.reason)
        logger.warning("no verdict, the reward is %g: %s", self._fallback, scored.reason)
        return self._fallback
