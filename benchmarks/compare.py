"""Compare the speed of this working tree with the speed of another commit, on this machine, in alternating runs.

    python -m benchmarks.compare COMMIT [--rounds 5] [--only sandbox]
    make bench BASE=COMMIT

Each round runs the suites of `benchmarks/pieces` twice: with the packages of this tree and with those of COMMIT, which is
checked out into a temporary folder. The order changes from round to round. The ratio of a benchmark is the median time in
this tree divided by the median time in COMMIT, within one round; above 1, this tree is slower. The table shows the median
and the quartiles over the rounds. A benchmark that COMMIT cannot run is left out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parents[1]
PACKAGES = "*/tirjudge*/__init__.py"
PLUGINS = ("benchmark", "no:cacheprovider", "no:schemathesis", "no:hypothesispytest")
"""Plugins of pytest that are switched on or off. The last two load slowly."""


def main(
    commit: Annotated[str, typer.Argument(help="Commit to compare with.")],
    rounds: Annotated[int, typer.Option(min=2, help="Runs of each tree.")] = 5,
    only: Annotated[str, typer.Option(help="Expression for `pytest -k`: the benchmarks to run.")] = "",
    max_time: Annotated[float, typer.Option(help="Seconds per benchmark and run.")] = 0.3,
) -> None:
    """Print one line per benchmark: its time in this tree, and the ratio to its time in COMMIT."""
    console = Console(width=160)
    ours: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    with checked_out(commit) as base:
        for number in track(range(rounds), description="Rounds", console=Console(stderr=True)):
            trees = (ROOT, base) if number % 2 else (base, ROOT)
            medians = {tree: run_suites(tree, only=only, max_time=max_time) for tree in trees}
            for name in medians[ROOT].keys() & medians[base].keys():
                ours.setdefault(name, []).append(medians[ROOT][name])
                ratios.setdefault(name, []).append(medians[ROOT][name] / medians[base][name])
    table = Table("benchmark", "this tree, µs", escape(f"ratio to {commit}"), "quartiles", box=None)
    for name in sorted(ratios):
        low, median, high = statistics.quantiles(ratios[name], n=4, method="inclusive")
        time_us = f"{statistics.median(ours[name]) * 1e6:.1f}"
        table.add_row(escape(name), time_us, f"{median:.2f}", f"{low:.2f} to {high:.2f}")
    console.print(table)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """A temporary folder with the files of a commit.

    Raises:
        CalledProcessError: `commit` is not a commit of this repository.
    """
    with TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=packed)
        yield Path(folder)


def run_suites(tree: Path, *, only: str, max_time: float) -> dict[str, float]:
    """Median seconds of each benchmark of this tree's suites, with the packages of `tree`."""
    rooms = sorted({str(file.parents[1]) for file in tree.glob(PACKAGES)})
    with TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "pytest", *(f"-p{name}" for name in PLUGINS), "benchmarks/pieces"]
        command += ["-k", only, "--benchmark-only", f"--benchmark-max-time={max_time}", f"--benchmark-json={result}"]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(rooms)}
        )
        if not result.exists() or not result.stat().st_size:
            raise SystemExit(f"no benchmark ran in {tree}:\n{done.stdout[-3000:]}{done.stderr}")
        benchmarks = json.loads(result.read_text(encoding="utf-8"))["benchmarks"]
    return {one["fullname"].removeprefix("benchmarks/pieces/"): one["stats"]["median"] for one in benchmarks}


if __name__ == "__main__":
    typer.run(main)
