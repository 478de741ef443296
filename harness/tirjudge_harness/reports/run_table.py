"""The table of one run: figures, counts, rates, bias, calibration and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from tirjudge.prices import Prices
from tirjudge.right import ScoringRule
from tirjudge.selective import UNKNOWN
from tirjudge.types import Mode
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.external import EVEN
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.own_data.preview import meaning_line
from tirjudge_harness.own_data.raters import rater_pairs_of
from tirjudge_harness.protocols import Protocol
from tirjudge_harness.reports.run_statistics import RunStatistics
from tirjudge_harness.reports.scored import ScoredRun
from tirjudge_harness.reports.tables import Column, Kind, ReportTable, TableEntry, TableRow, percent, percent_of, row
from tirjudge_harness.run import EvalManifest
from tirjudge_harness.statistics.bias import length_of
from tirjudge_harness.statistics.calibration import selective_of
from tirjudge_harness.statistics.intervals import Estimate
from tirjudge_harness.statistics.load import load_of
from tirjudge_harness.statistics.rates import CodeError, CodeErrors, ToolUse, VerdictRates, costs_of, verdicts_of

COLUMNS = (
    Column(key="figure", title="", kind="text"),
    Column(key="value", title="Value (95 %)", kind="number", ends=True),
    Column(key="unit", title="", kind="text"),
    Column(key="n", title="n", kind="count"),
)

COUNTS = {
    "examples": "examples",
    "unjudged": "  not judged",
    "labeled_ties": "  labeled as a tie, not judged",
    "without_verdict": "  judged without a verdict",
    "marks": "comparisons",
    "right": "  right",
    "wrong": "  wrong",
    "ties": "  ties",
    "no_verdict": "  no verdict",
    "missing": "comparisons missing",
    "decisions": "decisions",
    "forced": "  forced",
    "undecided": "  without a verdict",
}


ALWAYS_SHOWN = (CodeError.SYNTAX, CodeError.RUNTIME, CodeError.FORMAT)
"""The kinds of the paper's Table 3. Other kinds are shown only if they occurred."""


def run_table(run: ScoredRun, *, prices: Prices | None = None) -> ReportTable:
    """Return the table of one run.

    Args:
        run: the run.
        prices: token prices. None: no cost is shown.
    """
    return ReportTable(
        title=run.benchmark.title,
        columns=COLUMNS,
        rows=tuple(row for rows in run_sections(run, prices=prices).values() for row in rows),
        notes=run_notes(run),
    )


def run_sections(
    run: ScoredRun, *, prices: Prices | None = None, statistics: RunStatistics | None = None
) -> dict[str, list[TableRow]]:
    """Return the rows of the table of one run by section. Arguments as for `run_table`; `statistics`: those of the run, if
    they are needed elsewhere too."""
    if (graded := run.manifest.data.eval) is not None:
        return {"Figures": list(_eval_figures(run, graded)), "Counts": list(_eval_counts(run, graded))}
    found = statistics or RunStatistics(run)
    judged = found.judged
    sections = {
        "Figures": figure_rows(run),
        "Coverage and basis": _selective(found.verdict_rates),
        "Counts": _counts(run),
        "Raters": _raters(run),
        "Verdicts": _verdicts(judged),
        "Programs": _programs(found.tool_use, found.code_errors),
        "Position and length": _bias(found, marks=first_order_marks(run)),
        "Calibration": _calibration(found),
        "Cost and time": _costs(judged, prices=prices),
    }
    return {title: kept for title, rows in sections.items() if (kept := list(rows))}


def run_notes(run: ScoredRun) -> tuple[str, ...]:
    """Return the settings of a run and the kind of its intervals, one sentence each."""
    manifest = run.manifest
    if manifest.data.eval is not None:
        return _eval_notes(manifest.data.eval, model=manifest.judge.model)
    asked = f"{manifest.mode_name}, {manifest.orders} order{'s' if manifest.orders == 'both' else ''}"
    votes = f", {manifest.votes} votes" if manifest.votes > 1 else ""
    votes += f", require {manifest.require}" if manifest.require else ""
    votes += f", min confidence {manifest.min_confidence:g}" if manifest.min_confidence is not None else ""
    votes += "" if manifest.force_verdict else ", no forced verdicts"
    if (sampling := manifest.sampling) is not None:
        tokens = "" if sampling.max_tokens is None else f", at most {sampling.max_tokens} tokens"
        votes += f", temperature {sampling.temperature:g}, top-p {sampling.top_p:g}{tokens}"
    called = f" with {', '.join(manifest.judge.functions)}" if manifest.judge.functions else ""
    known = f" ({manifest.judge.fingerprint})" if manifest.judge.fingerprint else ""
    where = manifest.data.path or ", ".join(manifest.data.sources.values())
    return (
        f"Judge: {manifest.judge.model}{known}; {asked}{votes}, tools {manifest.tools}{called}, seed {manifest.seed}.",
        f"Protocol: {run.protocol.name}. Examples: {where}, {manifest.data.num_examples} of them"
        + (f", a sample of {manifest.data.limit}." if manifest.data.limit else ".")
        + (f" Shard {manifest.shard}." if manifest.shard else ""),
        *((f"Attack: {manifest.attack}.",) if manifest.attack else ()),
        *((f"Columns: {meaning_line(manifest.data.columns)}.",) if manifest.data.columns else ()),
        "Intervals: Wilson's over prompts; bootstrap for formulas.",
    )


