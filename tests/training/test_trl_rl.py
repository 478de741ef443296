"""Reinforcement learning with TRL: the real loop and sandbox, resuming a killed run, and rejected options."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.tiny import EOS, FixedCollector, made_up_groups, save_tiny, trajectory
from tirjudge.model import bundled_checkpoint
from tirjudge.types import Mode, StopReason
from tirjudge_sandbox import SandboxPool
from tirjudge_training.collector import Collector
from tirjudge_training.dapo import NonFiniteLoss
from tirjudge_training.groups import Collected, RolloutGroup
from tirjudge_training.policies import EmbeddedPolicy
from tirjudge_training.settings import RLSettings
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items
from tirjudge_training.trainers import TrainedStage
from tirjudge_training.trainers.trl.adapters import newest_checkpoint
from tirjudge_training.trainers.trl.options import check_version, grpo_config
from tirjudge_training.trainers.trl.rl import RLStage, rows_of
from tirjudge_training.training_samples import TrainingSample


def settings_of(**changes) -> RLSettings:
    base = {"group_size": 4, "prompts_per_step": 2, "per_device_batch": 4, "device": "cpu", "learning_rate": 1e-4}
    return RLSettings(**{**base, **changes})


class StillPolicy:
    """A policy for made-up rollouts. It records the versions of the loaded weights."""

    def __init__(self) -> None:
        self.version = -1
        self.versions: list[int] = []

    async def load(self, weights, *, version) -> None:
        self.version = version
        self.versions.append(version)


def train_made_up(
    start, folder, *, settings, num_steps, collector=None, log=None, validate=None, policy=None
) -> TrainedStage:
    groups = made_up_groups(num_groups=settings.prompts_per_step, group_size=settings.group_size)
    with asyncio.Runner() as runner:
        return RLStage(
            start=start,
            folder=folder,
            collector=collector or FixedCollector(groups),
            policy=policy or StillPolicy(),
            settings=settings,
            num_steps=num_steps,
            run=runner.run,
            on_step=lambda step, total, metrics: log is None or log.append({"step": step, **metrics}),
            keep=lambda step, rows: None,
            validate=validate,
            max_answer_tokens=99,
        ).train()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("start"))


def group_of(*rows: TrainingSample, fills: bool = False) -> RolloutGroup:
    return RolloutGroup(trajectories=rows, fills=fills)


# Rows -------------------------------------------------------------------------------------------------------------------


def test_rows_have_ids_masks_and_rewards_in_the_order_of_the_groups() -> None:
    one = trajectory(ids=[11, 12, EOS], mask=[1, 0, 1], reward=0.1, logprobs=[-1.0, 0.0, -2.0], prompt_ids=[5])
    two = trajectory(ids=[13, EOS], mask=[1, 1], reward=1.0, logprobs=[-3.0, -4.0], prompt_ids=[5])
    rows = rows_of([group_of(one, two)], settings=settings_of(), max_answer_tokens=99)
    assert rows == {
        "prompt_ids": [[5], [5]],
        "completion_ids": [[11, 12, EOS], [13, EOS]],
        "logprobs": [[-1.0, 0.0, -2.0], [-3.0, -4.0]],
        "env_mask": [[1, 0, 1], [1, 1]],
        "reward": [0.1, 1.0],
    }


def test_group_mean_weights_tokens_by_the_size_of_the_group() -> None:
    rows = [trajectory(ids=[11, 12, 13], mask=[1, 0, 1], reward=1.0), trajectory(ids=[11, 12], mask=[1, 1], reward=0.0)]
    found = rows_of([group_of(*rows)], settings=settings_of(normaliser="group_mean"), max_answer_tokens=99)
    assert found["env_mask"] == [[0.25, 0.0, 0.25], [0.25, 0.25]]


def test_filling_group_is_excluded_from_the_loss_even_if_its_rewards_differ() -> None:
    rows = [trajectory(ids=[11, EOS], mask=[1, 1], reward=reward) for reward in (0.1, 1.0)]
    found = rows_of([group_of(*rows, fills=True)], settings=settings_of(), max_answer_tokens=99)
    assert found["env_mask"] == [[0, 0], [0, 0]]


def test_overlong_rollout_is_excluded_from_the_loss_but_keeps_its_reward() -> None:
    cut = trajectory(ids=[11, 12], mask=[1, 1], reward=0.5, stop_reason=StopReason.LENGTH)
    masked = rows_of([group_of(cut)], settings=settings_of(overlong="mask"), max_answer_tokens=99)
    assert (masked["env_mask"], masked["reward"]) == ([[0, 0]], [0.5])
    kept = rows_of([group_of(cut)], settings=settings_of(overlong="none"), max_answer_tokens=99)
    assert (kept["env_mask"], kept["reward"]) == ([[1, 1]], [0.5])


def test_soft_penalty_reduces_the_reward() -> None:
    # Limit 100, buffer 20: (80 - 90) / 20 = -1/2. The 30 tokens of program output do not count.
    long = trajectory(ids=[11] * 120, mask=[1] * 60 + [0] * 30 + [1] * 30, reward=1.0)
    rows = rows_of(
        [group_of(long)], settings=settings_of(overlong="penalty", overlong_buffer_tokens=20), max_answer_tokens=100
    )
    assert rows["reward"] == [0.5]


def test_unmasked_observations_are_in_the_loss_with_unknown_logprobs() -> None:
    rows = rows_of(
        [group_of(trajectory(ids=[11, 12], mask=[1, 0], reward=1.0, logprobs=[-1.0, 0.0]))],
        settings=settings_of(mask_observations=False),
        max_answer_tokens=99,
    )
    assert rows["env_mask"] == [[1, 1]]
    assert rows["logprobs"][0][0] == -1.0
    assert math.isnan(rows["logprobs"][0][1])


# Options ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("use_bias_correction_kl", True),
        ("beta", 0.0),
        ("epsilon", 0.1),
        ("epsilon_high", None),
        ("delta", 3.0),
        ("loss_type", "grpo"),
        ("scale_rewards", "batch"),
        ("steps_per_generation", 4),
        ("gradient_accumulation_steps", 1),
        ("num_iterations", 2),
        ("num_generations", 2),
        ("top_p", 0.9),
        ("top_k", 20),
        ("min_p", 0.1),
        ("temperature", 0.7),
        ("repetition_penalty", 1.1),
        ("use_vllm", True),
        ("importance_sampling_level", "sequence"),
        ("mask_truncated_completions", True),
        ("top_entropy_quantile", 0.2),
        ("entropy_coef", 0.01),
        ("disable_dropout", False),
        ("sync_ref_model", True),
        ("bf16", True),
        ("max_grad_norm", 0.1),
        ("epislon", 0.2),
    ],
)
def test_options_that_change_the_equation_are_rejected(tmp_path, option, value) -> None:
    with pytest.raises(ValueError, match=rf"trl\.(\w+, trl\.)?{option}"):
        grpo_config(settings_of(trl={option: value}), folder=tmp_path, num_steps=1)


def test_option_that_keeps_the_equation_is_passed_to_trl(tmp_path) -> None:
    config = grpo_config(settings_of(trl={"adam_beta2": 0.95}), folder=tmp_path, num_steps=7)
    assert (config.adam_beta2, config.max_steps, config.beta, config.epsilon_high) == (0.95, 7, 0.01, 0.3)
    assert config.steps_per_generation == config.gradient_accumulation_steps == 2


def test_a_different_version_of_trl_is_rejected() -> None:
    check_version("1.16.0")
    with pytest.raises(ValueError, match=r"trl: got version 1\.17\.0; the adapters need 1\.16\.\*"):
        check_version("1.17.0")


def test_old_policy_engine_needs_masked_observations_and_temperature_1() -> None:
    with pytest.raises(ValueError, match="set old_policy to trainer"):
        settings_of(old_policy="engine", mask_observations=False)
    with pytest.raises(ValueError, match=r"temperature 0\.7"):
        settings_of(old_policy="engine", temperature=0.7)


def test_steps_are_derived_from_epochs_unless_given() -> None:
    assert settings_of(epochs=2).num_steps(num_prompts=3) == 3  # 6 prompts, 2 per step
    assert settings_of(epochs=1).num_steps(num_prompts=3) == 2
    assert settings_of(steps=9).num_steps(num_prompts=3) == 9


# Runs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_best_weights_have_the_best_validation(start, tmp_path) -> None:
    log: list[dict] = []
    scores = {1: 0.5, 2: 0.9, 3: 0.9, 4: 0.2}
    seen: list[int] = []

    def validate(policy):
        seen.append(policy.version)
        return {"val/acc": scores[policy.version]}

    policy = StillPolicy()
    trained = train_made_up(
        start, tmp_path, settings=settings_of(validate_every=1), num_steps=4, log=log, validate=validate, policy=policy
    )
    assert (trained.checkpoint, trained.step) == (tmp_path / "best", 2)
    assert seen == [1, 2, 3, 4]
    assert policy.versions == [0, 1, 2, 3, 4]  # each is loaded once, for both validation and the next collection
    assert [(row["step"], row["val/acc"]) for row in log if "val/acc" in row] == list(scores.items())
    best, last = (load_file(folder / "model.safetensors") for folder in (trained.checkpoint, tmp_path / "last"))
    assert not torch.equal(best["model.norm.weight"], last["model.norm.weight"])
    assert (trained.checkpoint / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()


@pytest.mark.slow
def test_step_of_filling_groups_does_not_change_the_weights(start, tmp_path) -> None:
    filling = [replace(group, fills=True) for group in made_up_groups(num_groups=2, group_size=4)]
    log: list[dict] = []
    trained = train_made_up(
        start,
        tmp_path,
        settings=settings_of(),
        num_steps=1,
        collector=FixedCollector(filling),
        log=log,
    )
    assert [row["train/loss"] for row in log if "train/loss" in row] == [0.0]
    before, after = (load_file(folder / "model.safetensors") for folder in (start, trained.checkpoint))
    for name, tensor in before.items():
        torch.testing.assert_close(after[name].float(), tensor.float(), atol=1e-6, rtol=0)


@pytest.mark.slow
def test_non_finite_loss_stops_training_and_keeps_the_last_good_checkpoint(start, tmp_path) -> None:
    good = made_up_groups(num_groups=2, group_size=4)
    rows = good[0].trajectories
    broken = replace(rows[0], logprobs=(float("nan"), *rows[0].logprobs[1:]))

    class Breaks(FixedCollector):
        async def collect(self, *, step, num_groups, rank=0):
            if step == 1:
                self.groups = (RolloutGroup(trajectories=(broken, *rows[1:])), good[1])
            return await super().collect(step=step, num_groups=num_groups, rank=rank)

    settings = settings_of(old_policy="engine", save_every=1)
    with pytest.raises(NonFiniteLoss, match=r"not finite at step 2; the last good checkpoint is .*checkpoint-1;"):
        train_made_up(start, tmp_path, settings=settings, num_steps=3, collector=Breaks(good))
    saved = load_file(tmp_path / "checkpoint-1" / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in saved.values())
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


def test_incomplete_checkpoint_is_not_resumed_from(tmp_path) -> None:
    for step, state in ((9, '{"global_step": 9}'), (10, '{"global_st'), (11, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-9"
    assert newest_checkpoint(tmp_path / "nothing") is None


class WithoutFilling(Collector):
    """A collector whose uninformative groups are in the loss, because the bundled judge is right in most groups."""

    async def collect(self, *, step: int, num_groups: int, rank: int = 0) -> Collected:
        collected = await super().collect(step=step, num_groups=num_groups, rank=rank)
        return replace(collected, groups=tuple(replace(group, fills=False) for group in collected.groups))


def train_for_real(
    folder: Path,
    *,
    settings: RLSettings,
    log: list,
    killed_at: int | None = None,
    collecting: type[Collector] = Collector,
) -> TrainedStage:
    """Train the bundled judge for three steps on generated items, with programs in a real sandbox."""
    mixture = Mixture()
    items = [
        *generate_items(Mode.PAIRWISE, count=4, seed=1, mixture=mixture),
        *generate_items(Mode.POINTWISE, count=2, seed=1, mixture=mixture),
    ]

    def keep(step: int, rows) -> None:
        log.append((step, [(t.item_id, t.number, t.weights_version, t.ids, t.mask) for t in rows]))
        if step == killed_at:
            raise KeyboardInterrupt

    async def opened():
        sandbox = await SandboxPool(slots=1).__aenter__()
        return sandbox, await EmbeddedPolicy(bundled_checkpoint(), sandbox=sandbox).__aenter__()

    with asyncio.Runner() as runner:
        sandbox, policy = runner.run(opened())
        try:
            return RLStage(
                start=bundled_checkpoint(),
                folder=folder,
                collector=collecting(
                    policy, items, group_size=4, seed=7, max_draws=2.0, temperature=settings.temperature
                ),
                policy=policy,
                settings=settings,
                num_steps=3,
                run=runner.run,
                on_step=lambda step, total, metrics: log.append({"step": step, **metrics}),
                keep=keep,
                max_answer_tokens=640,
            ).train()
        finally:
            runner.run(policy.__aexit__(None, None, None))
            runner.run(sandbox.__aexit__(None, None, None))


@pytest.mark.slow
def test_engine_and_trainer_agree_on_logprobs(tmp_path) -> None:
    log: list = []
    train_for_real(tmp_path, settings=settings_of(learning_rate=1e-5), log=log, collecting=WithoutFilling)
    gaps = [row["sync/dlogp_max"] for row in log if isinstance(row, dict)]
    assert len(gaps) == 3
    assert max(gaps) < 1e-4


@pytest.mark.slow
def test_resumed_run_reaches_the_same_weights(tmp_path) -> None:
    # At temperature 1, all rollouts of a group of the bundled judge are nearly equal.
    settings = settings_of(save_every=1, learning_rate=1e-5, temperature=1.8)
    whole: list = []
    straight = train_for_real(tmp_path / "straight", settings=settings, log=whole)
    rows = [row for row in whole if isinstance(row, dict)]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(math.isfinite(row["train/loss"]) and row["train/kl"] >= 0 for row in rows)
    assert rows[0]["train/kl"] == pytest.approx(0.0, abs=1e-7)
    assert {version for step, kept in (r for r in whole if isinstance(r, tuple)) for _, _, version, *_ in kept} == {
        0,
        1,
        2,
    }

    parts: list = []
    with pytest.raises(KeyboardInterrupt):
        train_for_real(tmp_path / "killed", settings=settings, log=parts, killed_at=3)
    resumed = train_for_real(tmp_path / "killed", settings=settings, log=parts)
    assert resumed.step == straight.step == 3
    kept_whole = dict(row for row in whole if isinstance(row, tuple))
    kept_parts = dict(row for row in parts if isinstance(row, tuple))
    assert kept_parts == kept_whole  # the same rollouts, token for token
    theirs, ours = (load_file(trained.checkpoint / "model.safetensors") for trained in (straight, resumed))
    began = load_file(bundled_checkpoint() / "model.safetensors")
    for name, tensor in theirs.items():
        # After a restart, rows are summed in a different order. A step changes weights by 3e-5.
        torch.testing.assert_close(tensor, ours[name], atol=1e-7, rtol=0.0)
    assert any(not torch.equal(tensor, began[name].float()) for name, tensor in theirs.items())


@pytest.mark.slow
def test_last_weights_are_taken_without_labels(start, tmp_path) -> None:
    stage = RLStage(
        start=start,
        folder=tmp_path,
        collector=FixedCollector(made_up_groups(num_groups=2, group_size=4)),
        policy=StillPolicy(),
        settings=settings_of(validate_every=1),
        num_steps=2,
        run=asyncio.run,
        on_step=lambda *_: None,
        keep=lambda step, rows: None,
        validate=lambda policy: {"val/acc": 1.0 - policy.version / 10},
        take_last=True,
        max_answer_tokens=99,
    )
    assert stage.train() == TrainedStage(checkpoint=tmp_path / "last", step=2)
