"""Supervised learning on trajectories: labels, written files, and rejected options."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.training.tiny import EOS, made_up_groups, save_tiny, trajectory
from tirjudge_training.settings import SFTSettings
from tirjudge_training.trainers.trl.options import sft_config
from tirjudge_training.trainers.trl.rl import rows_of
from tirjudge_training.trainers.trl.sft import sft_row, train_sft


def settings_of(**changes) -> SFTSettings:
    base = {"batch": 4, "per_device_batch": 2, "device": "cpu", "learning_rate": 1e-2, "lr_scheduler": "constant"}
    return SFTSettings(**{**base, **changes})


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("start"))


def test_only_sampled_tokens_have_labels() -> None:
    row = sft_row(trajectory(ids=[11, 12, 13, EOS], mask=[1, 0, 1, 1], reward=1.0, prompt_ids=[5, 6]))
    assert row.ids == (5, 6, 11, 12, 13, EOS)
    assert row.labels == (-100, -100, 11, -100, 13, EOS)


def test_unmasked_observations_have_labels_and_prompt_tokens_have_no_labels() -> None:
    row = sft_row(trajectory(ids=[11, 12], mask=[1, 0], reward=1.0, prompt_ids=[5, 6]), mask_observations=False)
    assert row.labels == (-100, -100, 11, 12)


def test_loss_of_sft_and_rl_includes_the_same_tokens() -> None:
    from tirjudge_training.settings import RLSettings

    groups = made_up_groups(num_groups=3, group_size=4)
    rows = rows_of(groups, settings=RLSettings(group_size=4), max_answer_tokens=99)
    for number, one in enumerate(t for group in groups for t in group.trajectories):
        labels = sft_row(one).labels[len(one.prompt_ids) :]
        assert [int(label != -100) for label in labels] == rows["env_mask"][number]
        assert [i if m else -100 for i, m in zip(rows["completion_ids"][number], one.mask, strict=True)] == list(labels)


@pytest.mark.slow
def test_first_loss_is_the_mean_over_sampled_tokens_and_decreases(start, tmp_path) -> None:
    rows = [t for group in made_up_groups(num_groups=2, group_size=4) for t in group.trajectories]
    long = trajectory(ids=[11] * 60, mask=[1] * 60, reward=1.0)
    log: list[dict] = []
    trained = train_sft(
        [*rows[:4], long],
        start=start,
        folder=tmp_path / "sft",
        settings=settings_of(epochs=3, context_tokens=50, save_every=2),
        on_step=lambda step, total, metrics: log.append({"step": step, **metrics}),
    )
    last = trained.checkpoint
    assert trained.step == 3
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    total, count = 0.0, 0
    for row in map(sft_row, rows[:4]):
        with torch.no_grad():
            logprobs = model(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
        places = [i for i, label in enumerate(row.labels) if label != -100]
        total -= sum(logprobs[i - 1, row.labels[i]].item() for i in places)
        count += len(places)
    assert log[0]["train/loss"] == pytest.approx(total / count, abs=1e-4)
    assert [row["step"] for row in log] == [1, 2, 3]
    assert log[2]["train/loss"] < log[1]["train/loss"] < log[0]["train/loss"]
    assert (log[0]["sft/rows"], log[0]["sft/too_long"]) == (4, 1)
    assert (last / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    assert (last / "judge.json").read_bytes() == (start / "judge.json").read_bytes()
    written = load_file(last / "model.safetensors")
    assert not torch.equal(written["model.norm.weight"], load_file(start / "model.safetensors")["model.norm.weight"])
    assert json.loads((last / "config.json").read_text())["model_type"] == "qwen3"
    assert not list(tmp_path.glob("sft/.*"))


@pytest.mark.slow
def test_reported_number_of_steps_includes_partial_batches(start, tmp_path) -> None:
    rows = [t for group in made_up_groups(num_groups=2, group_size=3) for t in group.trajectories]  # 6 rows, 4 per step
    settings, log = settings_of(epochs=3, save_every=99), []
    train_sft(rows, start=start, folder=tmp_path, settings=settings, on_step=lambda *values: log.append(values))
    assert [values[:2] for values in log] == [(step, 6) for step in range(1, 7)]


def test_trajectories_that_are_all_too_long_are_rejected(start, tmp_path) -> None:
    rows = [trajectory(ids=[11] * 60, mask=[1] * 60, reward=1.0)]
    with pytest.raises(ValueError, match="all 1 are longer than context_tokens 50"):
        train_sft(rows, start=start, folder=tmp_path, settings=settings_of(context_tokens=50), on_step=lambda *_: None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("packing", True),
        ("max_length", 1024),
        ("completion_only_loss", True),
        ("assistant_only_loss", True),
        ("loss_type", "dft"),
        ("neftune_noise_alpha", 5.0),
        ("bf16", True),
    ],
)
def test_options_that_change_the_loss_are_rejected(tmp_path, option, value) -> None:
    with pytest.raises(ValueError, match=f"trl.{option}"):
        sft_config(settings_of(trl={option: value}), folder=tmp_path)


def test_unknown_option_of_trl_is_rejected(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"trl\.pakcing: unknown option of SFTConfig in TRL 1\.16\.\*"):
        sft_config(settings_of(trl={"pakcing": True}), folder=tmp_path)


def test_batch_that_does_not_divide_evenly_is_rejected() -> None:
    with pytest.raises(ValueError, match="per_device_batch: 3 on 1 process"):
        settings_of(per_device_batch=3).grad_accumulation(sequences=4, num_processes=1)
    assert math.isclose(settings_of().grad_accumulation(sequences=8, num_processes=2), 2)
