"""A trainer of another package is installed, selected in a recipe, and run from the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.outside.conftest import TOY
from tests.training.tiny import trajectory
from tirjudge.profile import read_checkpoint_file
from tirjudge_training.metrics import read_metrics
from tirjudge_training.run_folder import read_state
from tirjudge_training.training_samples import write_trajectories

DOCS = Path(__file__).parents[2] / "docs" / "adding-a-trainer.md"


def train(
    recipe: dict[str, object], *overrides: str, folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `tirjudge train sft` on three synthetic trajectories with three sampled tokens each."""
    write_trajectories(
        folder / "kept.parquet",
        [trajectory(ids=[11, 12, 13, 14], mask=[1, 0, 1, 1], reward=1.0, number=n) for n in (1, 2, 3)],
    )
    shared = {
        "data": {"synthetic": {"pairwise": 8}, "trajectories": [str(folder / "kept.parquet")]},
        "validation": {"share": 0.25},
        "sandbox": {"slots": 1},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump({**shared, **recipe}))
    command = [
        Path(sys.executable).with_name("tirjudge"),
        "train",
        "sft",
        folder / "recipe.yaml",
        "--out",
        folder / "run",
    ]
    settings = [part for override in overrides for part in ("--set", override)]
    return subprocess.run(
        [*command, *settings], env=env or dict(os.environ), capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_toy_trainer_runs_the_stage_of_a_recipe(tmp_path: Path, toy_environment: dict[str, str]) -> None:
    done = train({"trainer": "toy", "toy": {"steps": 2}}, folder=tmp_path, env=toy_environment)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    stage = read_state(run).stage("sft-1")
    assert (stage.status, stage.accepted, stage.counts) == ("done", True, {"trajectories": 3})
    rows = [row for row in read_metrics(run / "metrics.jsonl") if "train/tokens" in row.values]
    assert [(row.step, row.values["train/tokens"], row.values["train/num_steps"]) for row in rows] == [
        (1, 9, 2),
        (2, 9, 2),
    ]
    lineage = read_checkpoint_file(run / "sft-1" / "checkpoint").lineage
    assert lineage is not None
    assert (lineage.stage, lineage.weights_version) == ("sft-1", 2)
    assert yaml.safe_load((run / "config.yaml").read_text())["toy"] == {"steps": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["toy.steps=0"], "toy.steps: 0 given; input should be greater than or equal to 1"),
        (["toy.stepz=2"], "toy.stepz: unknown key; did you mean steps?"),
        (
            ["sft.mask_observations=false"],
            "sft.mask_observations: must be true, because toy counts only sampled tokens",
        ),
    ],
)
def test_unsupported_settings_are_rejected_in_one_line_before_the_run(
    tmp_path: Path, toy_environment: dict[str, str], overrides: list[str], message: str
) -> None:
    rejected = train({"trainer": "toy"}, *overrides, folder=tmp_path, env=toy_environment)
    assert (rejected.returncode, rejected.stderr.count("\n")) == (2, 1)
    assert message in rejected.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_error_for_an_unknown_trainer_lists_the_installed_trainers(tmp_path: Path) -> None:
    rejected = train({"trainer": "toy"}, folder=tmp_path)
    assert rejected.returncode == 2
    assert "'toy'" in rejected.stderr
    assert "trl, verl" in rejected.stderr


def test_the_documentation_shows_the_toy_trainer() -> None:
    assert (TOY / "trainer.py").read_text(encoding="utf-8") in DOCS.read_text(encoding="utf-8")
