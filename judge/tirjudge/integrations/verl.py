"""Adapter for verl: a judge as a custom reward function, or with a reward manager.

    python -m verl.trainer.main_ppo ... \\
        reward.custom_reward_function.path=pkg://tirjudge.integrations.verl \\
        reward.custom_reward_function.name=compute_score \\
        +reward.custom_reward_function.reward_kwargs.url=http://judge:8400 \\
        +reward.custom_reward_function.reward_kwargs.fallback=0.0

The function needs the prompt. verl's agent loop passes it in `extra_info`. Without the agent loop, add it to the column
`extra_info` of the dataset under the key `prompt`, or use the reward manager, which takes it from the batch:

        reward.reward_manager.source=importlib reward.reward_manager.name=RewardManager \\
        reward.reward_manager.module.path=pkg://tirjudge.integrations.verl

verl does not support missing rewards, and an exception in a reward function ends the run. A completion without a
verdict gets the score `fallback`, and its `judge_failed` is 1.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tirjudge.integrations.scoring import Scorer, ScoringSample

if TYPE_CHECKING:
    RewardManager: type[Any]
    """Reward manager that passes `raw_prompt` of the batch to the custom reward function."""

PROMPT_KEYS = ("raw_prompt", "prompt", "question")
"""Keys of `extra_info` that may contain the prompt, in order of preference."""


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any] | None = None,
    *,
    url: str,
    fallback: float = 0.0,
    use_ground_truth: bool = True,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    **scorer: Any,
) -> dict[str, float]:
    """Return the reward of one completion: `score` (0 to 1), `judge_failed` and `tool_calls`.

    Args:
        data_source, solution_str, ground_truth, extra_info: arguments of verl.
        url: URL of the server.
        fallback: score of a completion without a verdict.
        use_ground_truth: whether to show `ground_truth` to the judge as a known good answer.
        reward_router_address, reward_model_tokenizer: arguments of verl for its own reward model; ignored.
        scorer: other fields of `Scorer`, such as `tools`, `deadline_s` or `api_key_file`. verl logs its configuration,
            so do not use `api_key`.

    Raises:
        RequestRefused: the server rejects the configuration, such as the key or the model.
        ValueError: `extra_info` has no prompt.
    """
    info = extra_info or {}
    prompt = next((info[key] for key in PROMPT_KEYS if info.get(key) is not None), None)
    if prompt is None:
        raise ValueError(f"extra_info: none of {', '.join(PROMPT_KEYS)} given; add one, or use the reward manager")
    reference = str(ground_truth) if use_ground_truth and ground_truth else None
    candidate = ScoringSample(prompt=prompt, response=solution_str, reference=reference)
    scored = await Scorer(url=url, **scorer).score_one(candidate)
    return scored.numbers(fallback=fallback)


def __getattr__(name: str) -> Any:
    if name == "RewardManager":
        return _reward_manager()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _reward_manager() -> type[Any]:
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    class RewardManager(NaiveRewardManager):
        async def run_single(self, data: Any) -> dict[str, Any]:
            last = data.non_tensor_batch
            last["extra_info"][-1]["raw_prompt"] = list(last["raw_prompt"][-1])
            return await super().run_single(data)

    RewardManager.__qualname__ = "RewardManager"
    return RewardManager
