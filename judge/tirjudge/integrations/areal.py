"""AReaL: a server's judge as the reward function of a workflow.

    from areal.workflow.rlvr import RLVRWorkflow
    from tirjudge.integrations.areal import ArealJudgeReward

    workflow = RLVRWorkflow(
        reward_fn=ArealJudgeReward("http://judge:8400", reference_column="answer"), gconfig=gconfig, tokenizer=tokenizer
    )

AReaL waits 15 s for a reward, four times, and then takes 0 without a word. This gives up before, and raises: AReaL then
leaves the rollout out. For judgments that take longer, let AReaL wait longer as well:

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
"""Of a judgment, so that the answer is there within AReaL's 15 s."""


class ArealJudgeReward:
    """Scores from 0 to 1. It can be pickled, and is called in a process of AReaL's pool.

    Args:
        url: of the server.
        fallback: the score where there is no verdict, with a warning; None: `NoVerdict` is raised.
        prompt_column: the column of the data set that holds the prompt; without one, the rendered prompt is read.
        reference_column: the column that holds answers known to be good; None: there is none.
        deadline_s: for each completion, retries included; below AReaL's own.
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
        """The reward of one completion.

        Raises:
            NoVerdict: there is none.
            RequestRefused: the set-up is at fault.
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
