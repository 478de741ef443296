"""A trainer of an outside package: installed beside ours, named in a recipe, run from the command line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.training.tiny import trajectory
from tirjudge.profile import read_checkpoint_file
from tirjudge_training.metrics import read_metrics
from tirjudge_training.run_folder import read_state
from tirjudge_training.training_samples import write_trajectories

TOY = Path(__file__).parent / "toys" / "tirjudge_toy"
DOCS = Path(__file__).parents[2] / "docs" / "adding-a-trainer.md"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installer leaves behind: the package, and a record of its entry points."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "tirjudge_toy").mkdir()
    shutil.copy(TOY / "trainer.py", folder / "tirjudge_toy" / "trainer.py")
    record = folder / "tirjudge_toy-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: tirjudge-toy\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text("[tirjudge.trainers]\ntoy = tirjudge_toy.trainer:TRAINER\n")
    return folder


def train(
    recipe: dict[str, object], *overrides: str, folder: Path, packages: Path | None
) -> subprocess.CompletedProcess[str]:
    """`tirjudge train sft` on three made-up trajectories of three sampled tokens each."""
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
    env = os.environ | ({} if packages is None else {"PYTHONPATH": str(packages)})
    return subprocess.run([*command, *settings], env=env, capture_output=True, text=True, check=False)


def test_an_outside_trainer_does_the_stage_of_a_recipe_that_names_it(tmp_path: Path, packages: Path) -> None:
    done = train({"trainer": "toy", "toy": {"steps": 2}}, folder=tmp_path, packages=packages)
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


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["toy.steps=0"], "toy.steps: 0 given; input should be greater than or equal to 1"),
        (["toy.stepz=2"], "toy.stepz: unknown key; did you mean steps?"),
        (["sft.mask_observations=false"], "sft.mask_observations: false given, but toy counts only sampled tokens"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line_before_anything_runs(
    tmp_path: Path, packages: Path, overrides: list[str], message: str
) -> None:
    refused = train({"trainer": "toy"}, *overrides, folder=tmp_path, packages=packages)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert message in refused.stderr
    assert not (tmp_path / "run").exists()


def test_a_trainer_that_is_not_installed_is_named_with_those_that_are(tmp_path: Path) -> None:
    refused = train({"trainer": "toy"}, folder=tmp_path, packages=None)
    assert refused.returncode == 2
    assert "trainer: 'toy' given; installed are trl, verl" in refused.stderr


def test_the_documentation_shows_this_trainer() -> None:
    assert (TOY / "trainer.py").read_text(encoding="utf-8") in DOCS.read_text(encoding="utf-8")
