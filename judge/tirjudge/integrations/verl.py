"""verl: a server's judge as the reward of a run, as a custom reward function or with a reward manager.

    python -m verl.trainer.main_ppo ... \\
        reward.custom_reward_function.path=pkg://tirjudge.integrations.verl \\
        reward.custom_reward_function.name=compute_score \\
        +reward.custom_reward_function.reward_kwargs.url=http://judge:8400 \\
        +reward.custom_reward_function.reward_kwargs.fallback=0.0

The function needs the prompt. verl's agent loop passes it on; where it does not, put it into the column `extra_info` of the
data set, as `prompt`, or use the manager, which takes it from the batch:

        reward.reward_manager.source=importlib reward.reward_manager.name=RewardManager \\
        reward.reward_manager.module.path=pkg://tirjudge.integrations.verl

verl knows no abstention, and ends when a reward function raises: a completion without a verdict gets `fallback`, and its
`judge_failed` is 1.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tirjudge.integrations.scoring import Scorer, ScoringSample

if TYPE_CHECKING:
    RewardManager: type[Any]
    """Reads the prompt from `raw_prompt` of the batch, and asks the custom reward function."""

PROMPT_KEYS = ("raw_prompt", "prompt", "question")
"""Where the prompt may be in `extra_info`, in the order in which they are tried."""


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
    """The reward of one completion, with the same keys for all: `score` (0 to 1), `judge_failed` and `tool_calls`.

    Args:
        data_source, solution_str, ground_truth, extra_info: what verl calls it with.
        url: of the server.
        fallback: the score where there is no verdict.
        use_ground_truth: whether the judge is shown `ground_truth` as an answer known to be good.
        reward_router_address, reward_model_tokenizer: of verl's own reward model, not used.
        scorer: other fields of `Scorer`, such as `tools`, `deadline_s` or `api_key_file` (verl logs its configuration).

    Raises:
        RequestRefused: the set-up is at fault.
        ValueError: the prompt is not there.
    """
    known = extra_info or {}
    prompt = next((known[key] for key in PROMPT_KEYS if known.get(key) is not None), None)
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
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager  # pyright: ignore

    class RewardManager(NaiveRewardManager):
        async def run_single(self, data: Any) -> dict[str, Any]:
            last = data.non_tensor_batch
            last["extra_info"][-1]["raw_prompt"] = list(last["raw_prompt"][-1])
            return await super().run_single(data)

    RewardManager.__qualname__ = "RewardManager"
    return RewardManager
