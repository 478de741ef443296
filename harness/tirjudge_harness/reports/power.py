"""Plan a comparison of two judges: how many comparisons it needs, and which difference a benchmark can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge_harness.items import InputError, as_input_error
from tirjudge_harness.reports.common_rows import common_rows_of
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent, row
from tirjudge_harness.statistics.power import (
    MAX_ITEMS,
    Goal,
    PairRates,
    detectable_difference,
    items_needed,
    power_of,
    rates_of,
    rates_with,
)

COLUMNS = (
    Column(key="question", title="", kind="text"),
    Column(key="difference", title="Difference, points", kind="number"),
    Column(key="comparisons", title="Comparisons", kind="count"),
    Column(key="discordant", title="Differ, %"),
    Column(key="power", title="Power, %"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedJudges:
    """What a plan assumes about the judges. Shares are from 0 to 1."""

    accuracy: float
    """Accuracy of the first judge."""
    agreement: float | None
    """Share of comparisons on which both are right or both are wrong. None: independent errors."""


def power_table(
    *,
    goal: Goal,
    differences: Sequence[float],
    assumed: AssumedJudges,
    runs: Sequence[ScoredRun] = (),
    num_items: int | None = None,
) -> ReportTable:
    """Return the number of comparisons for each difference, and the difference that a number of comparisons can show.

    Args:
        goal: significance level and power.
        differences: differences to find, 0 to 1.
        assumed: assumptions where no runs tell.
        runs: none; one run, which gives the accuracy and the number of comparisons; or two runs of one benchmark, which also
            give how often judges differ.
        num_items: number of comparisons. None: that of the runs.

    Raises:
        InputError: too many runs, a run without comparisons that are right or wrong, runs that cannot be
            compared, or assumptions that contradict each other.
    """
    if len(runs) > 2:
        raise InputError(f"give at most two runs, got {len(runs)}")
    for run in runs:
        _check_has_comparisons(run)
    observed = None
    notes = [_goal_line(goal)]
    if len(runs) == 2:
        first, second = runs
        found = common_rows_of(first, second)
        common = found.common
        observed = rates_of(common)
        num_items = num_items or len(common.first)
        notes.append(_observed_line(observed, num=len(common.first)))
        notes += [f"Left out: {found.left_out}."] if found.left_out else []
    elif runs:
        (run,) = runs
        accuracy = sum(mark.credit for mark in run.marks) / len(run.marks)
        assumed = AssumedJudges(accuracy=accuracy, agreement=assumed.agreement)
        num_items = num_items or len(run.marks)
        notes.append("Several comparisons of one prompt count as independent here; two runs give their effect.")
    if observed is None:
        notes.append(_assumed_line(assumed))

    def rates(difference: float) -> PairRates:
        if observed is not None:
            return observed.with_difference(difference)
        return rates_with(accuracy=assumed.accuracy, difference=difference, agreement=assumed.agreement)

    with as_input_error():
        equal = rates(0.0)
    rows = []
    for difference in differences:
        try:
            rows.append(_needed(rates(difference), goal=goal))
        except ValueError as error:
            rows.append(row(_NEEDED, 100 * difference, "not possible", percent(equal.discordant), None, ours=True))
            notes.append(f"{100 * difference:g} points: {error}.")
    if num_items is not None:
        rows += _shown(equal, observed=observed, num_items=num_items, goal=goal)
    return ReportTable(
        title="Sample sizes of a paired comparison", columns=COLUMNS, rows=tuple(rows), notes=tuple(notes)
    )


def _check_has_comparisons(run: ScoredRun) -> None:
    """Raise InputError if a run has no comparison that is right or wrong."""
    if run.marks:
        return
    if not run.judged:
        raise InputError(f"{run.path}: nothing was judged; continue the run")
    raise InputError(
        f"{run.path}: {run.benchmark.name} has no comparison that is right or wrong among {len(run.judged)} judged examples, "
        "and the power of McNemar's test needs such comparisons; give a run on pairs with a right response, or no run and "
        "--accuracy and --items"
    )


_NEEDED = "comparisons needed for this difference"


def _needed(rates: PairRates, *, goal: Goal) -> TableRow:
    num = items_needed(rates, goal=goal)
    entry = TableEntry(value=f"more than {MAX_ITEMS:,}") if num is None else TableEntry(value=num)
    found = None if num is None else power_of(rates, num_items=num, goal=goal)
    return _row(_NEEDED, rates, num=entry, power=found)


def _shown(rates: PairRates, *, observed: PairRates | None, num_items: int, goal: Goal) -> list[TableRow]:
    """Return the difference that a number of comparisons can show, and the power for the observed difference."""
    num = TableEntry(value=num_items)
    smallest = detectable_difference(rates, num_items=num_items, goal=goal)
    name = "smallest difference that these comparisons show"
    if smallest is None:
        found = [row(f"{name}: none", None, num, percent(rates.discordant), None, ours=True)]
    else:
        at = rates.with_difference(smallest)
        found = [_row(name, at, num=num, power=power_of(at, num_items=num_items, goal=goal))]
    if observed is not None:
        power = power_of(observed, num_items=num_items, goal=goal)
        found.append(_row("power for the observed difference", observed, num=num, power=power))
    return found


def _row(name: str, rates: PairRates, *, num: TableEntry, power: float | None) -> TableRow:
    return row(name, 100 * rates.difference, num, percent(rates.discordant), percent(power), ours=True)


def _goal_line(goal: Goal) -> str:
    return (
        f"Power {goal.power:.0%} at a significance level of {goal.alpha:.3g}, two-sided: exact power of McNemar's test. "
        "Difference: share of comparisons on which the second judge is better, less the share on which it is worse."
    )


def _observed_line(rates: PairRates, *, num: int) -> str:
    each = f"{rates.design_effect:.2f} comparisons count as one, because comparisons of one prompt are alike"
    independent = "prompts have one comparison each, or their comparisons are not alike"
    return (
        f"Observed on {num:,} common comparisons: better on {rates.better:.1%}, worse on {rates.worse:.1%}; "
        f"{each if rates.design_effect > 1 else independent}."
    )


def _assumed_line(assumed: AssumedJudges) -> str:
    how = "independent errors" if assumed.agreement is None else f"agreement on {assumed.agreement:.1%} of comparisons"
    return f"Assumed: accuracy {assumed.accuracy:.1%} of the first judge, {how}."
