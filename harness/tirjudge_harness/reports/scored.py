"""Stored runs, scored anew: from the folder of a run to its marks and figures, by the run's own protocol or another.

No text and no judge is needed. What a protocol needs and a run does not have (a second order, as many votes) is said, and
nothing is scored in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tirjudge_harness.benchmark import BENCHMARKS, Benchmark
from tirjudge_harness.best_of_n.run import SELECTIONS
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import EvaluationCounts, evaluate
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.metric_tree import ComparisonScore, MetricValue
from tirjudge_harness.protocols import Protocol, find_protocol
from tirjudge_harness.run import MANIFEST, OUTLINES, RunManifest, load_run


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A run by one protocol."""

    path: Path
    manifest: RunManifest
    benchmark: Benchmark
    protocol: Protocol
    examples: list[JudgedExample]
    """All of the run; those that are missing have no decisions."""
    marks: list[ComparisonScore]
    figures: list[MetricValue]
    """Of the benchmark's sheet, with intervals, each before its parts."""
    counts: EvaluationCounts
    num_failures: int
    """Questions that we failed at and that have no answer."""

    @property
    def judged(self) -> list[JudgedExample]:
        """The examples that were judged."""
        return [one for one in self.examples if one.decisions]

    def figure(self, name: str) -> MetricValue | None:
        """The first of that name; None: the benchmark has none."""
        return next((figure for figure in self.figures if figure.name == name), None)


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """The folders of runs among these, and directly in them, as a command over several benchmarks leaves them.

    Runs of best-of-N that lie among others are passed over: they have a table of their own.

    Raises:
        InputError: there is none in one of them.
    """
    return [folder for path in paths for folder in _folders_in(path)]


def _folders_in(path: Path) -> Iterator[Path]:
    inside = sorted(file.parent for file in path.glob(f"*/{MANIFEST}"))
    found = [folder for folder in ([path] if (path / MANIFEST).is_file() else inside) if not _chooses(folder)]
    if not found and (_chooses(path) or inside):
        raise InputError(f"{path} holds best-of-N and no other run; `tirjudge bench report --shape best_of_n` shows it")
    if not found:
        raise InputError(f"{path} holds no run: no {MANIFEST} in it, nor in a folder in it; give the --out of a run")
    yield from found


def _chooses(path: Path) -> bool:
    """Whether a folder is of `tirjudge bench best-of-n`, which writes selections where other runs have outlines."""
    return (path / SELECTIONS).is_file() and not (path / OUTLINES).is_file()


def score_run(path: Path, *, protocol: str | None = None) -> ScoredRun:
    """Score a stored run.

    Args:
        path: its folder.
        protocol: the name of one; None: the run's own.

    Raises:
        InputError: it is no run, its benchmark is not installed, or it does not have what the protocol needs.
    """
    run = load_run(path)
    with as_input_error(path):
        benchmark = BENCHMARKS.named(run.manifest.benchmark)
        by = find_protocol(protocol or run.manifest.protocol)
        votes = run.manifest.votes
        if by.votes != votes:
            an_order = f"{by.votes} vote{'s' if by.votes > 1 else ''} an order"
            fitting = "paper, official or both_orders" if votes == 1 else f"votes={votes}"
            raise ValueError(f"protocol: {by.name} counts {an_order}, and the run has {votes}; give {fitting}")
        evaluation = evaluate(benchmark, run.examples, mode=run.manifest.mode, protocol=by)
    return ScoredRun(
        path=path,
        manifest=run.manifest,
        benchmark=benchmark,
        protocol=by,
        examples=run.examples,
        marks=evaluation.marks,
        figures=evaluation.figures,
        counts=evaluation.counts,
        num_failures=len(run.failures),
    )
