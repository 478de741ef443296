"""verl 0.9.1 in a separate environment: it computes the same loss, reads the options, and runs the agent loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.verl_environment import verl_python
from tirjudge.model import bundled_checkpoint
from tirjudge.types import ChatMessage, Mode
from tirjudge_training.config import parse_recipe
from tirjudge_training.items import TrainingItem
from tirjudge_training.rewards import RewardRule
from tirjudge_training.settings import RLSettings
from tirjudge_training.trainers import TRAINERS, StageJob
from tirjudge_training.trainers.verl.data import LoopSettings, item_of, verl_rows, write_verl_dataset
from tirjudge_training.trainers.verl.launch import (
    MetricsFile,
    VerlError,
    last_checkpoint,
    train_with_verl,
    verl_command,
)
from tirjudge_training.trainers.verl.options import check_options, check_settings, hydra_arguments, requirements
from tirjudge_training.training_data import TrainingData

RL = RLSettings()


@pytest.fixture(scope="module")
def inside(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of `verl_inside.py`."""
    assert pytestconfig.cache is not None
    python = verl_python(pytestconfig.cache.mkdir("environments"))
    folder = tmp_path_factory.mktemp("verl")
    env = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HOME": str(folder / "hf")}
    script = Path(__file__).with_name("verl_inside.py")
    # The loggers of hydra and omegaconf warn about each other's versions.
    command = [str(python), "-W", "ignore", str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# Losses -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verl_computes_the_same_loss(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert losses["verl"] == pytest.approx(losses["ours"], abs=1e-5)
    assert losses["verl_kl"] == pytest.approx(losses["ours_kl"], abs=1e-5)
    assert losses["ours_kl"] > 0.01  # the comparison of the KL is not trivial


@pytest.mark.slow
def test_verl_computes_the_same_gradient_and_it_is_0_where_the_mask_is_0(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert losses["gradient_difference"] < 1e-7
    assert losses["gradient_largest"] > 1e-3
    assert losses["gradient_where_masked"] == 0.0


@pytest.mark.slow
def test_dual_clip_of_verl_changes_the_loss(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert abs(losses["with_dual_clip"] - losses["ours"]) > 1e-3


@pytest.mark.slow
def test_group_advantages_match_verl(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert losses["advantages"] == pytest.approx(losses["verl_advantages"], abs=1e-6)
    # TRL divides by the standard deviation + 1e-4, verl + 1e-6: for 0, 1, 1, 1 these are -.75 / .5001 and -.75 / .500001
    assert losses["advantages_trl"][0] == pytest.approx(-0.75 / 0.5001, abs=1e-6)
    assert losses["verl_advantages"][0] == pytest.approx(-0.75 / 0.500001, abs=1e-6)


# Options ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_listed_defaults_match_verl(inside: dict[str, Any]) -> None:
    named = {one.option: one.default for one in requirements(RL)}
    assert inside["options"]["defaults"] == named


@pytest.mark.slow
def test_verl_reads_the_required_values_from_the_command_line(inside: dict[str, Any]) -> None:
    rl = RLSettings(group_size=4, prompts_per_step=16, temperature=2.0)
    assert inside["options"]["read"] == {one.option: one.needed for one in requirements(rl)}
    assert (inside["options"]["critic"], inside["options"]["reference"]) == (False, True)  # verl's check passed too
    others = inside["options"]["others"]
    assert others["data.train_files"].endswith("train.parquet")
    assert "hf_model" in others["actor_rollout_ref.actor.checkpoint.save_contents"]
    assert others["trainer.total_training_steps"] is None


@pytest.mark.parametrize(
    ("key", "found", "message"),
    [
        ("actor_rollout_ref.actor.clip_ratio_c", 3.0, "expected 1000000000.0, got 3.0: Eq. 2 has no third clip"),
        ("actor_rollout_ref.actor.clip_ratio_high", 0.2, "expected 0.3, got 0.2"),
        ("actor_rollout_ref.actor.kl_loss_type", "low_var_kl+", "expected 'low_var_kl', got 'low_var_kl+': it is k3"),
        (
            "actor_rollout_ref.actor.use_kl_loss",
            False,
            "expected True, got False: the KL to the reference is part of Eq. 2",
        ),
        ("actor_rollout_ref.actor.loss_agg_mode", "seq-mean-token-mean", "expected 'token-mean', got"),
        ("actor_rollout_ref.actor.entropy_coeff", 0.001, "Eq. 2 has no entropy term"),
        ("algorithm.filter_groups.metric", "reward", "expected 'acc', got"),
        ("algorithm.norm_adv_by_std_in_grpo", False, "expected True, got"),
        ("+algorithm.rollout_correction.rollout_is", "token", "expected None, got"),
        ("actor_rollout_ref.rollout.temperature", 0.7, "expected 1.0, got"),
        ("~algorithm.norm_adv_by_std_in_grpo", True, "expected True, got"),
        ("actor_rollout_ref.actor", {"entropy_coeff": 0}, "contains the checked option"),
        ("actor@actor_rollout_ref.actor", "megatron_actor", "config groups are not supported"),
    ],
)
def test_option_that_changes_the_equation_is_rejected(key: str, found: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_options({key: found}, rl=RL)
    assert str(refused.value).startswith(f"verl.options.{key}: ")
    assert message in str(refused.value)


def test_options_that_keep_the_equation_are_accepted() -> None:
    check_options(
        {
            "actor_rollout_ref.actor.clip_ratio_c": 1e10,
            "actor_rollout_ref.actor.ppo_epochs": 1.0,
            "actor_rollout_ref.rollout.gpu_memory_utilization": 0.8,
        },
        rl=RL,
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"normaliser": "group_mean"}, "rl.normaliser: 'group_mean' given, but verl needs 'token_mean'"),
        ({"old_policy": "engine"}, "rl.old_policy: 'engine' given"),
        ({"difficulty": True}, "rl.difficulty: True given, but verl needs False"),
        ({"lr_scheduler": "linear"}, "rl.lr_scheduler: 'linear' given"),
        ({"trl": {"beta": 0.1}}, "rl.trl: "),
    ],
)
def test_unsupported_setting_is_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"verl needs ") as refused:
        requirements(RLSettings(**changed))
    assert str(refused.value).startswith(message)


def test_cross_credit_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"reward\.pair_credit: 'cross' given, but verl needs 'index'"):
        check_settings(RL, rule=RewardRule(pair_credit="cross"))


