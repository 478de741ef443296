"""Plots of small runs: the data in them, and the format of the files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.plots import STYLE, accuracy_by_tokens, labels_of, orders, reliability, write_plots
from tirjudge_harness.reports.scored import ScoredRun, score_run

Draw = Callable[[Sequence[ScoredRun], Sequence[str]], Figure | None]


@pytest.fixture
def runs(make_run: MakeRun) -> list[ScoredRun]:
    flipping = [Pair(id=f"p{n}", named=(0, int(n > 2))) for n in range(4)]
    single = [Pair(id=f"p{n}", probability=0.6) for n in range(4)]
    return [
        score_run(make_run(flipping, folder="both")),
        score_run(make_run(single, folder="one", model="$x_1$ <b> [red]")),
    ]


@pytest.mark.slow
def test_every_plot_is_written_as_svg_and_png(runs: list[ScoredRun], tmp_path: Path) -> None:
    files = write_plots(runs, out=tmp_path / "plots")
    names = ("accuracy-tokens", "accuracy-seconds", "reliability", "orders")
    assert [file.name for file in files] == [f"{name}.{kind}" for name in names for kind in ("svg", "png")]
    for file in files:
        if file.suffix == ".svg":
            text = "".join(ElementTree.fromstring(file.read_text(encoding="utf-8")).itertext())
            assert "$x_1$ <b> [red], pairwise, JudgeBench" in text
        else:
            assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_plots_of_the_same_runs_are_identical(runs: list[ScoredRun], tmp_path: Path) -> None:
    first = write_plots(runs[:1], out=tmp_path / "a")
    second = write_plots(runs[:1], out=tmp_path / "b")
    assert first[0].read_bytes() == second[0].read_bytes()


def test_accuracy_is_plotted_against_tokens_per_judgment(runs: list[ScoredRun]) -> None:
    canvas = accuracy_by_tokens(runs, labels_of(runs))
    assert canvas is not None
    points = [container.lines[0].get_xydata().tolist() for container in canvas.axes[0].containers]
    assert points == [[[20.0, 75.0]], [[20.0, 100.0]]]


def test_reliability_has_one_point_per_bin(runs: list[ScoredRun]) -> None:
    canvas = reliability(runs, labels_of(runs))
    assert canvas is not None
    points = [container.lines[0].get_xydata().tolist() for container in canvas.axes[0].containers]
    # Seven of eight choices with 90 % confidence are right, and all of four with 60 %.
    assert points == [[[pytest.approx(90.0), 87.5]], [[pytest.approx(60.0), 100.0]]]


def test_flips_are_plotted_only_for_runs_in_both_orders(runs: list[ScoredRun]) -> None:
    canvas = orders(runs, labels_of(runs))
    assert canvas is not None
    flips, firsts = canvas.axes
    assert [container.lines[0].get_xydata().tolist() for container in flips.containers] == [[[25.0, 0]]]
    assert [container.lines[0].get_xydata().tolist() for container in firsts.containers] == [[[62.5, 0]], [[100.0, 1]]]


def test_equal_labels_get_the_folders_of_their_runs(make_run: MakeRun) -> None:
    runs = [score_run(make_run([Pair(id="a")], folder=f"{name}/judgebench")) for name in ("x", "y")]
    assert labels_of(runs) == [f"tiny, pairwise, JudgeBench ({name}/judgebench)" for name in ("x", "y")]


LONG = "organization-with-a-name/Model-30B-A3B-Instruct-FP8-dynamic"


@pytest.fixture
def long_names(make_run: MakeRun) -> list[ScoredRun]:
    folders = [f"both-orders-of-the-responses-with-seed-{n}/judgebench" for n in range(4)]
    pairs = [Pair(id=f"p{n}", named=(0, int(n > 2))) for n in range(4)]
    return [score_run(make_run(pairs, folder=folder, model=LONG)) for folder in folders]


@pytest.mark.parametrize("draw", [accuracy_by_tokens, reliability])
def test_legends_of_long_names_are_whole(draw: Draw, long_names: list[ScoredRun]) -> None:
    with rc_context(STYLE):
        canvas = draw(long_names, labels_of(long_names))
        assert canvas is not None
        canvas.draw_without_rendering()
        (legend,) = canvas.legends
        inside = legend.get_window_extent()
        assert inside.x0 >= 0
        assert inside.x1 <= canvas.bbox.width
        assert inside.y0 >= 0
        assert inside.y1 < canvas.axes[0].get_window_extent().y0
    texts = [text.get_text().replace("\n", "").replace(" ", "") for text in legend.get_texts()]
    for label in labels_of(long_names):
        assert any(text.startswith(label.replace(" ", "")) for text in texts)


def test_labels_of_long_names_beside_the_axis_are_whole(long_names: list[ScoredRun]) -> None:
    with rc_context(STYLE):
        canvas = orders(long_names, labels_of(long_names))
        assert canvas is not None
        canvas.draw_without_rendering()
        boxes = [label.get_window_extent() for label in canvas.axes[0].get_yticklabels()]
    assert len(boxes) == 4
    assert min(box.x0 for box in boxes) >= 0
    assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(boxes))


def test_a_run_without_judgments_has_no_plot(make_run: MakeRun, tmp_path: Path) -> None:
    assert write_plots([score_run(make_run([Pair(id="a")], unjudged=["a"]))], out=tmp_path / "plots") == []


def test_a_folder_that_cannot_be_written_is_refused(runs: list[ScoredRun], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file: .*give a folder that can be written"):
        write_plots(runs, out=tmp_path / "file")
