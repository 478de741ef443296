"""Tables of evals and their runs. Shares of passed rows have Wilson's 95 % interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from tirjudge.statistics import ratio, wilson_interval
from tirjudge_harness.evals.criteria import ALL
from tirjudge_harness.evals.importing import ImportedEval
from tirjudge_harness.evals.objects import CriterionCounts, EvalDefinition, EvalRun, ItemCounts, OutputItem
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, percent, row
from tirjudge_harness.statistics.binomial import binomial_test

_PASSED = Column(key="passed", title="passed, %", ends=True)


def evals_table(evals: Iterable[EvalDefinition]) -> ReportTable:
    """Return the evals of a server."""
    columns = (
        Column(key="id", title="eval", kind="text"),
        Column(key="name", title="name", kind="text"),
        Column(key="criteria", title="criteria", kind="count"),
        Column(key="created", title="created", kind="text"),
    )
    rows = tuple(row(each.id, each.name or "", len(each.testing_criteria), _time(each.created_at)) for each in evals)
    return ReportTable(title="evals", columns=columns, rows=rows)


def runs_table(runs: Iterable[EvalRun], *, title: str) -> ReportTable:
    """Return the runs of an eval with their shares of passed rows."""
    columns = (
        Column(key="id", title="run", kind="text"),
        Column(key="name", title="name", kind="text"),
        Column(key="model", title="model", kind="text"),
        Column(key="status", title="status", kind="text"),
        _PASSED,
        Column(key="errored", title="errors", kind="count"),
        Column(key="created", title="created", kind="text"),
    )
    rows = tuple(
        row(
            each.id,
            each.name or "",
            each.model or "",
            each.status,
            share(each.result_counts),
            each.result_counts.errored,
            _time(each.created_at),
        )
        for each in runs
    )
    return ReportTable(title=title, columns=columns, rows=rows)


def run_tables(run: EvalRun) -> list[ReportTable]:
    """Return the results of a run: all rows, each criterion, and the use of models."""
    columns = (
        Column(key="criterion", title="criterion", kind="text"),
        _PASSED,
        Column(key="num_passed", title="passed", kind="count"),
        Column(key="num_failed", title="failed", kind="count"),
        Column(key="num_errors", title="errors", kind="count"),
    )
    counted = [(ALL, run.result_counts), *((each.testing_criteria, each) for each in criteria_of(run))]
    rows = tuple(row(name, share(counts), counts.passed, counts.failed, counts.errored) for name, counts in counted)
    notes = ["Rows with an error have no score, and count in no share."]
    notes += [f"status: {run.status}"] if run.status != "completed" else []
    notes += [f"error: {run.error.get('message')}"] if run.error else []
    tables = [ReportTable(title=run.name or run.id, columns=columns, rows=rows, notes=tuple(notes))]
    if run.per_model_usage:
        used = (
            Column(key="model", title="model", kind="text"),
            Column(key="calls", title="calls", kind="count"),
            Column(key="tokens", title="tokens", kind="count"),
        )
        lines = tuple(row(each.model_name, each.invocation_count, each.total_tokens) for each in run.per_model_usage)
        tables.append(ReportTable(title="models", columns=used, rows=lines))
    return tables


def criteria_of(run: EvalRun) -> list[CriterionCounts]:
    """Return the results of each criterion."""
    return run.per_testing_criteria_results or []


def share(counts: ItemCounts | CriterionCounts) -> TableEntry:
    """Return the share of passed rows among the rows with a score."""
    num = counts.passed + counts.failed
    interval = wilson_interval(counts.passed, num_trials=num) if num else None
    return percent(ratio(counts.passed, of=num), interval=interval, num=num)


def comparison_table(first: Sequence[OutputItem], second: Sequence[OutputItem], *, title: str) -> ReportTable:
    """Compare two runs on the rows with the same item.

    The p-value is that of McNemar's exact test: of the rows on which the runs differ, half would be better by chance.

    Raises:
        InputError: The runs have no row in common.
    """
    before = {_key(item): item for item in first}
    pairs = [(before[key], item) for item in second if (key := _key(item)) in before]
    if not pairs:
        raise InputError("the runs have no row with the same item; give two runs over the same data")
    columns = (
        Column(key="criterion", title="criterion", kind="text"),
        Column(key="rows", title="rows", kind="count"),
        Column(key="first", title="first, %"),
        Column(key="second", title="second, %"),
        Column(key="better", title="better", kind="count"),
        Column(key="worse", title="worse", kind="count"),
        Column(key="p", title="p", kind="number"),
    )
    names = list(dict.fromkeys(str(result["name"]) for _, item in pairs for result in item.results))
    rows = []
    for name in (ALL, *names):
        results = [(_passed(old, name), _passed(new, name)) for old, new in pairs]
        both = [(old, new) for old, new in results if old is not None and new is not None]
        better, worse = sum(new > old for old, new in both), sum(old > new for old, new in both)
        shares = [ratio(sum(each), of=len(both)) for each in zip(*both, strict=True)] or [None, None]
        p_value = binomial_test(better, num_trials=better + worse)
        rows.append(row(name, len(both), percent(shares[0]), percent(shares[1]), better, worse, p_value))
    notes = ("p: McNemar's exact test of better against worse. Rows with an error in a run are left out.",)
    return ReportTable(title=title, columns=columns, rows=tuple(rows), notes=notes)


def _key(item: OutputItem) -> str:
    from json import dumps

    return dumps(item.datasource_item, sort_keys=True)


def _passed(item: OutputItem, name: str) -> bool | None:
    """Whether a row passes a criterion, or all. None: there is no score."""
    if name == ALL:
        return None if item.status == "error" else item.status == "pass"
    result = next((each for each in item.results if each.get("name") == name), None)
    return None if result is None or result.get("error") else bool(result.get("passed"))


def items_table(items: Iterable[OutputItem], *, title: str) -> ReportTable:
    """Return rows with their results."""
    columns = (
        Column(key="row", title="row", kind="count"),
        Column(key="status", title="status", kind="text"),
        Column(key="failed", title="criteria that are not passed", kind="text"),
        Column(key="output", title="output", kind="text"),
    )
    rows = tuple(row(item.datasource_item_id, item.status, ", ".join(_problems(item)), _output(item)) for item in items)
    return ReportTable(title=title, columns=columns, rows=rows)


def _problems(item: OutputItem) -> list[str]:
    error = (item.sample or {}).get("error")
    return ([str(error.get("message"))] if isinstance(error, dict) else []) + [
        f"{each.get('name')}: {each['error'].get('message')}"
        if isinstance(each.get("error"), dict)
        else str(each["name"])
        for each in item.results
        if not each.get("passed")
    ]


def _output(item: OutputItem) -> str:
    text = item.row.get("sample", {}).get("output_text", "")
    return text if isinstance(text, str) else ""


def import_table(imported: Sequence[ImportedEval]) -> ReportTable:
    """Return the agreement of imported runs with the export."""
    columns = (
        Column(key="run", title="run of the export", kind="text"),
        Column(key="criterion", title="criterion", kind="text"),
        Column(key="type", title="type", kind="text"),
        Column(key="equal", title="equal", kind="count"),
        Column(key="different", title="different", kind="count"),
        Column(key="errors", title="errors", kind="count"),
    )
    rows = tuple(
        row(run.exported.id, each.name, each.type, each.num_equal, len(each.different), each.num_errors)
        for one in imported
        for run in one.runs
        for each in run.criteria
    )
    return ReportTable(title="imported runs", columns=columns, rows=rows)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M") if seconds else ""