def test_values_are_formatted_for_hydra() -> None:
    options = {"a": "it's a=b", "b": None, "c": [1, "x"], "d": True, "e": 1e-6, "f": {"g": 0.5}}
    assert hydra_arguments(options) == ["a='it\\'s a=b'", "b=null", "c=[1,'x']", "d=true", "e=1e-06", "f={g:0.5}"]


# Data -------------------------------------------------------------------------------------------------------------------

ITEM = TrainingItem(
    id="a",
    mode=Mode.PAIRWISE,
    prompt=(ChatMessage(role="user", content="Which?"),),
    responses=("this", "that"),
    best=1,
    task="math",
    source="here",
    verifiable=True,
    order=(1, 0),
)


def test_item_survives_a_round_trip_through_a_row() -> None:
    (row,) = verl_rows([ITEM])
    assert item_of(row["extra_info"]) == ITEM
    assert row["data_source"] == "math/pairwise"
    assert row["prompt"] == [{"role": "user", "content": "Which?"}]


def test_row_without_an_item_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"extra_info: contains no item .* write_verl_dataset"):
        item_of({"index": 3})


def test_item_without_a_label_is_not_written(tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match=r'item "a": has no label \(best is null\)'):
        write_verl_dataset([replace(ITEM, best=None)], tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


# Starting verl ----------------------------------------------------------------------------------------------------------


def test_missing_verl_is_a_one_line_error() -> None:
    recipe = parse_recipe({"trainer": "verl"}, source="test")
    with pytest.raises(ValueError, match=r"trainer: verl given, but verl, .* cannot be imported here; run: pip") as no:
        TRAINERS["verl"].check(recipe, kind="rl", without_labels=False)
    assert "\n" not in str(no.value)


def test_failed_process_is_reported_with_its_log(tmp_path: Path) -> None:
    # This launches the real command, which fails because verl is not installed.
    folder = tmp_path / "rl"
    recipe = parse_recipe({"trainer": "verl", "sandbox": {"allow_unsafe": True}}, source="test")
    job = StageJob(recipe=recipe, kind="rl", name="rl-1", run=tmp_path, start=bundled_checkpoint(), folder=folder)
    lines: list[str] = []
    with pytest.raises(VerlError, match=r"verl ended with status 1; see .*verl\.log for the reason"):
        train_with_verl(
            job, data=TrainingData(train=(ITEM,), held_out=(ITEM,)), on_step=lambda *_: None, log=lines.append
        )
    assert any("No module named" in line for line in lines)
    assert (folder / "verl.log").read_text().splitlines() == lines
    assert {path.name for path in folder.glob("*.parquet")} == {"train.parquet", "validation.parquet"}
    (entry,) = json.loads((folder / "loop.yaml").read_text())
    settings = LoopSettings.model_validate(entry["settings"])
    assert (settings.profile.name, settings.seed, settings.allow_unsafe) == ("tirjudge-tiny", job.seed, True)


def test_command_is_the_main_module_of_verl(tmp_path: Path) -> None:
    assert verl_command({"a": 1}) == [sys.executable, "-m", "verl.trainer.main_ppo", "a=1"]


def test_last_checkpoint_is_read_from_the_tracker_file(tmp_path: Path) -> None:
    with pytest.raises(VerlError, match="verl wrote no checkpoint"):
        last_checkpoint(tmp_path)
    weights = tmp_path / "checkpoints" / "global_step_20" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("20")
    with pytest.raises(VerlError, match="no weights found"):
        last_checkpoint(tmp_path)
    (weights / "model.safetensors").touch()
    trained = last_checkpoint(tmp_path)
    assert (trained.checkpoint, trained.step) == (weights, 20)


def test_new_lines_of_the_metrics_file_are_read_and_renamed(tmp_path: Path) -> None:
    rows: list[Any] = []
    file = MetricsFile(tmp_path / "verl-000.jsonl", record=lambda step, metrics: rows.append((step, metrics)))
    file.read()
    first = {"step": 1, "data": {"critic/score/mean": 0.5, "actor/kl_loss": 0.01, "perf/mfu/actor": 0.4}}
    second = {"step": 2, "data": {"val-core/math/pairwise/acc/mean@1": 0.75}}
    file.path.write_text(json.dumps(first) + "\n" + json.dumps(second)[:20])
    file.read()
    assert rows == [(1, {"reward/total": 0.5, "train/kl": 0.01})]
    file.path.write_text(json.dumps(first) + "\n" + json.dumps(second) + "\n")
    file.read()
    assert rows[1:] == [(2, {"val/acc/math/pairwise": 0.75})]


# The agent loop in verl's worker ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_of_verl_gets_the_rollouts_of_the_judge(inside: dict[str, Any]) -> None:
    outputs = [output for session in inside["sessions"] for output in session]
    for output in outputs:
        for name in ("prompt_ids", "ids", "stop_reason"):
            assert output[name] == output["direct"][name]
        assert output["logprobs"] == pytest.approx(output["direct"]["logprobs"], abs=1e-4)
    assert len({tuple(output["ids"]) for output in outputs}) > len(outputs) // 2  # not all rollouts are equal


@pytest.mark.slow
def test_mask_is_0_exactly_on_program_outputs(inside: dict[str, Any]) -> None:
    num_calls = 0
    for output in (output for session in inside["sessions"] for output in session):
        assert len(output["ids"]) == len(output["mask"]) == len(output["logprobs"])
        expected = [bit for written, printed in output["direct"]["turns"] for bit in [1] * written + [0] * printed]
        if output["stop_reason"] == "length":  # `overlong: mask`
            expected = [0] * len(expected)
        assert output["mask"] == expected
        num_calls += output["direct"]["calls"]
    assert num_calls > 0  # otherwise no output would be masked


@pytest.mark.slow
def test_pointwise_item_is_one_session_with_two_outputs_and_one_reward(inside: dict[str, Any]) -> None:
    sizes = {session[0]["item_id"]: len(session) for session in inside["sessions"]}
    assert sizes == {"pair": 1, "point": 2, "list": 1}
    for session in (session for session in inside["sessions"] if len(session) == 2):
        assert {tuple(output["shown"]) for output in session} == {(0,), (1,)}
        assert len({output["score"] for output in session}) == 1
        scores = {tuple(output["shown"]): output["direct"]["label"] for output in session}
        right = None not in scores.values() and float(scores[1,]) > float(scores[0,])
        assert session[0]["reward_extra_info"]["acc"] == float(right)


@pytest.mark.slow
def test_score_is_the_reward_at_the_last_token(inside: dict[str, Any]) -> None:
    for session in inside["sessions"]:
        parts = session[0]["reward_extra_info"]
        expected = parts["acc"] * (1.0 if parts["Rf"] and parts["Rt"] else 0.1)  # Eq. 4
        for output in session:
            assert output["score"] == pytest.approx(expected)
            assert output["last_score"] == pytest.approx(expected)
            assert output["scores_elsewhere"] == 0.0
            assert output["reward_extra_info"] == parts
            assert output["versions"] == [7, 7]
            assert output["num_turns"] == 1 + len(output["direct"]["turns"]) + output["direct"]["calls"]
    assert len({session[0]["score"] for session in inside["sessions"]}) > 1