def _eval_notes(found: EvalManifest, *, model: str) -> tuple[str, ...]:
    names = f"Eval: {found.name} ({found.eval_id}). Run: {found.run_name or 'without a name'} ({found.run_id})"
    num_rows = "an unknown number of" if found.num_rows is None else found.num_rows
    return (
        f"{names}, {found.status}. Samples: {model}.",
        f"{found.num_graded} of {num_rows} rows are graded. A row with an error has no score, and counts in no share.",
        "An item is a row with one criterion, or with all criteria. The first part of its id is a hash of the row.",
        "Intervals: Wilson's over rows; bootstrap for mean scores.",
    )


def _eval_figures(run: ScoredRun, found: EvalManifest) -> Iterator[TableRow]:
    """Yield the shares of passed rows, and the mean scores on their own scales."""
    num_shares = len(found.criteria) + (len(found.criteria) > 1)
    for place, one in enumerate(run.figures):
        if place < num_shares:
            yield _percent(one.name, percent_of(one), num=one.num_marks)
        else:
            mean = TableEntry(value=one.value, interval=one.interval)
            yield _row(one.name.removesuffix(" x 100"), mean, num=one.num_marks, kind="number")


def _eval_counts(run: ScoredRun, found: EvalManifest) -> Iterator[TableRow]:
    yield _count("rows graded", found.num_graded)
    results = Counter((mark.outline.subset, mark.result) for mark in run.marks)
    unjudged = Counter(one.outline.subset for one in run.examples if not one.decisions)
    for name in dict.fromkeys(one.outline.subset for one in run.examples):
        yield _count(f"{name}: passed", results[name, "right"])
        yield _count("failed", results[name, "wrong"], depth=1)
        yield _count("error", unjudged[name], depth=1)


def figure_rows(run: ScoredRun) -> Iterator[TableRow]:
    """Yield the figures of the benchmark. If verdicts were forced, yield the figures with these counted as none, too."""
    yield from (_percent(one.name, percent_of(one), num=one.num_marks, depth=one.depth) for one in run.figures)
    for one in run.unforced:
        yield _percent(f"{one.name}, forced as none", percent_of(one), num=one.num_marks, depth=one.depth)


def first_order_marks(run: ScoredRun) -> list[ComparisonScore]:
    """Score comparisons in their first order only, because a result over two orders hides position effects."""
    first = Protocol(name="first order", votes=run.manifest.votes, counting=ScoringRule())
    return evaluate(run.benchmark, run.examples, mode=run.manifest.mode, protocol=first).marks


def _row(
    name: str,
    value: TableEntry | float | None,
    *,
    unit: str = "",
    num: int | None = None,
    depth: int = 0,
    kind: Kind | None = None,
) -> TableRow:
    entry = value if isinstance(value, TableEntry) else TableEntry(value=value)
    return row(name, replace(entry, kind=kind), unit, num, depth=depth, ours=True)


def _percent(name: str, value: TableEntry, *, num: int | None, depth: int = 0) -> TableRow:
    return _row(name, value, unit="%", num=num, depth=depth, kind="percent")


def _share(name: str, share: Estimate, *, depth: int = 0) -> TableRow:
    return _percent(name, percent_of(share), num=share.num, depth=depth)


def _count(name: str, value: int, *, depth: int = 0) -> TableRow:
    return _row(name, value, depth=depth, kind="count")


def _counts(run: ScoredRun) -> Iterator[TableRow]:
    for key, number in asdict(run.counts).items():
        name = COUNTS.get(key, key.replace("_", " "))
        yield _count(name.strip(), number, depth=int(name.startswith(" ")))
    yield _count("questions failed, not scored", run.num_failures)
    yield _count("invalid rows of the data", run.manifest.data.num_bad_rows)
    if run.manifest.data.columns is not None:
        yield _count("rows without a label, a right or a wrong response", run.manifest.data.num_unlabeled)
        num_ties = sum(bool(one.outline.facts.get(EVEN)) for one in run.examples)
        if num_ties > run.counts.labeled_ties:
            yield _count("examples labeled as a tie, not scored", num_ties)


