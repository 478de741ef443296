"""Estimate what people would say about all examples of a run, from labels of some of them and the judge's verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tirjudge.counted import counted
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import models_of
from tirjudge_harness.human_labels import HumanLabels, read_labels
from tirjudge_harness.items import as_input_error
from tirjudge_harness.preferences import judged_in, preference_of, score_of
from tirjudge_harness.reports.tables import Column, Kind, ReportTable, TableEntry, TableRow, row
from tirjudge_harness.run import read_manifest
from tirjudge_harness.statistics.agreement import agreement_of
from tirjudge_harness.statistics.intervals import Estimate
from tirjudge_harness.statistics.prediction_powered import (
    MIN_LABELED,
    PredictionPowered,
    labels_alone,
    prediction_powered,
    surprises_of,
)

COLUMNS = (
    Column(key="figure", title="Figure", kind="text"),
    Column(key="people", title="People only (95 %)", ends=True, kind="number"),
    Column(key="judge", title="Judge only", kind="number"),
    Column(key="corrected", title="People and judge (95 %)", ends=True, kind="number"),
    Column(key="labeled", title="Labeled", kind="count"),
    Column(key="all", title="All", kind="count"),
    Column(key="effective", title="Effective labels", kind="count"),
    Column(key="correlation", title="Correlation", kind="number"),
    Column(key="tuning", title="Tuning", kind="number"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantity:
    """A quantity to estimate: one number per example."""

    name: str
    labels: list[float | None]
    verdicts: list[float | None]
    """Values of the judge. None: no verdict."""
    judged: list[JudgedExample]
    is_share: bool

    @property
    def clusters(self) -> list[str]:
        """Prompt of each example."""
        return [one.outline.cluster for one in self.judged]

    @property
    def num_labeled(self) -> int:
        """Number of prompts with labels."""
        labeled = zip(self.clusters, self.labels, strict=True)
        return len({cluster for cluster, label in labeled if label is not None})

    @property
    def has_verdict(self) -> bool:
        """Whether the judge gave a verdict on one of the examples."""
        return any(verdict is not None for verdict in self.verdicts)


def estimate_table(source: Path, *, labels: Path) -> ReportTable:
    """Return the estimates of a run, of an output file of `tirjudge judge`, or of a file of decisions.

    Preferences give the share of examples whose first response people prefer, and the share of comparisons that each model
    wins, if the examples name models. Scores give the mean score of each labeled response, and the difference of the first
    two. A quantity with too few labels is left out. One without a verdict has the mean of the labels alone. Notes name them.

    Raises:
        InputError: the source or the labels cannot be read, they do not match, or no quantity has enough labels and a
            verdict.
    """
    judged = judged_in(source)
    given = read_labels(labels)
    unlabeled = _not_in_the_run(source)
    given.check(judged, path=labels, hint="".join(f". {line}" for line in unlabeled))
    quantities = _preferences(judged, given) if given.kind == "preference" else _scores(judged, given)
    enough = [one for one in quantities if one.num_labeled >= MIN_LABELED]
    if not any(one.has_verdict for one in enough):
        enough = quantities[:1]  # which raises an error that says what is missing
    left_out = _left_out([one for one in quantities if one not in enough])
    rows, notes = [], [*unlabeled, *left_out, *_without_interval(enough)]
    for quantity in enough:
        if len(enough) > 1 and not quantity.has_verdict:
            rows.append(_row_of_people(quantity))
            notes.append(f"{quantity.name}: the judge gave no verdict, so the labels of people count alone.")
            continue
        with as_input_error(f"{labels}, {quantity.name}"):
            verdicts, num_without = _filled(quantity.verdicts)
            found = prediction_powered(
                quantity.labels, verdicts, clusters=quantity.clusters, is_share=quantity.is_share
            )
        rows.append(_row(quantity, found))
        if num_without:
            notes.append(
                f"{quantity.name}: {counted(num_without, 'example')} without a verdict: counted as the mean verdict."
            )
        notes += _warnings(quantity, verdicts)
    return ReportTable(
        title=f"{source.name}: {counted(given.num_rows, 'label')} of people, {counted(len(judged), 'example')}",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(*notes, *_agreement(quantities[0], kind=given.kind), *_READING),
    )


_READING = (
    "People and judge: prediction-powered inference with power tuning (PPI++, arXiv:2311.01453). Valid only if the labeled "
    "examples are a random sample of all examples; otherwise it has the bias of the sample.",
    "Effective labels: number of labels that would give the same standard error without a judge.",
)


def _not_in_the_run(source: Path) -> list[str]:
    """Return a note on the rows that a run on a user's rows left out, because they have no label. Empty: none."""
    num = read_manifest(source).data.num_unlabeled if source.is_dir() else 0
    if not num:
        return []
    return [
        f"The run left out {counted(num, 'row')} without a label. To count all rows, judge them with "
        "`tirjudge judge FILE --out OUT.jsonl`, and give OUT.jsonl in place of the run."
    ]


def _left_out(few: Sequence[_Quantity]) -> list[str]:
    """Return a note on the quantities with too few labels. Empty: there are none."""
    named = [f"{one.name} ({one.num_labeled})" for one in few]
    return [f"Left out, fewer than {MIN_LABELED} prompts with labels: {'; '.join(named)}."] if named else []


def _without_interval(enough: Sequence[_Quantity]) -> list[str]:
    """Return a note on the quantities whose labels show no variance. A share has an interval all the same."""
    named = [one.name for one in enough if not one.is_share and len({*one.labels} - {None}) == 1]
    return [f"No interval, because all labels are equal: {'; '.join(named)}."] if named else []


