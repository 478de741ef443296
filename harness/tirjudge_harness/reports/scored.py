"""Score stored runs again: compute the comparison scores and figures of a run folder, by the run's protocol or another.

Neither texts nor a judge are needed. If a run lacks something that the protocol needs (a second order, or votes), scoring
raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tirjudge.counted import counted
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.best_of_n.run import SELECTIONS
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import EvaluationCounts, evaluate
from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.metric_tree import ComparisonScore, MetricValue
from tirjudge_harness.own_data.benchmark import benchmark_of
from tirjudge_harness.protocols import Protocol, find_protocol
from tirjudge_harness.run import MANIFEST, OUTLINES, PlannedExample, RunManifest, load_run
from tirjudge_harness.run_store import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A stored run, scored by one protocol."""

    path: Path
    """Folder of the run."""
    manifest: RunManifest
    benchmark: Benchmark
    protocol: Protocol
    """The protocol of the scores."""
    examples: list[JudgedExample]
    """All examples of the run. Missing ones have no decisions."""
    marks: list[ComparisonScore]
    """Scores of all comparisons."""
    figures: list[MetricValue]
    """Figures of the benchmark with intervals. Each figure precedes its parts."""
    unforced: list[MetricValue]
    """The figures with forced verdicts counted as none. Empty: no verdict was forced."""
    counts: EvaluationCounts
    planned: list[PlannedExample]
    """All examples with the keys of their requests."""
    failures: list[Failure]
    """The requests that failed and have no judgment."""

    @property
    def num_failures(self) -> int:
        """Number of requests that failed and have no judgment."""
        return len(self.failures)

    @property
    def place(self) -> str:
        """Where the run is, for readers: its folder, or its name and id if it is one of an eval."""
        found = self.manifest.data.eval
        if found is None:
            return str(self.path)
        return f"{found.run_name} ({found.run_id})" if found.run_name else found.run_id

    @property
    def judged(self) -> list[JudgedExample]:
        """The examples with decisions."""
        return [one for one in self.examples if one.decisions]

    def figure(self, name: str) -> MetricValue | None:
        """Return the first figure with this name. None: the benchmark has no such figure."""
        return next((figure for figure in self.figures if figure.name == name), None)


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of runs among these paths and one level below them.

    Best-of-N runs next to other runs are skipped, because they have a different table.

    Raises:
        InputError: a path contains no run, or only best-of-N runs.
    """
    return [folder for path in paths for folder in _folders_in(path)]


def folders_with(name: str, *, path: Path) -> list[Path]:
    """Return the folders that contain a file: `path` itself if it does, otherwise all such folders below it."""
    return [path] if (path / name).is_file() else sorted(file.parent for file in path.glob(f"*/{name}"))


def _folders_in(path: Path) -> list[Path]:
    folders = folders_with(MANIFEST, path=path)
    found = [folder for folder in folders if not _is_best_of_n(folder)]
    if not found and folders:
        raise InputError(
            f"{path} contains only best-of-N runs; show them with `tirjudge bench report --shape best_of_n`"
        )
    if path.is_file():
        raise InputError(
            f"{path} is a file; reports are about runs: `tirjudge bench run --data FILE --out FOLDER` makes one"
        )
    if not found:
        raise InputError(
            f"{path}: no run found (no {MANIFEST} there or one folder below); give the --out folder of a run"
        )
    return found


def _is_best_of_n(path: Path) -> bool:
    """Whether a folder is of `tirjudge bench best-of-n`, which writes selections instead of outlines."""
    return (path / SELECTIONS).is_file() and not (path / OUTLINES).is_file()


def score_run(path: Path, *, protocol: str | None = None, with_texts: bool = True) -> ScoredRun:
    """Score a stored run.

    Args:
        path: folder of the run.
        protocol: name of the protocol. None: the protocol of the run.
        with_texts: whether the judgments have the texts of their turns. Figures need none.

    Raises:
        InputError: the folder is not a run, its benchmark is not installed, or it lacks judgments for the protocol.
    """
    run = load_run(path, with_texts=with_texts)
    with as_input_error(path):
        benchmark = benchmark_of(run.manifest, run.outlines)
        by = find_protocol(protocol or run.manifest.protocol)
        votes = run.manifest.votes
        if by.votes != votes:
            per_order = f"{counted(by.votes, 'vote')} per order"
            fitting = "paper, official, single_game or both_orders" if votes == 1 else f"votes={votes}"
            raise ValueError(f"protocol: {by.name} needs {per_order}, but the run has {votes}; give {fitting}")
        evaluation = evaluate(benchmark, run.examples, mode=run.manifest.mode, protocol=by)
    return ScoredRun(
        path=path,
        manifest=run.manifest,
        benchmark=benchmark,
        protocol=by,
        examples=run.examples,
        marks=evaluation.marks,
        figures=evaluation.figures,
        unforced=evaluation.unforced,
        counts=evaluation.counts,
        planned=run.planned,
        failures=run.failures,
    )
