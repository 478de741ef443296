"""`tirjudge train average`: the mean of the weights of checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.command_line import run_command
from tirjudge.errors import CheckpointError
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge_training.bundled.averaging import average_checkpoints
from tirjudge_training.checkpoints import UNCALIBRATED, weights_sha256


def moved(folder: Path, *, by: float) -> Path:
    """Return a copy of the bundled judge whose weights are larger by a number."""
    shutil.copytree(bundled_checkpoint(), folder)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: (each.float() + by).to(each.dtype) for name, each in weights.items()}, folder / "model.safetensors"
    )
    return folder


def test_the_mean_has_the_weights_between_all_stages_and_the_rest_of_the_last(tmp_path: Path) -> None:
    first, last = moved(tmp_path / "first", by=-2.0), moved(tmp_path / "last", by=4.0)
    stages = json.loads((last / "training.json").read_text())["stages"]
    (first / "training.json").write_text(json.dumps({"stages": [*stages[:2], {"recipe": "another"}]}))
    average_checkpoints([first, last], out=tmp_path / "mean")
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    for name, each in load_file(bundled_checkpoint() / "model.safetensors").items():
        assert mean[name].dtype is each.dtype
        torch.testing.assert_close(mean[name].float(), each.float() + 1.0, rtol=0, atol=0.05)
    profile = load_profile(tmp_path / "mean")
    assert profile == load_profile(last).model_copy(update=UNCALIBRATED)
    training = json.loads((tmp_path / "mean" / "training.json").read_text())
    assert training.pop("averaged") == [weights_sha256(first), weights_sha256(last)]
    assert training["stages"] == [*stages[:2], {"recipe": "another"}, *stages[2:]]
    assert not (tmp_path / "mean" / "measured.json").exists()
    assert (tmp_path / "mean" / "tokenizer.json").read_bytes() == (last / "tokenizer.json").read_bytes()


def test_only_checkpoints_of_one_shape_have_a_mean(tmp_path: Path) -> None:
    other = shutil.copytree(bundled_checkpoint(), tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with pytest.raises(CheckpointError, match=r"config\.json differs from"):
        average_checkpoints([other, bundled_checkpoint()], out=tmp_path / "mean")
    with pytest.raises(CheckpointError, match="a mean needs two or more"):
        average_checkpoints([other], out=tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_weights_that_are_cut_off_or_lack_one_are_named(tmp_path: Path) -> None:
    cut, lacking = (shutil.copytree(bundled_checkpoint(), tmp_path / name) for name in ("cut", "lacking"))
    file = cut / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"cut/model\.safetensors cannot be read"):
        average_checkpoints([bundled_checkpoint(), cut], out=tmp_path / "mean")
    weights = load_file(lacking / "model.safetensors")
    weights.popitem()
    save_file(weights, lacking / "model.safetensors")
    with pytest.raises(CheckpointError, match="different names"):
        average_checkpoints([bundled_checkpoint(), lacking], out=tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_the_command_names_a_folder_that_is_not_a_checkpoint(tmp_path: Path) -> None:
    done = run_command("train", "average", tmp_path, bundled_checkpoint(), "--out", tmp_path / "mean")
    assert done.returncode == 2, done.stderr
    assert str(tmp_path) in done.stderr
    assert done.stderr.count("\n") == 1
