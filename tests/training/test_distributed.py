"""Two processes make the same step as one process, with replicated or sharded weights."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training import distributed_step
from tests.training.tiny import made_up_groups, save_tiny
from tirjudge.durable import lock_folder
from tirjudge_training.config import Recipe, load_recipe
from tirjudge_training.learning import learn, main, write_job
from tirjudge_training.trainers import StageJob
from tirjudge_training.training_samples import write_trajectories

ROOT = Path(__file__).parents[2]
SMALL = [
    *("sft.per_device_batch=4", "sft.batch=8", "sft.warmup_steps=0"),
    *(f"data.synthetic.{mode}=8" for mode in ("pointwise", "pairwise", "listwise")),
]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def runs(start: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the runs, and what each saw: `alone` in this process, which has imported what it needs, and those of two
    processes."""
    folder = tmp_path_factory.mktemp("runs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        [sys.executable, str(Path(distributed_step.__file__)), str(start), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads((folder / "seen.json").read_text())
    return folder, {**seen, "alone": distributed_step.main(start, folder / "alone")}


@pytest.mark.slow
def test_two_processes_make_the_same_step_as_one_process_with_rows_of_any_length(start, runs) -> None:
    folder, seen = runs
    alone, both = seen["alone"], seen["replicated"]
    assert alone["kept"] == both["kept"] == [16, 16]
    check_same(alone["log"], both["log"])
    check_same_weights(folder / "alone", folder / "replicated", start=start)


@pytest.mark.slow
def test_two_sharded_processes_make_the_same_step_as_one_process_and_resume(start, runs) -> None:
    folder, seen = runs
    alone, first, second = seen["alone"], seen["sharded"], seen["resumed"]
    assert alone["num_sharded"] == 0
    assert second["num_sharded"] > 0
    assert [row["step"] for row in second["log"]] == [2]
    check_same(alone["log"], [*first["log"], *second["log"]])
    assert alone["given"] == second["given"]  # the policy gets complete weights
    check_same_weights(folder / "alone", folder / "sharded", start=start)


def check_same(ours: list[dict], theirs: list[dict]) -> None:
    # TRL averages KL and entropy over passes, and the rows of a pass differ. The loss does not depend on that.
    for name in ("train/loss", "train/grad_norm", "sync/dlogp_mean"):
        assert [row[name] for row in ours] == pytest.approx([row[name] for row in theirs], abs=1e-6, rel=1e-5), name


def check_same_weights(ours: Path, theirs: Path, *, start: Path) -> None:
    one, two = (load_file(folder / "last" / "model.safetensors") for folder in (ours, theirs))
    began = load_file(start / "model.safetensors")
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, two[name], atol=1e-6, rtol=1e-5, msg=name)
    assert max((tensor - began[name]).abs().max() for name, tensor in one.items()) > 1e-4


@pytest.mark.slow
def test_stage_of_two_processes_trains_the_same_weights_and_reports_errors(start, tmp_path) -> None:
    rows = [trajectory for group in made_up_groups(num_groups=4, group_size=4) for trajectory in group.trajectories]
    write_trajectories(tmp_path / "kept.parquet", rows)

    def learned(name: str, *overrides: str) -> Path:
        recipe = load_recipe("tiny-cpu-zero", overrides=[*SMALL, *overrides])
        run = tmp_path / name
        run.mkdir(exist_ok=True)
        job = StageJob(
            recipe=recipe,
            kind="sft",
            name="sft-1",
            run=run,
            start=start,
            folder=run / "trainer",
            samples=(tmp_path / "kept.parquet",),
        )
        return learn(job).checkpoint

    with pytest.raises(ValueError, match=r"sft-1: per_device_batch: 5 on 2 process\(es\)"):
        learned("both", "launch.processes=2", "sft.per_device_batch=5")
    assert learned("both", "launch.processes=2") == tmp_path / "both" / "trainer" / "last"
    learned("alone")
    check_same_weights(tmp_path / "alone" / "trainer", tmp_path / "both" / "trainer", start=start)


def test_training_is_refused_while_an_old_process_holds_the_folder(tmp_path) -> None:
    job = StageJob(recipe=Recipe(), kind="rl", name="rl-1", run=tmp_path, start=tmp_path, folder=tmp_path / "trainer")
    (tmp_path / "trainer").mkdir()
    write_job(job, tmp_path / "job.json")
    held = lock_folder(tmp_path / "trainer")
    with pytest.raises(ValueError, match="trainer: another process"):
        main(tmp_path / "job.json")
    os.close(held)
