"""Coverage and selective accuracy as text, for the notes of tables."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.selective import GradedItem, SelectiveAccuracy, selective_accuracy
from tirjudge_harness.statistics.paired import Common


def selective_line(found: SelectiveAccuracy) -> str:
    """Return coverage and selective accuracy as one line, with the share and the accuracy of each basis."""
    shown = [verdicts_line(found)]
    for name, group in found.by_basis.items():
        accuracy = f" (accuracy {_rate(group.accuracy)})" if group.num else ""
        shown.append(f"{name} {_rate(group.share)}{accuracy}")
    return "; ".join(shown)


def verdicts_line(found: SelectiveAccuracy) -> str:
    """Return coverage and the accuracy of the verdicts as one line."""
    return f"coverage {_rate(found.coverage)}, accuracy of the verdicts {_rate(found.accuracy)}"


def common_line(common: Common) -> str:
    """Return coverage of two runs on their common comparisons, and their accuracies where both have a verdict."""
    pairs = [(one.graded, other.graded) for one, other in zip(common.first, common.second, strict=True)]
    both = [pair for pair in pairs if pair[0].has_verdict and pair[1].has_verdict]

    def of_each(chosen: Sequence[tuple[GradedItem, GradedItem]]) -> tuple[SelectiveAccuracy, SelectiveAccuracy]:
        return selective_accuracy(one for one, _ in chosen), selective_accuracy(other for _, other in chosen)

    (first, second), (first_of_both, second_of_both) = of_each(pairs), of_each(both)
    return (
        f"coverage {_rate(first.coverage)} and {_rate(second.coverage)}; accuracy where both have a verdict "
        f"{_rate(first_of_both.accuracy)} and {_rate(second_of_both.accuracy)} (n {len(both):,})"
    )


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
