"""What a run measures of itself: written, read, watched and drawn."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tirjudge_training.cli import app
from tirjudge_training.metrics import NUM_STEPS, MetricsWriter, read_metrics, series, validations
from tirjudge_training.plots import plot, running_mean
from tirjudge_training.run_folder import StageRecord, State
from tirjudge_training.trackers import open_trackers
from tirjudge_training.watch import eta_s, frame, look_at, sparkline, watch

RL = {
    "reward/total": 0.5,
    "reward/Rc": 0.6,
    "reward/Rf": 1.0,
    "reward/Rt": 0.75,
    "judge/acc/math/pairwise": 0.5,
    "tool/calls": 1.25,
    "tool/error_rate": 0.125,
    "dapo/kept_frac": 0.5,
    "length/tokens": 180.0,
    "train/kl": 0.001,
    "sync/dlogp_mean": 1e-6,
    "sync/dlogp_max": 2e-5,
    "perf/traj_per_s": 22.0,
}
VALIDATION = {
    "val/acc": 0.8,
    "val/n": 10.0,
    "val/tool_use": 0.5,
    "val/acc/math/pairwise": 0.8,
    "val/n/math/pairwise": 10.0,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two stages: four steps of RL, and one of SFT; the state says that the second one runs."""
    path = tmp_path / "zero"
    with MetricsWriter(path / "metrics.jsonl") as writer:
        for step in range(1, 5):
            writer.write({**RL, "reward/Rc": step / 10, NUM_STEPS: 4.0}, stage="rl-0", step=step)
        writer.write(VALIDATION, stage="rl-0", step=4)
        writer.write({"train/loss": 1.5, NUM_STEPS: 3.0}, stage="sft-1", step=1)
    stages = [
        StageRecord(name="rl-0", kind="rl", status="done", accepted=False, complaints=["accuracy fell"]),
        StageRecord(name="sft-1", kind="sft", status="running"),
        StageRecord(name="rl-1", kind="rl"),
    ]
    (path / "state.json").write_text(State(command="zero", stages=stages).model_dump_json())
    return path


def shown(path: Path, *, now: float | None = None) -> str:
    console = Console(width=100, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    with console.file:
        console.print(frame(look_at(path, now=now)))
        return console.export_text()


def command(function: object) -> typer.Typer:
    app = typer.Typer()
    app.command()(function)  # type: ignore[type-var]
    return app


# The file ---------------------------------------------------------------------------------------------------------------


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        writer.write({"train/loss": 0.5}, stage="rl-0", step=1)
        first = read_metrics(tmp_path / "m.jsonl")  # flushed: seen while the file is still open
    assert [(row.stage, row.step, dict(row.values)) for row in first] == [("rl-0", 1, {"train/loss": 0.5})]


def test_a_torn_last_line_is_left_out_and_then_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({"a": 1.0}, stage="rl-0", step=1)
    with path.open("a") as file:
        file.write('{"stage": "rl-0", "step": 2, "ti')
    assert [row.step for row in read_metrics(path)] == [1]
    with MetricsWriter(path) as writer:
        writer.write({"a": 3.0}, stage="rl-0", step=3)
    assert [row.step for row in read_metrics(path)] == [1, 3]


def test_a_whole_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"stage": "a", "step": 1, "time": 0}\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"m\.jsonl:2: no row of metrics"):
        read_metrics(tmp_path / "m.jsonl")


