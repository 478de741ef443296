"""Adapter for OpenRLHF: a judge as a reward function in a user's file, or as the environment of an agent.

`--reward.remote_url http://judge:8400/get_reward` works without a file. A file can also set a key, a rubric and other
options.

    # judge_reward.py, for --reward.remote_url judge_reward.py
    from tirjudge.integrations.openrlhf import RewardFunction

    reward_func = RewardFunction("http://judge:8400", fallback=0.0, api_key_file="/run/secrets/judge")

    # judge_agent.py, for --train.agent_func_path judge_agent.py
    from openrlhf.utils.agent import MultiTurnAgentExecutor
    from tirjudge.integrations.openrlhf import agent_instance

    class AgentExecutor(MultiTurnAgentExecutor):
        def __init__(self):
            super().__init__(agent_instance("http://judge:8400", fallback=0.0))

OpenRLHF does not support missing rewards. A completion without a verdict gets the score `fallback`, and its
`judge_failed` in the logs is 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from tirjudge.integrations.scoring import Scorer


class RewardFunction:
    """Reward function with scores from 0 to 1. OpenRLHF calls it in a separate thread with one completion at a time.

    Args:
        url: URL of the server.
        fallback: score of a completion without a verdict.
        use_label: whether to show the label to the judge as a known good answer.
        scorer: other fields of `Scorer`, such as `tools`, `rubric`, `deadline_s` or `api_key_file`.
    """

    def __init__(self, url: str, *, fallback: float = 0.0, use_label: bool = True, **scorer: Any) -> None:
        self._scorer = Scorer(url=url, **scorer)
        self._fallback = fallback
        self._use_label = use_label

    def __call__(self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any]) -> dict[str, Any]:
        """Return the reward of one completion: `rewards`, `scores` and `extra_logs`.

        Raises:
            RequestRefused: the server rejects the configuration, such as the key or the model.
        """
        (query,), (prompt,), (label,) = queries, prompts, labels
        reference = str(label) if label and self._use_label else None
        scored = asyncio.run(self._scorer.score_rendered(query, prompt=prompt, reference=reference))
        logs = scored.numbers(fallback=self._fallback)
        score = logs.pop("score")
        return {"rewards": score, "scores": score, "extra_logs": logs}


def agent_instance(url: str, *, fallback: float = 0.0, use_label: bool = True, **scorer: Any) -> type[Any]:
    """Return a subclass of `AgentInstanceBase` whose only step judges the answer.

    Args:
        url, fallback, use_label, scorer: as for `RewardFunction`.
    """
    from openrlhf.utils.agent import AgentInstanceBase

    judge = Scorer(url=url, **scorer)

    class AgentInstance(AgentInstanceBase):
        def __init__(self) -> None:
            pass

        async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            prompt, label = state_dict["observation_text"], state_dict["label"]
            text, reference = prompt + state_dict["action_text"], str(label) if label and use_label else None
            scored = await judge.score_rendered(text, prompt=prompt, reference=reference)
            logs = scored.numbers(fallback=fallback)
            score = logs.pop("score")
            # OpenRLHF calls `.item()` on the reward.
            return {
                "rewards": np.float64(score),
                "scores": score,
                "environment_feedback": "",
                "done": True,
                "extra_logs": logs,
            }

    return AgentInstance
