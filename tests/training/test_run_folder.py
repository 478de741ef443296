"""The folder of a run: complete files, one process at a time, and no resumption with a different recipe."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tirjudge.durable import write_file
from tirjudge_training.run_folder import (
    RunFolder,
    StageRecord,
    State,
    read_state,
    sha256_of,
)

CONFIG = {"seed": 1, "rl": {"learning_rate": 1e-6, "steps": 5}}
FACTS = {"data_sha256": "d"}


def fresh_state(command: str = "zero") -> State:
    return State(command=command, stages=[StageRecord(name="start", kind="start"), StageRecord(name="rl-0", kind="rl")])


def opened(
    path: Path, *, config: dict[str, object] = CONFIG, facts: dict[str, str] = FACTS, command: str = "zero"
) -> RunFolder:
    return RunFolder(path, config=config, state=fresh_state(command), facts=facts)


def test_new_run_writes_recipe_manifest_and_state(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        assert not run.resumed
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text()) == CONFIG
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["data_sha256"] == "d"
    assert len(manifest["recipe_sha256"]) == 64
    assert "torch" in manifest["versions"]
    assert read_state(tmp_path / "run") == fresh_state()


def test_resumed_run_keeps_its_state(tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        run.state.stage("start").status = "done"
        run.state.current = "start"
        run.save()
    with opened(tmp_path) as run:
        assert run.resumed
        assert run.state.stage("start").status == "done"
        assert run.state.current == "start"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"config": {"seed": 1, "rl": {"learning_rate": 2e-6, "steps": 5}}},
            "rl.learning_rate was 1e-06 and is now 2e-06",
        ),
        ({"facts": {"data_sha256": "e"}}, "data_sha256 was"),
        ({"command": "rl"}, "command was .zero. and is now .rl."),
    ],
)
def test_run_is_not_resumed_with_other_settings(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    opened(tmp_path).close()
    before = (tmp_path / "state.json").read_bytes()
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, **changed)  # type: ignore[arg-type]
    assert (tmp_path / "state.json").read_bytes() == before
    opened(tmp_path).close()  # the rejected attempt released the lock


def test_two_processes_cannot_hold_one_run(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tirjudge_training.run_folder import *\n"
        "run = RunFolder(Path(sys.argv[1]), config={}, state=State(command='rl', stages=[]), facts={})\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="another process writes it"):
            RunFolder(tmp_path, config={}, state=State(command="rl", stages=[]), facts={})
        other.kill()
        other.wait()
    RunFolder(tmp_path, config={}, state=State(command="rl", stages=[]), facts={}).close()


def test_unfinished_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / ".unfinished-7-state.json").write_text('{"comm')
    with opened(tmp_path) as run:
        assert run.state == fresh_state()
    assert not (tmp_path / ".unfinished-7-state.json").exists()


def test_full_disk_leaves_the_file_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_file(file, "old")
    # A limit of 4096 bytes per file simulates a full disk: the write fails in the kernel.
    code = (
        "import resource, signal, sys; from pathlib import Path; from tirjudge.durable import write_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: write_file(Path(sys.argv[1]), 'x' * 100000)\n"
        "except OSError as error: print(error.strerror)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "File too large"
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_best_links_to_a_checkpoint_inside_or_outside_the_run(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        (run.path / "rl-0" / "checkpoint").mkdir(parents=True)
        run.mark_best(run.path / "rl-0" / "checkpoint")
        assert os.readlink(run.path / "best") == "rl-0/checkpoint"
        run.mark_best(tmp_path)  # a start checkpoint outside of the run
        assert os.readlink(run.path / "best") == str(tmp_path.resolve())


def test_folder_hash_depends_on_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = sha256_of(tmp_path)
    (tmp_path / "a").write_text("2")
    second = sha256_of(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({first, second, sha256_of(tmp_path)}) == 3


def test_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run found"):
        read_state(tmp_path)
