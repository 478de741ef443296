"""verl 0.9.1 itself, in an environment of its own: what it computes is ours, what we tell it is read, our loop runs in it."""

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
    """What `verl_inside.py` saw."""
    assert pytestconfig.cache is not None
    python = verl_python(pytestconfig.cache.mkdir("environments"))
    folder = tmp_path_factory.mktemp("verl")
    env = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HOME": str(folder / "hf")}
    script = Path(__file__).with_name("verl_inside.py")
    # The loggers of hydra and omegaconf warn of each other's versions.
    command = [str(python), "-W", "ignore", str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# verl's arithmetic ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verl_computes_our_loss_with_our_options(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert losses["verl"] == pytest.approx(losses["ours"], abs=1e-5)
    assert losses["verl_kl"] == pytest.approx(losses["ours_kl"], abs=1e-5)
    assert losses["ours_kl"] > 0.01  # there is a KL to agree on


@pytest.mark.slow
def test_verl_has_our_gradient_and_none_where_the_mask_is_0(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert losses["gradient_difference"] < 1e-7
    assert losses["gradient_largest"] > 1e-3
    assert losses["gradient_where_masked"] == 0.0


@pytest.mark.slow
def test_verls_own_dual_clip_would_have_changed_the_loss(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert abs(losses["with_dual_clip"] - losses["ours"]) > 1e-3


@pytest.mark.slow
def test_group_advantages_are_verls(inside: dict[str, Any]) -> None:
    losses = inside["losses"]
    assert losses["advantages"] == pytest.approx(losses["verl_advantages"], abs=1e-6)
    # TRL divides by the deviation + 1e-4, verl by it + 1e-6: for 0, 1, 1, 1 that is -.75 / .5001 and -.75 / .500001
    assert losses["advantages_trl"][0] == pytest.approx(-0.75 / 0.5001, abs=1e-6)
    assert losses["verl_advantages"][0] == pytest.approx(-0.75 / 0.500001, abs=1e-6)


# verl's options ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_defaults_that_we_name_are_verls(inside: dict[str, Any]) -> None:
    named = {one.option: one.default for one in requirements(RL)}
    assert inside["options"]["defaults"] == named


@pytest.mark.slow
def test_verl_reads_from_our_command_line_what_is_needed(inside: dict[str, Any]) -> None:
    rl = RLSettings(group_size=4, prompts_per_step=16, temperature=1.5)
    assert inside["options"]["read"] == {one.option: one.needed for one in requirements(rl)}
    assert (inside["options"]["critic"], inside["options"]["reference"]) == (False, True)  # its own check passed too
    others = inside["options"]["others"]
    assert others["data.train_files"].endswith("train.parquet")
    assert "hf_model" in others["actor_rollout_ref.actor.checkpoint.save_contents"]
    assert others["trainer.total_training_steps"] is None


@pytest.mark.parametrize(
    ("key", "found", "said"),
    [
        ("actor_rollout_ref.actor.clip_ratio_c", 3.0, "3.0 found, 1000000000.0 needed: Eq. 2 has no third clip"),
        ("actor_rollout_ref.actor.clip_ratio_high", 0.2, "0.2 found, 0.3 needed"),
        ("actor_rollout_ref.actor.kl_loss_type", "low_var_kl+", "'low_var_kl' needed: it is k3"),
        ("actor_rollout_ref.actor.use_kl_loss", False, "True needed: the KL to the reference is part of Eq. 2"),
        ("actor_rollout_ref.actor.loss_agg_mode", "seq-mean-token-mean", "'token-mean' needed"),
        ("actor_rollout_ref.actor.entropy_coeff", 0.001, "Eq. 2 has no entropy term"),
        ("algorithm.filter_groups.metric", "reward", "'acc' needed"),
        ("algorithm.norm_adv_by_std_in_grpo", False, "True needed"),
        ("+algorithm.rollout_correction.rollout_is", "token", "None needed"),
        ("actor_rollout_ref.rollout.temperature", 0.7, "1.0 needed"),
        ("~algorithm.norm_adv_by_std_in_grpo", True, "True needed"),
        ("actor_rollout_ref.actor", {"entropy_coeff": 0}, "replacing all of it is refused"),
        ("actor@actor_rollout_ref.actor", "megatron_actor", "config groups are not checked"),
    ],
)
def test_an_option_that_changes_the_equation_is_refused(key: str, found: Any, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_options({key: found}, rl=RL)
    assert str(refused.value).startswith(f"verl.options.{key}: ")
    assert said in str(refused.value)


def test_options_that_change_nothing_of_it_pass() -> None:
    check_options(
        {
            "actor_rollout_ref.actor.clip_ratio_c": 1e10,
            "actor_rollout_ref.actor.ppo_epochs": 1.0,
            "actor_rollout_ref.rollout.gpu_memory_utilization": 0.8,
        },
        rl=RL,
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"normaliser": "group_mean"}, "rl.normaliser: 'group_mean' given, verl needs 'token_mean'"),
        ({"old_policy": "engine"}, "rl.old_policy: 'engine' given"),
        ({"difficulty": True}, "rl.difficulty: True given, verl needs False"),
        ({"lr_scheduler": "linear"}, "rl.lr_scheduler: 'linear' given"),
        ({"trl": {"beta": 0.1}}, "rl.trl: "),
    ],
)
def test_a_setting_that_verl_cannot_follow_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=r"verl needs ") as refused:
        requirements(RLSettings(**changed))
    assert str(refused.value).startswith(said)