def _warnings(quantity: _Quantity, verdicts: Sequence[float]) -> list[str]:
    """Return what shows that the labeled examples are not a random sample. Empty: nothing."""
    surprises = surprises_of(
        [label is not None for label in quantity.labels],
        verdicts,
        subsets=[one.outline.subset for one in quantity.judged],
        clusters=quantity.clusters,
    )
    return [f"WARNING, {quantity.name}: labels are not a random sample: {one}." for one in surprises]


def _row(quantity: _Quantity, found: PredictionPowered) -> TableRow:
    judge = _entry(Estimate(value=found.judge, num=found.corrected.num, interval=None), of=quantity)
    return row(
        quantity.name,
        _entry(found.people, of=quantity),
        judge,
        _entry(found.corrected, of=quantity),
        found.people.num,
        found.corrected.num,
        found.num_effective,
        found.correlation,
        found.tuning,
        ours=True,
    )


def _row_of_people(quantity: _Quantity) -> TableRow:
    """Return the row of a quantity without a verdict."""
    people = labels_alone(quantity.labels, clusters=quantity.clusters, is_share=quantity.is_share)
    values = (_entry(people, of=quantity), None, None, people.num, len(quantity.labels), None, None, None)
    return row(quantity.name, *values, ours=True)


def _entry(estimate: Estimate, *, of: _Quantity) -> TableEntry:
    """Return an estimate as an entry; a share is in percent."""
    scale = 100 if of.is_share else 1
    kind: Kind = "percent" if of.is_share else "number"
    ends = None if estimate.interval is None else (scale * estimate.interval[0], scale * estimate.interval[1])
    return TableEntry(value=None if estimate.value is None else scale * estimate.value, interval=ends, kind=kind)


def _preferences(judged: Sequence[JudgedExample], given: HumanLabels) -> list[_Quantity]:
    pairs = [one for one in judged if one.outline.num_responses == 2]
    labels = [given.values.get((one.outline.id, 0)) for one in pairs]
    verdicts = [preference_of(one) for one in pairs]
    first = _Quantity(name="first response is better, %", labels=labels, verdicts=verdicts, judged=pairs, is_share=True)
    return [first, *_of_models(pairs, labels=labels, verdicts=verdicts)]


def _of_models(
    pairs: Sequence[JudgedExample], *, labels: Sequence[float | None], verdicts: Sequence[float | None]
) -> list[_Quantity]:
    """Return the win rate of each model that the examples name. A pair of answers of one model tells nothing of its wins."""
    sides: dict[str, list[tuple[int, bool]]] = {}
    for at, one in enumerate(pairs):
        if (models := models_of(one.outline)) is not None and models[0] != models[1]:
            for place, model in enumerate(models):
                sides.setdefault(model, []).append((at, place == 0))

    def of(values: Sequence[float | None], places: Sequence[tuple[int, bool]]) -> list[float | None]:
        return [value if value is None or is_first else 1 - value for at, is_first in places for value in [values[at]]]

    return [
        _Quantity(
            name=f"{model} wins, %",
            labels=of(labels, places),
            verdicts=of(verdicts, places),
            judged=[pairs[at] for at, _ in places],
            is_share=True,
        )
        for model, places in sorted(sides.items())
    ]


def _scores(judged: Sequence[JudgedExample], given: HumanLabels) -> list[_Quantity]:
    found = []
    for response in given.responses:
        members = [one for one in judged if one.outline.num_responses > response]
        found.append(
            _Quantity(
                name=f"score of response {response}",
                labels=[given.values.get((one.outline.id, response)) for one in members],
                verdicts=[score_of(one, response=response) for one in members],
                judged=members,
                is_share=False,
            )
        )
    if len(found) > 1:
        found.append(_difference(judged, given, responses=(given.responses[0], given.responses[1])))
    return found


def _difference(judged: Sequence[JudgedExample], given: HumanLabels, *, responses: tuple[int, int]) -> _Quantity:
    """Return the difference of the scores of two responses to the same prompt."""
    first, second = responses
    members = [one for one in judged if one.outline.num_responses > max(responses)]

    def less(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one - other

    return _Quantity(
        name=f"score of response {first} less {second}",
        labels=[
            less(given.values.get((one.outline.id, first)), given.values.get((one.outline.id, second)))
            for one in members
        ],
        verdicts=[less(score_of(one, response=first), score_of(one, response=second)) for one in members],
        judged=members,
        is_share=False,
    )


def _filled(verdicts: Sequence[float | None]) -> tuple[list[float], int]:
    """Return verdicts with the mean in place of missing ones, and the number of these."""
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        raise ValueError("the judge gave no verdict of this kind; labels with a score need a pointwise run")
    mean = fmean(known)
    return [mean if verdict is None else verdict for verdict in verdicts], len(verdicts) - len(known)


def _agreement(quantity: _Quantity, *, kind: str) -> list[str]:
    """Return a line on how often the judge and the majority of people agree. Scores have a correlation instead."""
    if kind == "score":
        return []
    found = agreement_of(
        [_named(verdict) for verdict in quantity.verdicts],
        [_named(label) for label in quantity.labels],
        clusters=quantity.clusters,
    )
    if found.same.value is None:
        return []
    kappa = "" if found.kappa is None else f", Cohen's kappa {found.kappa:.2f}"
    ends = "" if found.same.interval is None else " ({:.1%} to {:.1%})".format(*found.same.interval)
    return [f"Judge and people agree on {found.same.value:.1%}{ends} of {found.same.num:,} examples{kappa}."]


def _named(value: float | None) -> str | None:
    if value is None:
        return None
    return "tie" if value == 0.5 else "first" if value > 0.5 else "second"
