"""The adapter in TRL's own trainer: the method that computes rewards, and one training step."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integrations.conftest import Serve
from tirjudge.client import RequestRefused
from tirjudge.integrations.trl import TRLJudgeReward

PROMPT = [{"role": "user", "content": "What is 2 + 2?"}]
COMPLETION = [{"role": "assistant", "content": "It is 4."}]


class Trainer:
    """The parts of a `GRPOTrainer` that its method for computing rewards uses."""

    def __init__(self, *reward_funcs: Any, trainers: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.trainers = trainers
        self.accelerator = SimpleNamespace(device="cpu", is_main_process=False, gather=lambda rewards: rewards)
        self.args = SimpleNamespace(report_to=[])
        self.state = SimpleNamespace(global_step=0)
        self.reward_funcs = list(reward_funcs)
        self.reward_processing_classes = [None] * len(reward_funcs)
        self.reward_func_names = [trainers.get_callable_name(function) for function in reward_funcs]
        self.environments = None
        self.async_loop = loop
        self._metrics = {"train": {}}
        self.model = SimpleNamespace(training=True)
        self.metrics: dict[str, float] = {}
        self.columns: dict[str, list[Any]] = {}
        self._log_metric = self.metrics.__setitem__
        self._log_completion_extra = self.columns.__setitem__

    def rewards(self, num: int, **columns: str) -> list[list[float]]:
        """Return the reward of each completion by each function."""
        inputs = [{"prompt": PROMPT, **columns}] * num
        pytest.importorskip("accelerate").PartialState(cpu=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.trainers, "gather", lambda rewards: rewards)
            calculate = self.trainers.GRPOTrainer._calculate_rewards.__wrapped__
            return calculate(self, inputs, [PROMPT] * num, [COMPLETION] * num, [[1]] * num).tolist()


@pytest.fixture(scope="module")
def trainers() -> Any:
    """TRL's module. It is imported late, because TRL takes seconds to import."""
    return pytest.importorskip("trl.trainer.grpo_trainer", reason="trl is not installed")


@pytest.fixture
def make_trainer(trainers: Any, loop: asyncio.AbstractEventLoop) -> Callable[..., Trainer]:
    return partial(Trainer, trainers=trainers, loop=loop)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a separate thread, as in TRL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_the_function_returns_rewards_and_none_for_a_missing_verdict(serve: Serve) -> None:
    def output_of(sequence: str) -> str:
        runs_program = "It is 4." in sequence and "\n42\n```" not in sequence
        return "```python\nprint(6 * 7)\n```\n```output" if runs_program else "<score>9</score>"

    metrics: dict[str, float] = {}
    with serve(output_of, sandbox="real") as served:  # tools="on": a verdict counts only if a program ran
        function = TRLJudgeReward(served.url, tools="on")
        rewards = await function([PROMPT] * 2, [COMPLETION, "5"], log_metric=metrics.__setitem__)
    assert rewards == [pytest.approx(8 / 9), None]
    assert metrics == {"judge/abstained": 0.5, "judge/tool_calls": 0.5}


@pytest.mark.slow
def test_rewards_reach_the_trainer(serve: Serve, make_trainer: Callable[..., Trainer]) -> None:
    with serve("<score>9</score>") as served:
        trainer = make_trainer(TRLJudgeReward(served.url, tools="off", reference_column="solution"))
        assert trainer.rewards(3, solution="four") == [[pytest.approx(8 / 9)]] * 3
        assert all("What is 2 + 2?" in prompt and "four" in prompt for prompt in served.prompts)
    assert trainer.reward_func_names == ["JudgeReward"]
    assert trainer.metrics == {"judge/abstained": 0.0, "judge/tool_calls": 0.0}
    assert [value.startswith("jdg_") for value in trainer.columns["judgment"]] == [True] * 3


@pytest.mark.slow
def test_an_abstention_is_nan_and_other_rewards_are_kept(serve: Serve, make_trainer: Callable[..., Trainer]) -> None:
    def length(completions: list[Any], **columns: Any) -> list[float]:
        return [1.0] * len(completions)

    with serve("<score>9</score>", sandbox="real") as served:
        trainer = make_trainer(TRLJudgeReward(served.url, tools="on"), length)
        ((judged, other),) = trainer.rewards(1)
    assert math.isnan(judged)
    assert other == 1.0
    assert trainer.metrics["judge/abstained"] == 1.0
    assert trainer.columns["judgment"] == ["abstained: no_program_ran"]


@pytest.mark.slow
def test_an_unreachable_server_is_an_abstention(nowhere: str, make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(TRLJudgeReward(nowhere, deadline_s=0.2))
    assert all(math.isnan(judged) for (judged,) in trainer.rewards(4))
    assert trainer.metrics["judge/abstained"] == 1.0


@pytest.mark.slow
def test_a_configuration_error_ends_the_run(serve: Serve, make_trainer: Callable[..., Trainer]) -> None:
    with serve("<score>9</score>") as served, pytest.raises(RequestRefused, match="no-such-model"):
        make_trainer(TRLJudgeReward(served.url, tools="off", model="no-such-model")).rewards(2)


@pytest.mark.slow
def test_completions_of_a_prompt_can_be_compared(serve: Serve, make_trainer: Callable[..., Trainer]) -> None:
    with serve("<preference>A</preference>", label_probs={"A": 0.75, "B": 0.25}) as served:
        trainer = make_trainer(TRLJudgeReward(served.url, tools="off", strategy="circular"))
        assert trainer.rewards(2) == [[0.5], [0.5]], "equal texts have equal rewards"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_training_step_gets_rewards_from_the_server(
    trainers: Any, serve: Serve, random_checkpoint: Path, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(random_checkpoint / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|im_start|>"
    )
    model = Qwen3ForCausalLM.from_pretrained(random_checkpoint)
    arguments = trainers.GRPOConfig(
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=4,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
    )
    rows = datasets.Dataset.from_list([{"prompt": "What is 2 + 2?"}] * 2)
    with serve("<score>9</score>") as served:
        trainer = trainers.GRPOTrainer(
            model=model,
            reward_funcs=TRLJudgeReward(served.url, tools="off"),
            args=arguments,
            train_dataset=rows,
            processing_class=tokenizer,
        )
        trainer.train()
    logged = [entry for entry in trainer.state.log_history if "rewards/JudgeReward/mean" in entry]
    assert logged[0]["rewards/JudgeReward/mean"] == pytest.approx(8 / 9)
    assert logged[0]["judge/abstained"] == 0.0
