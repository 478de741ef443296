"""An eval as a benchmark: an item is a row with one criterion, or with all criteria, and right means passed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evals.objects import EvalDefinition
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import FormulaMetric, FormulaOfMeans, Node, cells_by
from tirjudge_harness.run import EvalCriterion, EvalManifest

ALL = "all criteria"
"""Name of the result of a row by all criteria."""

DETERMINISTIC = ("string_check", "text_similarity", "python")
"""Types of criteria that use no model."""

_WITHOUT_SCORES = ("string_check", "label_model")
"""Types of criteria whose score is 0 or 1, so that its mean is the share of passed rows."""


def criteria_of(definition: EvalDefinition) -> tuple[EvalCriterion, ...]:
    """Return the criteria of an eval under unique names."""
    found: list[EvalCriterion] = []
    taken = {ALL}
    for number, criterion in enumerate(definition.testing_criteria):
        name = str(criterion.get("name") or f"criterion {number + 1}")
        unique, again = name, 1
        while unique in taken:
            again += 1
            unique = f"{name} ({again})"
        taken.add(unique)
        found.append(EvalCriterion(name=unique, type=str(criterion.get("type"))))
    return tuple(found)


def eval_benchmark(manifest: EvalManifest) -> Benchmark:
    """Return the benchmark of an eval: the share of passed rows by all criteria and by each, and the mean of each score."""
    names = [one.name for one in manifest.criteria]
    scored = [one.name for one in manifest.criteria if one.type not in _WITHOUT_SCORES]
    sheet: list[Node] = list(cells_by("subset", [ALL, *names] if len(names) > 1 else names))
    sheet += [_mean_score(name) for name in scored]
    return Benchmark(
        name=manifest.name,
        title=manifest.name,
        citation="",
        sources={},
        columns=(),
        examples=lambda row, part: (),
        sheet=tuple(sheet),
        modes=(Mode.RULES,),
        compared=_alone,
    )


def _alone(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    return [(0,)]


def _mean_score(name: str) -> FormulaMetric:
    return FormulaMetric(
        name=f"{name}: mean score x 100",
        compute=FormulaOfMeans(each=_score, value=lambda means: means[0]),
        holds=_is_of(name),
        bounded=False,
    )


def _is_of(name: str) -> Callable[[JudgedExample], bool]:
    return lambda judged: judged.outline.subset == name


def _score(judged: JudgedExample) -> Sequence[float] | None:
    """Return the score of a row. None: it has none."""
    reasons = [
        reason
        for judgment in judged.judgments
        for checks in judgment.checks
        for check in checks
        for reason in check.reasons
    ]
    value = reasons[0].value if reasons else None
    return [float(value)] if isinstance(value, int | float) else None
