"""Runs of several stages: a killed run reaches the same result, and errors are reported in one line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.training.tiny import trajectory
from tirjudge.profile import read_checkpoint_file
from tirjudge.types import Mode
from tirjudge_training.cli import app
from tirjudge_training.config import load_recipe
from tirjudge_training.gate import GateRule
from tirjudge_training.items import write_items
from tirjudge_training.run_folder import StageRecord, State, read_state
from tirjudge_training.stages import planned, run_stages
from tirjudge_training.synthetic.examples import Mixture
from tirjudge_training.synthetic.items import generate_items
from tirjudge_training.training_data import load_data
from tirjudge_training.training_samples import write_trajectories

TRAINED = {"device": "cpu", "learning_rate": 1e-5, "per_device_batch": 4, "context_tokens": 3072, "save_every": 1}
RECIPE = {
    "start": {"checkpoint": "bundled"},
    "data": {"synthetic": {"pairwise": 12, "mixture": {"conduct": 0.0, "numeric": 0.0, "many_instructions": 1.0}}},
    "validation": {"share": 0.2},
    "sft": {**TRAINED, "batch": 4, "per_device_batch": 2},
    "rl": {**TRAINED, "group_size": 2, "prompts_per_step": 2, "steps": 2, "difficulty": True},
    "collecting": {"max_draws": 2.0},
    "sampling": {"rollouts": 2, "limit": 4, "shard": 2, "preset": "paper"},
    "stages": {"rounds": 1},
    "gate": {"mode": "warn"},
    "sandbox": {"slots": 2},
}
"""Recipe for the command `zero` with one round. Every stage has at least two steps or files, so that it can be killed in
between."""

DRIVER = """
import gc
gc.disable()  # while modules are imported, which makes millions of objects that stay
import json, os, signal, sys
from pathlib import Path
import datasets
from transformers.models.qwen3 import modeling_qwen3
import tirjudge.engines.embedded, tirjudge_sandbox
from tirjudge_training.callbacks import Callback
from tirjudge_training.config import load_recipe
from tirjudge_training.stages import run_stages
from tirjudge_training.trainers.trl import adapters, rl, sft
gc.freeze()
gc.enable()

command, recipe, *runs = sys.argv[1:]

class Killer(Callback):
    def __init__(self, place):
        self.place = place
    def began(self, stage):
        self.stage = stage.name
        self.at("began")
    def moved(self, doing, done, total, values):
        self.at(f"{doing}/{done}")
    def ended(self, stage):
        self.at("ended")
    def at(self, place):
        if f"{self.stage}/{place}" == self.place:
            os.kill(os.getpid(), signal.SIGKILL)

statuses = []
for out, place in map(json.loads, runs):
    if (pid := os.fork()) == 0:
        run_stages(command, load_recipe(recipe), out=Path(out), callback=Killer(place))
        sys.exit(0)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(statuses))