def _raters(run: ScoredRun) -> Iterator[TableRow]:
    for pair in rater_pairs_of(run.manifest.data.columns, [one.outline for one in run.examples]):
        names = f"{pair.first} and {pair.second}"
        yield _share(f"raters agree: {names}", pair.agreement.same)
        kappa = TableEntry(value=pair.agreement.kappa, interval=pair.agreement.interval)
        yield _row("kappa, quadratic weights" if pair.are_ratings else "Cohen's kappa", kappa, depth=1)


def _selective(found: VerdictRates) -> Iterator[TableRow]:
    yield _share("coverage (comparisons with a verdict)", found.coverage)
    yield _share("accuracy of these", found.accuracy, depth=1)
    for one in found.by_basis:
        yield _share(f"verdicts {one.basis}" if one.basis != UNKNOWN else "verdicts of unknown basis", one.share)
        if one.accuracy.num:
            yield _share("accuracy of these", one.accuracy, depth=1)


def _verdicts(judged: list[JudgedExample]) -> Iterator[TableRow]:
    """Yield the shares of verdicts that are not a choice. None if there are no such verdicts: the counts say so, too."""
    found = verdicts_of(judged)
    if not any(share.value for share in (found.tied, found.no_verdict, found.forced, found.ties, found.abstained)):
        return
    yield _share("decisions that name a tie", found.tied)
    yield _share("decisions without a verdict", found.no_verdict)
    yield _share("decisions forced", found.forced)
    yield _share("judgments that are a tie", found.ties)
    yield _share("judgments that abstain", found.abstained)


def _programs(use: ToolUse, errors: Sequence[CodeErrors]) -> Iterator[TableRow]:
    yield _share("rollouts that ran a program", use.rollouts)
    yield _row("programs per judgment", use.programs)
    for name, accuracy in (("with", use.with_programs), ("without", use.without_programs)):
        if accuracy.num:
            yield _share(f"accuracy {name} programs", accuracy)
    for one in errors:
        if one.kind not in ALWAYS_SHOWN and not one.of_programs.value:
            continue
        yield _share(f"programs that failed: {one.kind.value}", one.of_programs)
        yield _share("of judgments with a program", one.of_judgments, depth=1)


def _bias(found: RunStatistics, *, marks: list[ComparisonScore]) -> Iterator[TableRow]:
    if not found.judged or found.judged[0].mode is Mode.POINTWISE:
        return
    flips = found.flips
    if flips.rate.num:
        yield _share("verdicts that flip with the order", flips.rate)
        yield _count("to the first shown, both times", flips.num_first, depth=1)
        yield _count("to the second shown, both times", flips.num_second, depth=1)
    for position in found.positions:
        yield _share(f"first of {position.num_shown} shown is chosen", position.named[0])
        yield _row("p, against no bias", position.p_value, depth=1)
    length = length_of(marks)
    if length.longer_named.num:
        yield _share("longer response is chosen", length.longer_named)
        yield _share("longer response is right", length.longer_right, depth=1)
    if length.slope is not None:
        slope = TableEntry(value=length.slope.value, interval=length.slope.interval)
        yield _row("log-odds per log of length, given which is right", slope)


def _calibration(statistics: RunStatistics) -> Iterator[TableRow]:
    confidences, found = statistics.confidences, statistics.calibration
    if not confidences:
        return
    num = len(confidences)
    yield _percent("mean confidence", percent(found.confidence), num=num)
    yield _percent("expected calibration error", percent(found.expected_error), num=num)
    yield _row("Brier score", found.brier, num=num)
    yield _percent("area under selective accuracy", percent(selective_of(confidences).area), num=num)


def _costs(judged: list[JudgedExample], *, prices: Prices | None) -> Iterator[TableRow]:
    """Yield totals and distributions. A percentile of fewer judgments would be their maximum, so it is left out."""
    costs = costs_of(judged, prices=prices)
    yield _count("distinct judgments", costs.num_judgments)
    for name, spread, unit in (
        ("input tokens", costs.input_tokens, "tokens"),
        ("output tokens", costs.output_tokens, "tokens"),
        ("latency under the load of the run", costs.latency_s, "s"),
        ("queue", costs.queue_s, "s"),
        ("engine", costs.engine_s, "s"),
        ("sandbox", costs.sandbox_s, "s"),
        ("cost", costs.money, "currency of the prices"),
    ):
        if spread is None:
            continue
        yield _row(f"{name}, all judgments", spread.total, unit=unit)
        if not spread.total:
            continue
        for what, value, least in (
            ("mean", spread.mean, 2),
            ("median", spread.median, 2),
            ("p90", spread.p90, 10),
            ("p99", spread.p99, 100),
        ):
            if costs.num_judgments >= least:
                yield _row(what, value, unit=unit, depth=1)
    load = load_of(judged)
    yield _row("judgments at once, mean", load.at_once)
    if (alone := load.alone_s) is not None:
        yield _row("latency of judgments that ran alone, median", alone.median, unit="s", num=load.num_alone)
        yield _row("p90", alone.p90, unit="s", depth=1)
