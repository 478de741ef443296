"""The benchmark of a run on a user's file: its metrics and modes, from the mapping of the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tirjudge.right import scores_of
from tirjudge.types import Mode
from tirjudge_harness.benchmark import BENCHMARKS, Benchmark, every_pair
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evals.criteria import eval_benchmark
from tirjudge_harness.examples import ExampleMetadata, models_of
from tirjudge_harness.metric_tree import FormulaMetric, MeanMetric, Node, cells_by
from tirjudge_harness.own_data.mapping import ColumnMapping
from tirjudge_harness.own_data.rows import RATING
from tirjudge_harness.run import RunManifest
from tirjudge_harness.statistics.ranks import Ranks, ranks_of

ACCURACY = "accuracy"
"""Name of the main figure of files with labels."""

PAIRS_RANKED_RIGHT = "pairs ranked right"
"""Name of the main figure of files with ratings."""


def benchmark_of(manifest: RunManifest, outlines: Sequence[ExampleMetadata]) -> Benchmark:
    """Return the benchmark of a run: an installed one, that of the user's file, or that of an eval.

    Raises:
        ValueError: the benchmark is not installed.
    """
    if manifest.data.eval is not None:
        return eval_benchmark(manifest.data.eval)
    if manifest.data.columns is None:
        return BENCHMARKS.named(manifest.benchmark)
    return own_benchmark(manifest.data.columns, name=manifest.benchmark, outlines=outlines)


def own_benchmark(columns: ColumnMapping, *, name: str, outlines: Sequence[ExampleMetadata]) -> Benchmark:
    """Return the benchmark of a user's file.

    Args:
        columns: the meaning of the columns.
        name: name of the file.
        outlines: the examples of the file.
    """
    subsets = sorted({outline.subset for outline in outlines})
    is_rated = columns.layout == "rated"
    others = (Mode.LISTWISE, Mode.PAIRWISE, Mode.POINTWISE)
    if all(outline.num_responses == 2 for outline in outlines):
        others = (Mode.PAIRWISE, Mode.POINTWISE, Mode.LISTWISE)
    return Benchmark(
        name=name,
        title=name,
        citation="",
        sources={},
        columns=tuple(columns.used),
        examples=lambda row, part: (),
        sheet=_of_ratings(subsets) if is_rated else _of_labels(subsets),
        modes=(Mode.POINTWISE,) if is_rated else others,
        compared=_compared,
    )


def _compared(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    """Return the comparisons of an example. One without a right response has none, unless it names two models, whose
    ranking also counts the pairs that people call a tie."""
    if outline.correct:
        return every_pair(outline, mode)
    return [(0, 1)] if models_of(outline) is not None else []


def _of_labels(subsets: Sequence[str]) -> tuple[Node, ...]:
    parts = cells_by("subset", subsets) if len(subsets) > 1 else ()
    return (MeanMetric(name=ACCURACY, holds=lambda mark: True), *parts)


def _of_ratings(subsets: Sequence[str]) -> tuple[Node, ...]:
    def of(value: Callable[[Ranks], float | None]) -> Callable[[Sequence[JudgedExample]], float | None]:
        return lambda judged: value(_ranks(judged))

    def scored_in(subset: str) -> Callable[[JudgedExample], bool]:
        return lambda judged: judged.outline.subset == subset and _is_scored(judged)

    accuracy = of(lambda ranks: ranks.pair_accuracy)
    spearman, kendall = of(lambda ranks: ranks.spearman), of(lambda ranks: ranks.kendall)
    return (
        FormulaMetric(name=PAIRS_RANKED_RIGHT, compute=accuracy, holds=_is_scored),
        FormulaMetric(name="pairs of one prompt ranked right", compute=_within_prompts, holds=_is_scored),
        FormulaMetric(name="Spearman's rho x 100", compute=spearman, holds=_is_scored, bounded=False),
        FormulaMetric(name="Kendall's tau-b x 100", compute=kendall, holds=_is_scored, bounded=False),
        *(
            FormulaMetric(name=f"pairs of {subset}", compute=accuracy, holds=scored_in(subset))
            for subset in (subsets if len(subsets) > 1 else ())
        ),
    )


def _ranks(judged: Sequence[JudgedExample]) -> Ranks:
    """Compare the judge's scores with the ratings."""
    pairs = [(score, one.outline.facts[RATING]) for one in judged if (score := _score(one)) is not None]
    return ranks_of([score for score, _ in pairs], [rating for _, rating in pairs])


def _within_prompts(judged: Sequence[JudgedExample]) -> float | None:
    """Return the accuracy over pairs of responses to the same prompt. None: no such pair has different ratings."""
    prompts: dict[str, list[JudgedExample]] = {}
    for one in judged:
        prompts.setdefault(one.outline.cluster, []).append(one)
    ranks = [_ranks(same) for same in prompts.values() if len(same) > 1]
    num_pairs = sum(one.num_pairs for one in ranks)
    return sum(one.right for one in ranks) / num_pairs if num_pairs else None


def _score(one: JudgedExample) -> float | None:
    return scores_of(one.decisions, expected=False).get(0)


def _is_scored(one: JudgedExample) -> bool:
    """Whether the judge gave a score. Examples without a score are in no figure of a file with ratings."""
    return _score(one) is not None