def test_what_is_no_finite_number_is_null_in_the_file_and_absent_in_the_row(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        writer.write({"train/loss": float("nan"), "train/kl": None, "ok": 1.0}, stage="rl-0", step=1)
    assert json.loads((tmp_path / "m.jsonl").read_text())["train/loss"] is None
    assert dict(read_metrics(tmp_path / "m.jsonl")[0].values) == {"ok": 1.0}


def test_a_metric_cannot_take_the_name_of_a_column(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer, pytest.raises(ValueError, match="step given as a metric"):
        writer.write({"step": 1.0}, stage="rl-0", step=1)


def test_of_a_step_that_was_repeated_the_later_value_counts(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        for step, value in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25), (3, 0.35)):
            writer.write({"a": value}, stage="rl-0", step=step)
        writer.write({"a": 0.9}, stage="rl-1", step=1)
    points = series(read_metrics(tmp_path / "m.jsonl"), "a")
    assert [(point.at, point.value) for point in points] == [(1, 0.1), (2, 0.25), (3, 0.35), (4, 0.9)]


def test_a_validation_has_wilsons_interval(run: Path) -> None:
    (measured,) = validations(read_metrics(run / "metrics.jsonl"))
    # 8 of 10, as in the docstring of wilson_interval
    assert (round(measured.low, 4), round(measured.high, 4), measured.num) == (0.4902, 0.9433, 10)
    (tool_use,) = validations(read_metrics(run / "metrics.jsonl"), "val/tool_use")
    assert (tool_use.low, tool_use.high, tool_use.num) == (0.5, 0.5, None)


# Watching ---------------------------------------------------------------------------------------------------------------


def test_a_frame_shows_stages_metrics_accuracy_and_the_interval(run: Path) -> None:
    text = shown(run)
    assert re.search(r"rl-0 +rejected +4 +80\.0% +49\.0% to 94\.3%, n = 10 +50\.0%", text)
    assert "rl-0: accuracy fell" in text
    assert re.search(r"rl-1 +waiting", text)
    assert re.search(r"math, pairwise +50\.0% +\S+ +80\.0% +49\.0% to 94\.3%, n = 10", text)
    assert re.search(r"loss +1\.5", text)


def test_a_run_that_a_process_holds_is_running_and_one_that_nobody_holds_was_interrupted(run: Path) -> None:
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert look_at(run).pulse == "running"
    text = shown(run)
    assert "zero: stopped" in text
    assert re.search(r"sft-1 +interrupted", text)


def test_status_tells_a_run_that_goes_on_from_one_that_was_killed(run: Path) -> None:
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = CliRunner().invoke(app, ["status", str(run)]).output
    assert re.search(r"sft-1 +running", running)
    assert running.rstrip().endswith("still going on")
    killed = CliRunner().invoke(app, ["status", str(run)]).output
    assert re.search(r"sft-1 +interrupted", killed)
    assert killed.rstrip().endswith("stopped before its end; the command that began it goes on")


def test_a_run_whose_stages_are_all_done_is_finished(run: Path) -> None:
    state = State(command="zero", stages=[StageRecord(name="rl-0", kind="rl", status="done")])
    (run / "state.json").write_text(state.model_dump_json())
    assert "zero: finished" in shown(run)


def test_a_run_that_has_measured_nothing_yet_is_shown(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert "sft-1, step 0" in shown(run)


def test_the_time_left_is_what_the_last_steps_took(tmp_path: Path) -> None:
    lines = [
        {"stage": "rl-0", "step": step, "time": 100.0 + 5 * step, NUM_STEPS: 10, "train/loss": 1.0}
        for step in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = State(command="zero", stages=[StageRecord(name="rl-0", kind="rl", status="running")])
    (tmp_path / "state.json").write_text(state.model_dump_json())
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # step 3 ended at 115 s; 7 steps of 5 s are left, of which 2 s have passed
        assert eta_s(look_at(tmp_path, now=117.0)) == 33.0


def test_blocks_rise_with_their_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 1, 1], width=2) == "▁█"
    assert sparkline([0.95, 0.9500000000001, 0.95], width=3) == "▄▄▄"


def test_watch_prints_one_frame_and_says_in_a_line_that_there_is_no_run(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command(watch), [str(run), "--once"])
    assert done.exit_code == 0
    assert "sft-1" in done.output
    failed = CliRunner().invoke(command(watch), [str(tmp_path / "none")])
    assert failed.exit_code == 2
    assert f"{tmp_path / 'none'}: no run here" in failed.output
    assert len(failed.output.splitlines()) == 1


@pytest.mark.parametrize("ends", ["q", "ctrl-c"])
def test_the_live_view_ends_cleanly(run: Path, ends: str) -> None:
    code = "import typer; from tirjudge_training.watch import watch; a = typer.Typer(); a.command()(watch); a()"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run)], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "50"},
    )  # fmt: skip
    os.close(theirs)
    seen = _read_until(ours, b"sft-1")
    if ends == "q":
        os.write(ours, b"q")
    else:
        os.kill(process.pid, signal.SIGINT)
    drained = threading.Thread(target=_drain, args=(ours,))
    drained.start()
    assert process.wait(60) == 0
    drained.join(60)
    os.close(ours)
    assert b"Traceback" not in seen


