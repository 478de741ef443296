"""Tables of evaluations: the figures of a benchmark, and accuracy and agreement for a file of labelled examples."""

from __future__ import annotations

from tirjudge_harness.evaluation import Evaluation
from tirjudge_harness.labelled import Labelled
from tirjudge_harness.reports.selective import selective_line
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, percent_of, row
from tirjudge_harness.statistics.agreement import Agreement

UNFORCED = Column(key="unforced", title="forced as none, %", ends=True)
"""Column of the figures in which a forced verdict counts as none."""

NAME, VALUE, NUM = (
    Column(key="figure", title="", kind="text"),
    Column(key="value", title="% (95 %)", ends=True),
    Column(key="num", title="n", kind="count"),
)


def evaluation_table(evaluation: Evaluation, *, title: str) -> ReportTable:
    """Return a table of the figures of a benchmark, with intervals. If verdicts were forced, a second column has the figures
    with these counted as none."""
    shown = zip(evaluation.figures, evaluation.unforced or [None] * len(evaluation.figures), strict=True)
    return ReportTable(
        title=title,
        columns=(NAME, VALUE, *([UNFORCED] if evaluation.unforced else []), NUM),
        rows=tuple(
            row(
                one.name,
                percent_of(one),
                *([] if other is None else [percent_of(other)]),
                one.num_marks,
                depth=one.depth,
            )
            for one, other in shown
        ),
        notes=(_counted(evaluation), *([selective_line(evaluation.selective)] if evaluation.marks else [])),
    )


def labelled_tables(labelled: Labelled, *, title: str) -> list[ReportTable]:
    """Return a table of accuracy by each counting rule, and a table of agreement if there is an agreement to show."""
    evaluations = labelled.by_rule
    notes = [f"{rule}: {_counted(one)}; {selective_line(one.selective)}" for rule, one in evaluations.items()]
    if labelled.num_unlabelled:
        notes.append(f"{labelled.num_unlabelled} examples without exactly one right response are left out of accuracy")
    accuracy = ReportTable(
        title=f"{title}, accuracy in %",
        columns=(NAME, *(Column(key=rule, title=rule) for rule in evaluations), NUM),
        rows=tuple(
            row(figures[0].name or "(none)", *map(percent_of, figures), figures[0].num_marks)
            for figures in zip(*(evaluation.figures for evaluation in evaluations.values()), strict=True)
        ),
        notes=tuple(notes),
    )
    kappa = Column(key="kappa", title="kappa", kind="number")
    rows = []
    if labelled.agreement is not None:
        rows.append(_agreement("first presentation and label", labelled.agreement))
    if (both := labelled.both_orders) is not None:
        rows.append(_agreement("first order and second", both.agreement))
        rows.append(row("flips, of decided", percent_of(both.flips.rate), None, both.flips.rate.num))
    columns = (NAME, Column(key="value", title="%"), kappa, NUM)
    return [accuracy, *([ReportTable(title="Agreement", columns=columns, rows=tuple(rows))] if rows else [])]


def _agreement(name: str, agreement: Agreement) -> TableRow:
    kappa = TableEntry(value=agreement.kappa, interval=agreement.interval)
    return row(name, percent_of(agreement.same), kappa, agreement.same.num)


def _counted(evaluation: Evaluation) -> str:
    counts = evaluation.counts
    more = f"; {counts.labeled_ties} labeled as a tie, not scored" if counts.labeled_ties else ""
    more += f"; {counts.forced} of {counts.decisions} decisions forced" if counts.forced else ""
    if not counts.marks and not counts.missing:
        return (
            f"{counts.examples} examples without comparisons: {counts.with_verdict} with a verdict, "
            f"{counts.without_verdict} without a verdict, {counts.unjudged} not judged{more}"
        )
    return (
        f"{counts.marks} comparisons of {counts.examples} examples: {counts.right} right, {counts.wrong} wrong, "
        f"{counts.ties} ties, {counts.no_verdict} without a verdict; {counts.missing} missing{more}"
    )
