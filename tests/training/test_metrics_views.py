"""Metrics of a run: writing, reading, watching, plotting and trackers."""

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
from io import StringIO
from pathlib import Path

import pytest
import typer
from matplotlib import rc_context
from rich.console import Console
from typer.testing import CliRunner

from tirjudge_training.cli import app
from tirjudge_training.metrics import METRICS, NUM_STEPS, MetricsWriter, read_metrics, series, validations
from tirjudge_training.plots import STYLE, VALIDATION, draw, plot, read_run, running_mean
from tirjudge_training.run_folder import StageRecord, State
from tirjudge_training.stage_report import Reporter
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
VALIDATION_VALUES = {
    "val/acc": 0.8,
    "val/n": 10.0,
    "val/tool_use": 0.5,
    "val/acc/math/pairwise": 0.8,
    "val/n/math/pairwise": 10.0,
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with four steps of RL and one step of SFT. The SFT stage is running."""
    path = tmp_path / "zero"
    with MetricsWriter(path / "metrics.jsonl") as writer:
        for step in range(1, 5):
            writer.write({**RL, "reward/Rc": step / 10, NUM_STEPS: 4.0}, stage="rl-0", step=step)
        writer.write(VALIDATION_VALUES, stage="rl-0", step=4)
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


def test_rows_are_readable_while_the_file_is_open(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        writer.write({"train/loss": 0.5}, stage="rl-0", step=1)
        first = read_metrics(tmp_path / "m.jsonl")
    assert [(row.stage, row.step, dict(row.values)) for row in first] == [("rl-0", 1, {"train/loss": 0.5})]


def test_incomplete_last_line_is_skipped_and_then_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path) as writer:
        writer.write({"a": 1.0}, stage="rl-0", step=1)
    with path.open("a") as file:
        file.write('{"stage": "rl-0", "step": 2, "ti')
    assert [row.step for row in read_metrics(path)] == [1]
    with MetricsWriter(path) as writer:
        writer.write({"a": 3.0}, stage="rl-0", step=3)
    assert [row.step for row in read_metrics(path)] == [1, 3]


def test_complete_invalid_line_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"stage": "a", "step": 1, "time": 0}\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"m\.jsonl:2: not a row of metrics"):
        read_metrics(tmp_path / "m.jsonl")


def test_non_finite_values_are_null_in_the_file_and_absent_in_rows(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        writer.write({"train/loss": float("nan"), "train/kl": None, "ok": 1.0}, stage="rl-0", step=1)
    assert json.loads((tmp_path / "m.jsonl").read_text())["train/loss"] is None
    assert dict(read_metrics(tmp_path / "m.jsonl")[0].values) == {"ok": 1.0}


def test_metric_cannot_have_a_reserved_name(tmp_path: Path) -> None:
    with (
        MetricsWriter(tmp_path / "m.jsonl") as writer,
        pytest.raises(ValueError, match="reserved names given as metrics: step"),
    ):
        writer.write({"step": 1.0}, stage="rl-0", step=1)


def test_later_value_of_a_repeated_step_counts(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "m.jsonl") as writer:
        for step, value in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25), (3, 0.35)):
            writer.write({"a": value}, stage="rl-0", step=step)
        writer.write({"a": 0.9}, stage="rl-1", step=1)
    points = series(read_metrics(tmp_path / "m.jsonl"), "a")
    assert [(point.at, point.value) for point in points] == [(1, 0.1), (2, 0.25), (3, 0.35), (4, 0.9)]


def test_validation_has_a_wilson_interval(run: Path) -> None:
    (measured,) = validations(read_metrics(run / "metrics.jsonl"))
    # 8 of 10, as in the docstring of wilson_interval
    assert (round(measured.low, 4), round(measured.high, 4), measured.num) == (0.4902, 0.9433, 10)
    (tool_use,) = validations(read_metrics(run / "metrics.jsonl"), "val/tool_use")
    assert (tool_use.low, tool_use.high, tool_use.num) == (0.5, 0.5, None)


# Watching ---------------------------------------------------------------------------------------------------------------


def test_view_shows_stages_metrics_accuracy_and_interval(run: Path) -> None:
    text = shown(run)
    assert re.search(r"rl-0 +rejected +4 +80\.0% +49\.0% to 94\.3%, n = 10 +50\.0%", text)
    assert "rl-0: accuracy fell" in text
    assert re.search(r"rl-1 +waiting", text)
    assert re.search(r"math, pairwise +50\.0% +\S+ +80\.0% +49\.0% to 94\.3%, n = 10", text)
    assert re.search(r"loss +1\.5", text)


def test_locked_run_is_running_and_unlocked_run_is_stopped(run: Path) -> None:
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert look_at(run).pulse == "running"
    text = shown(run)
    assert "zero: stopped" in text
    assert re.search(r"sft-1 +interrupted", text)


def test_status_distinguishes_running_and_killed_runs(run: Path) -> None:
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = CliRunner().invoke(app, ["status", str(run)]).output
    assert re.search(r"sft-1 +running", running)
    assert running.rstrip().endswith("\nrunning")
    killed = CliRunner().invoke(app, ["status", str(run)]).output
    assert re.search(r"sft-1 +interrupted", killed)
    assert killed.rstrip().endswith("stopped before the end; run the same command again to resume")


def test_run_with_all_stages_done_is_finished(run: Path) -> None:
    state = State(command="zero", stages=[StageRecord(name="rl-0", kind="rl", status="done")])
    (run / "state.json").write_text(state.model_dump_json())
    assert "zero: finished" in shown(run)


def test_run_without_metrics_is_shown(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    assert "sft-1, step 0" in shown(run)


def test_remaining_time_is_derived_from_the_last_steps(tmp_path: Path) -> None:
    lines = [
        {"stage": "rl-0", "step": step, "time": 100.0 + 5 * step, NUM_STEPS: 10, "train/loss": 1.0}
        for step in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    state = State(command="zero", stages=[StageRecord(name="rl-0", kind="rl", status="running")])
    (tmp_path / "state.json").write_text(state.model_dump_json())
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Step 3 ended at 115 s. 7 steps of 5 s remain, and 2 s have passed since.
        assert eta_s(look_at(tmp_path, now=117.0)) == 33.0


def test_sparkline_rises_with_its_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], width=8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 1, 1], width=2) == "▁█"
    assert sparkline([0.95, 0.9500000000001, 0.95], width=3) == "▄▄▄"


def test_watch_once_prints_one_view_and_a_missing_run_is_an_error(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command(watch), [str(run), "--once"])
    assert done.exit_code == 0
    assert "sft-1" in done.output
    failed = CliRunner().invoke(command(watch), [str(tmp_path / "none")])
    assert failed.exit_code == 2
    assert f"{tmp_path / 'none'}: no run found" in failed.output
    assert len(failed.output.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["q", "ctrl-c"])
def test_the_live_view_waits_for_a_run_and_ends_cleanly(run: Path, tmp_path: Path, ends: str) -> None:
    begins = tmp_path / "begins"
    # A shell starts its background jobs with SIGINT ignored, and a child process inherits that.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "import typer; from tirjudge_training.watch import watch; a = typer.Typer(); a.command()(watch); a()"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(begins)], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "50"},
    )  # fmt: skip
    os.close(theirs)
    try:
        seen = _read_until(ours, b"waiting")
        run.rename(begins)
        seen += _read_until(ours, b"sft-1")
        drained = threading.Thread(target=_drain, args=(ours,), daemon=True)
        drained.start()
        if ends == "q":
            os.write(ours, b"q")
        else:
            os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
        drained.join(60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"Traceback" not in seen


def _read_until(file: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        assert select.select([file], [], [], 60)[0], f"{wanted!r} was not printed: {seen!r}"
        seen += os.read(file, 65536)
    return seen


def _drain(file: int) -> None:
    try:
        while os.read(file, 65536):
            pass
    except OSError:  # the other end of the terminal was closed
        return


# Plots ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_plots_of_several_runs_have_axes_and_names(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "distill"
    with MetricsWriter(other / "metrics.jsonl") as writer:
        writer.write({**RL, **VALIDATION_VALUES}, stage="rl-0", step=1)
    done = CliRunner().invoke(command(plot), [str(run), str(other), "--out", str(tmp_path / "plots")])
    assert done.exit_code == 0, done.output
    names = {path.stem for path in (tmp_path / "plots").glob("*.png")}
    assert names == {"validation", "accuracy", "reward", "tools", "sampling", "length", "training", "logprobs", "speed"}
    svg = (tmp_path / "plots" / "validation.svg").read_text()
    assert "of held-out items (95 % interval), %" in svg
    assert "zero" in svg
    assert "distill" in svg
    assert "math, pairwise" in (tmp_path / "plots" / "accuracy.svg").read_text()


@pytest.mark.slow
def test_plots_are_reproducible(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "short" / "metrics.jsonl") as writer:
        for step in (1, 2):
            writer.write({"dapo/draws": step}, stage="rl-0", step=step)
    for out in ("a", "b"):
        done = CliRunner().invoke(command(plot), [str(tmp_path / "short"), "--out", str(tmp_path / out)])
        assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"sampling.svg", "sampling.png"}
    svg = (tmp_path / "a" / "sampling.svg").read_bytes()
    assert b"draws a step" in svg
    assert svg == (tmp_path / "b" / "sampling.svg").read_bytes()
    steps = re.findall(rb">([\d.]+)</text>", svg.partition(b"matplotlib.axis_1")[2].partition(b"matplotlib.axis_2")[0])
    assert [float(step) for step in steps] == [1, 2]


def test_legend_of_long_names_is_whole(tmp_path: Path) -> None:
    names = [
        f"{name}-with-group-size-16-and-learning-rate-1e-6-seed-0" for name in ("zero", "distill", "ttrl", "artist")
    ]
    for name in names:
        with MetricsWriter(tmp_path / name / "metrics.jsonl") as writer:
            writer.write(VALIDATION_VALUES, stage="rl-0", step=1)
    with rc_context(STYLE):
        figure = draw([read_run(tmp_path / name) for name in names], VALIDATION)
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 < min(axes.get_window_extent().y0 for axes in figure.axes)
    assert [text.get_text() for text in legend.get_texts()] == names


def test_names_of_stages_are_inside_the_axes(run: Path) -> None:
    panels = [metric for metric in METRICS if metric.name == "reward/total"]
    with rc_context(STYLE):
        figure = draw([read_run(run)], panels)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        names = {text.get_text().strip(): text.get_window_extent() for text in axes.texts}
        assert set(names) == {"rl-0", "sft-1"}
        assert min(box.x0 for box in names.values()) >= axes.get_window_extent().x0


def test_plot_of_a_folder_without_a_run_is_a_one_line_error(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command(plot), [str(run), str(tmp_path / "none"), "--out", str(tmp_path / "plots")])
    assert done.exit_code == 2
    assert f"{tmp_path / 'none'}: no measurements found" in done.output


def test_running_mean_uses_fewer_values_at_the_ends() -> None:
    assert running_mean([0.0, 3.0, 6.0, 3.0], width=3) == [1.5, 3.0, 4.0, 4.5]


# Trackers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard", "ignore::DeprecationWarning:torch")
def test_tensorboard_has_the_logged_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    (tracker,) = open_trackers(["tensorboard", "none"], run=tmp_path)
    tracker.log({"reward/Rc": 0.25}, stage="rl-0", step=1)
    tracker.log({"reward/Rc": 0.5}, stage="rl-0", step=2)
    tracker.log({"train/loss": 2.0}, stage="sft-1", step=1)
    tracker.close()
    (again,) = open_trackers(["tensorboard"], run=tmp_path)  # a resumed run repeats step 2
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2.0)  # event files are ordered by the second in their names
    again.log({"reward/Rc": 0.75}, stage="rl-0", step=2)
    again.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard" / "rl-0"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("reward/Rc")] == [(1, 0.25), (2, 0.75)]
    assert (tmp_path / "tensorboard" / "sft-1").is_dir()


def test_error_names_an_unknown_or_missing_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="report_to: unknown tracker mlflow; give tensorboard, wandb, trackio or none"):
        open_trackers(["mlflow"], run=tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # a folder without packages
    for name in ("wandb", "trackio", "tensorboard"):
        if name not in sys.modules:
            with pytest.raises(ValueError, match=f"report_to: {name} given, but it is not installed"):
                open_trackers([name], run=tmp_path)


def test_an_interruption_says_how_to_go_on() -> None:
    output = StringIO()
    with pytest.raises(KeyboardInterrupt), Reporter(console=Console(file=output, width=20)):
        raise KeyboardInterrupt
    assert output.getvalue() == "interrupted; run the same command again to resume\n"


def test_a_log_file_shows_the_start_the_first_step_and_then_every_nth() -> None:
    output = StringIO()
    with Reporter(console=Console(file=output, width=20), line_every=50) as reporter:
        reporter.began(StageRecord(name="stage 1 of 1", kind="sft"))
        assert output.getvalue() == "stage 1 of 1: starting\n"
        for step in range(7, 102):
            reporter.moved("training", step, 300, {"train/loss": 0.5})
    shown = [line.split()[-1] for line in output.getvalue().splitlines()[1:]]
    assert shown == ["7/300", "50/300", "100/300"]