def test_cross_credit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reward\.pair_credit: 'cross' given, verl needs 'index'"):
        check_settings(RL, rule=RewardRule(pair_credit="cross"))


def test_values_are_spelled_for_hydra() -> None:
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


def test_an_item_comes_back_from_its_row() -> None:
    (row,) = verl_rows([ITEM])
    assert item_of(row["extra_info"]) == ITEM
    assert row["data_source"] == "math/pairwise"
    assert row["prompt"] == [{"role": "user", "content": "Which?"}]


def test_a_row_without_an_item_says_what_would_do() -> None:
    with pytest.raises(ValueError, match=r"extra_info: no item in it .* write_verl_dataset"):
        item_of({"index": 3})


def test_an_item_without_a_label_is_not_written(tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(ValueError, match=r'item "a": best is null'):
        write_verl_dataset([replace(ITEM, best=None)], tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


# Starting it ------------------------------------------------------------------------------------------------------------


def test_without_verl_one_line_says_so() -> None:
    recipe = parse_recipe({"trainer": "verl"}, source="test")
    with pytest.raises(ValueError, match=r"trainer: verl given, but verl, .* cannot be imported here; run: pip") as no:
        TRAINERS["verl"].check(recipe, kind="rl", without_labels=False)
    assert "\n" not in str(no.value)


def test_a_process_that_fails_is_reported_with_its_log(tmp_path: Path) -> None:
    # The real launch of the real command; here no package `verl` is found by it.
    folder = tmp_path / "rl"
    recipe = parse_recipe({"trainer": "verl", "sandbox": {"allow_unsafe": True}}, source="test")
    job = StageJob(recipe=recipe, kind="rl", name="rl-1", run=tmp_path, start=bundled_checkpoint(), folder=folder)
    lines: list[str] = []
    with pytest.raises(VerlError, match=r"verl ended with status 1; .*verl\.log says why"):
        train_with_verl(
            job, data=TrainingData(train=(ITEM,), held_out=(ITEM,)), on_step=lambda *_: None, log=lines.append
        )
    assert any("No module named" in line for line in lines)
    assert (folder / "verl.log").read_text().splitlines() == lines
    assert {path.name for path in folder.glob("*.parquet")} == {"train.parquet", "validation.parquet"}
    (entry,) = json.loads((folder / "loop.yaml").read_text())
    settings = LoopSettings.model_validate(entry["settings"])
    assert (settings.profile.name, settings.seed, settings.allow_unsafe) == ("tirjudge-tiny", job.seed, True)


def test_the_command_is_verls_main(tmp_path: Path) -> None:
    assert verl_command({"a": 1}) == [sys.executable, "-m", "verl.trainer.main_ppo", "a=1"]


def test_the_last_checkpoint_is_the_one_that_verl_names(tmp_path: Path) -> None:
    with pytest.raises(VerlError, match="verl left no checkpoint"):
        last_checkpoint(tmp_path)
    weights = tmp_path / "checkpoints" / "global_step_20" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("20")
    with pytest.raises(VerlError, match="no weights in it"):
        last_checkpoint(tmp_path)
    (weights / "model.safetensors").touch()
    trained = last_checkpoint(tmp_path)
    assert (trained.checkpoint, trained.step) == (weights, 20)


def test_metrics_are_followed_line_by_line_under_our_names(tmp_path: Path) -> None:
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


# Our loop in verl's worker ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_verls_worker_gets_the_rollouts_of_the_judge(inside: dict[str, Any]) -> None:
    outputs = [output for session in inside["sessions"] for output in session]
    for output in outputs:
        for name in ("prompt_ids", "ids", "stop_reason"):
            assert output[name] == output["direct"][name]
        assert output["logprobs"] == pytest.approx(output["direct"]["logprobs"], abs=1e-5)
    assert len({tuple(output["ids"]) for output in outputs}) > len(outputs) // 2  # they are not all one


@pytest.mark.slow
def test_the_mask_is_0_exactly_on_what_programs_printed(inside: dict[str, Any]) -> None:
    num_calls = 0
    for output in (output for session in inside["sessions"] for output in session):
        assert len(output["ids"]) == len(output["mask"]) == len(output["logprobs"])
        expected = [bit for written, printed in output["direct"]["turns"] for bit in [1] * written + [0] * printed]
        if output["stop_reason"] == "length":  # `overlong: mask`
            expected = [0] * len(expected)
        assert output["mask"] == expected
        num_calls += output["direct"]["calls"]
    assert num_calls > 0  # or there would be nothing to mask


@pytest.mark.slow
def test_a_pointwise_item_is_one_session_with_two_outputs_and_one_reward(inside: dict[str, Any]) -> None:
    sizes = {session[0]["item_id"]: len(session) for session in inside["sessions"]}
    assert sizes == {"pair": 1, "point": 2, "list": 1}
    for session in (session for session in inside["sessions"] if len(session) == 2):
        assert {tuple(output["shown"]) for output in session} == {(0,), (1,)}
        assert len({output["score"] for output in session}) == 1
        scores = {tuple(output["shown"]): output["direct"]["label"] for output in session}
        right = None not in scores.values() and float(scores[1,]) > float(scores[0,])
        assert session[0]["reward_extra_info"]["acc"] == float(right)


@pytest.mark.slow
def test_the_score_is_the_reward_and_stands_at_the_last_token(inside: dict[str, Any]) -> None:
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