"""
"""Runs a command once for each folder and place, in a process that kills itself there. The processes are forks, because
importing torch and TRL takes longer than most runs."""


def written(tmp_path: Path, **changes: object) -> Path:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump({**RECIPE, **changes}))
    return file


def trained(command: str, recipe: Path, *, runs: Sequence[tuple[Path, str]]) -> list[int]:
    """Run a command in a process for each folder and place, and return their exit statuses. A process kills itself at its
    place, and none at "".

    The last line of the output has the statuses."""
    given = [json.dumps((str(out), place)) for out, place in runs]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, command, str(recipe), *given],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_zero_run_killed_in_every_stage_reaches_the_same_result(tmp_path: Path) -> None:
    places = (
        "start/validating/1",
        "rl-0/training/2",  # after the trainer's checkpoint of step 1
        "rl-0/ended",
        "sample-1/sampling/3",  # after the first file
        "sft-1/training/1",
        "rl-1/began",
        "rl-1/validating/2",
    )
    runs = [(tmp_path / "whole", ""), *((tmp_path / "killed", place) for place in (*places, ""))]
    assert trained("zero", written(tmp_path), runs=runs) == [0, *(-signal.SIGKILL for _ in places), 0]

    whole, killed = read_state(tmp_path / "whole"), read_state(tmp_path / "killed")
    assert [stage.status for stage in whole.stages] == [stage.status for stage in killed.stages] == ["done"] * 5
    assert killed.stage("sft-1").counts["trajectories"] > 0
    assert [comparable(stage) for stage in killed.stages] == [comparable(stage) for stage in whole.stages]
    # Sums of floating point numbers may differ in the last digits, and with them the later samples.
    one, two = (load_file(tmp_path / run / "rl-0" / "checkpoint" / "model.safetensors") for run in ("whole", "killed"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=0.0)
    assert (tmp_path / "killed" / "best" / "judge.json").exists()
    num_kept = killed.stage("sft-1").counts["trajectories"]
    steps = {
        name: read_checkpoint_file(tmp_path / "killed" / name / "checkpoint").lineage for name in ("rl-0", "sft-1")
    }
    # RL is validated only after its last step, 2. SFT uses 4 trajectories per step.
    assert {name: found and found.weights_version for name, found in steps.items()} == {
        "rl-0": 2,
        "sft-1": -(-num_kept // 4),
    }


def comparable(stage: StageRecord) -> tuple[object, ...]:
    """The properties of a stage that do not depend on rounding errors."""
    num_validated = None if stage.validation is None else stage.validation.num
    return stage.name, stage.kind, stage.output, stage.counts.get("sampled"), num_validated


@pytest.mark.slow
def test_run_with_a_changed_output_is_rejected(tmp_path: Path) -> None:
    recipe = load_recipe(str(written(tmp_path)))
    run_stages("sample", recipe, out=tmp_path / "run")
    kept = tmp_path / "run" / "sample-1" / "kept.parquet"
    kept.write_bytes(kept.read_bytes() + b"x")
    with pytest.raises(ValueError, match="changed since stage sample-1 wrote it"):
        run_stages("sample", recipe, out=tmp_path / "run")


@pytest.mark.slow
def test_items_that_failed_sampling_are_counted(tmp_path: Path) -> None:
    recipe = load_recipe(str(written(tmp_path, sampling={"rollouts": 1, "limit": 3, "preset": "paper"})))
    first, _, third = load_data(recipe).train[:3]
    left = [replace(trajectory(ids=[11], mask=[1], reward=1.0), item_id=item.id) for item in (first, third)]
    write_trajectories(tmp_path / "run" / "sample-1" / "shards" / "00000000.parquet", left)  # from a killed run
    sampled = run_stages("sample", recipe, out=tmp_path / "run").stage("sample-1")
    assert (sampled.counts["kept"], sampled.counts["dropped_items"]) == (2, 1)


def test_each_command_has_its_stages() -> None:
    def names(state: State) -> list[str]:
        return [stage.name for stage in state.stages]

    assert names(planned("zero", rounds=2)) == [
        "start", "rl-0", "sample-1", "sft-1", "rl-1", "sample-2", "sft-2", "rl-2",
    ]  # fmt: skip
    assert names(planned("zero", rounds=0)) == ["start", "rl-0"]
    assert names(planned("distill", rounds=2)) == ["start", "sample-1", "sft-1", "rl-1"]
    assert names(planned("ttrl", rounds=2)) == names(planned("rl", rounds=2)) == ["start", "rl-1"]
    assert names(planned("sft", rounds=2)) == ["start", "sft-1"]
    assert names(planned("sample", rounds=2)) == ["start", "sample-1"]


@pytest.mark.parametrize(
    ("command", "changes", "message"),
    [
        ("distill", {}, "teacher: none given, but distill needs one"),
        ("sft", {}, "data.trajectories: none given"),
        (
            "sft",
            {"data": {"trajectories": ["nowhere.parquet"], "synthetic": {"pairwise": 40}}},
            "nowhere.parquet is not a file",
        ),
        ("ttrl", {"tools": False}, "voting.min_verified_mass: without tools nothing is verified"),
        ("rl", {"data": {}}, "data: no items"),
        ("rl", {"start": {"checkpoint": "nowhere"}}, "^start.checkpoint: not a checkpoint folder: nowhere$"),
        (
            "rl",
            {"data": {"synthetic": {"pairwise": 9}, "tasks": ["chess"]}},
            "data.tasks: no items of task chess; the tasks are conduct",
        ),
        ("rl", {"trainer": "verl"}, "trainer: verl given"),
    ],
)
def test_command_names_the_invalid_key(tmp_path: Path, command: str, changes: dict[str, object], message: str) -> None:
    recipe = load_recipe(str(written(tmp_path, **changes)))
    with pytest.raises(ValueError, match=message):
        run_stages(command, recipe, out=tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "state.json").exists()


def test_error_names_a_missing_column_of_the_data(tmp_path: Path) -> None:
    items = generate_items(Mode.PAIRWISE, count=3, seed=1, mixture=Mixture())
    write_items(items, tmp_path / "items.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    (tmp_path / "items.jsonl").write_text(
        "".join(json.dumps({k: v for k, v in row.items() if k != "best"}) + "\n" for row in rows)
    )
    recipe = load_recipe(str(written(tmp_path, data={"items": [str(tmp_path / "items.jsonl")]})))
    with pytest.raises(ValueError, match=r'items\.jsonl, row 1: the column "best" is missing'):
        run_stages("rl", recipe, out=tmp_path / "run")


def test_error_names_a_file_without_items(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    data = {**RECIPE["data"], "items": [str(tmp_path / "empty.jsonl")]}
    with pytest.raises(ValueError, match=r"data\.items: .*empty\.jsonl contains no items"):
        run_stages("rl", load_recipe(str(written(tmp_path, data=data))), out=tmp_path / "run")


def test_invalid_recipe_is_a_one_line_error_with_exit_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without these variables, the command starts a new process that has them.
    for name in ("OMP_WAIT_POLICY", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"):
        monkeypatch.setenv(name, os.environ.get(name, "PASSIVE" if name == "OMP_WAIT_POLICY" else "1"))
    refused = CliRunner().invoke(app, ["rl", str(written(tmp_path, data={})), "--out", str(tmp_path / "run")])
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert refused.stderr == (
        "tirjudge train rl: data: no items; set data.items to files, or data.synthetic to counts\n"
    )


def test_training_and_held_out_items_share_no_prompt(tmp_path: Path) -> None:
    data = load_data(load_recipe("tiny-cpu-zero", overrides=["data.synthetic.pairwise=60", "validation.limit=20"]))
    assert not {item.prompt for item in data.train} & {item.prompt for item in data.held_out}
    assert len(data.held_out) == 20
    assert {item.task for item in data.train} == {"instructions", "math", "conduct"}
    assert (
        data.sha256
        == load_data(
            load_recipe("tiny-cpu-zero", overrides=["data.synthetic.pairwise=60", "validation.limit=20"])
        ).sha256
    )


@pytest.mark.slow
def test_single_task_training_is_validated_on_all_tasks() -> None:
    mixed, alone = (
        load_data(load_recipe("tiny-cpu-zero", overrides=["data.synthetic.pairwise=60", *overrides]))
        for overrides in ([], ["data.tasks=[math]"])
    )
    assert {item.task for item in alone.train} == {"math"}
    assert set(alone.train) < set(mixed.train)
    assert alone.held_out == mixed.held_out


def test_generated_items_are_reproducible_and_have_a_stored_order() -> None:
    items = generate_items(Mode.LISTWISE, count=40, seed=3, mixture=Mixture(numeric=0.25, conduct=0.25))
    assert items == generate_items(Mode.LISTWISE, count=40, seed=3, mixture=Mixture(numeric=0.25, conduct=0.25))
    tasks = [item.task for item in items]
    assert (tasks.count("math"), tasks.count("conduct"), tasks.count("instructions")) == (10, 10, 20)
    for item in items:
        assert item.verifiable is (item.task != "conduct")
        assert sorted(item.order) == list(range(len(item.responses)))
    assert len({item.id for item in items}) == 40


def test_gate_of_a_recipe_rejects_by_default() -> None:
    assert load_recipe("tiny-cpu-zero").gate == GateRule(mode="reject")