def _read_until(file: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        assert select.select([file], [], [], 60)[0], f"{wanted!r} never came: {seen!r}"
        seen += os.read(file, 65536)
    return seen


def _drain(file: int) -> None:
    try:
        while os.read(file, 65536):
            pass
    except OSError:  # how a terminal whose other end is closed says so
        return


# Drawing ----------------------------------------------------------------------------------------------------------------


def test_plots_of_several_runs_are_files_with_their_axes_and_names(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "distill"
    with MetricsWriter(other / "metrics.jsonl") as writer:
        writer.write({**RL, **VALIDATION}, stage="rl-0", step=1)
    done = CliRunner().invoke(command(plot), [str(run), str(other), "--out", str(tmp_path / "plots")])
    assert done.exit_code == 0, done.output
    names = {path.stem for path in (tmp_path / "plots").glob("*.png")}
    assert names == {"validation", "accuracy", "reward", "tools", "sampling", "length", "training", "logprobs", "speed"}
    svg = (tmp_path / "plots" / "validation.svg").read_text()
    assert "of held-out items (95 % interval), %" in svg
    assert "zero" in svg
    assert "distill" in svg
    assert "math, pairwise" in (tmp_path / "plots" / "accuracy.svg").read_text()


def test_the_same_runs_give_the_same_drawing(run: Path, tmp_path: Path) -> None:
    for out in ("a", "b"):
        assert CliRunner().invoke(command(plot), [str(run), "--out", str(tmp_path / out)]).exit_code == 0
    assert (tmp_path / "a" / "reward.svg").read_bytes() == (tmp_path / "b" / "reward.svg").read_bytes()


def test_plot_says_in_a_line_which_run_is_none(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command(plot), [str(run), str(tmp_path / "none"), "--out", str(tmp_path / "plots")])
    assert done.exit_code == 2
    assert f"{tmp_path / 'none'}: no run with measurements" in done.output


def test_a_running_mean_takes_fewer_values_at_the_ends() -> None:
    assert running_mean([0.0, 3.0, 6.0, 3.0], width=3) == [1.5, 3.0, 4.0, 4.5]


# Trackers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard", "ignore::DeprecationWarning:torch")
def test_tensorboard_holds_what_was_logged(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    (tracker,) = open_trackers(["tensorboard", "none"], run=tmp_path)
    tracker.log({"reward/Rc": 0.25}, stage="rl-0", step=1)
    tracker.log({"reward/Rc": 0.5}, stage="rl-0", step=2)
    tracker.log({"train/loss": 2.0}, stage="sft-1", step=1)
    tracker.close()
    (again,) = open_trackers(["tensorboard"], run=tmp_path)  # a resumed run repeats step 2
    time.sleep(1.1)  # event files are ordered by the second in their names
    again.log({"reward/Rc": 0.75}, stage="rl-0", step=2)
    again.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / "rl-0"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("reward/Rc")] == [(1, 0.25), (2, 0.75)]
    assert (tmp_path / "tensorboard" / "sft-1").is_dir()


def test_a_tracker_that_is_unknown_or_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="report_to: mlflow given; tensorboard, wandb, trackio or none would do"):
        open_trackers(["mlflow"], run=tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # where nothing is installed
    for name in ("wandb", "trackio", "tensorboard"):
        if name not in sys.modules:
            with pytest.raises(ValueError, match=f"report_to: {name} given, but it is not installed"):
                open_trackers([name], run=tmp_path)
