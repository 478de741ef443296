"""Rates of ties, missing verdicts, programs and failed programs; costs of judgments.

A judgment that several equal requests share counts once in costs, and once per request in rates of verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import numpy as np

from tirjudge.prices import Prices
from tirjudge.selective import basis_name, selective_accuracy
from tirjudge.types import Judgment, Outcome, TurnRecord, Usage
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.statistics.intervals import Estimate, clustered_share

NOT_PARSED = ("SyntaxError", "IndentationError", "TabError")
"""Exceptions of Python for a program that it cannot parse."""


class CodeError(StrEnum):
    """How a call of the Python tool failed."""

    SYNTAX = "syntax"
    """Python could not parse the program."""
    RUNTIME = "runtime"
    """The program raised an exception, or exited with an error status."""
    FORMAT = "format"
    """The call had no program that could be run: no closed block of code, or a block that is too large."""
    TIMEOUT = "timeout"
    OOM = "oom"
    CRASH = "crash"
    OUTPUT_LIMIT = "output_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Shares of decisions (one per rollout) and of judgments."""

    tied: Estimate
    """Share of decisions that name several responses as equally good. Equal scores are not a tied decision."""
    no_verdict: Estimate
    """Share of decisions without a verdict."""
    forced: Estimate
    """Share of decisions with a forced verdict."""
    ties: Estimate
    """Share of judgments whose verdict is a tie."""
    abstained: Estimate
    """Share of judgments without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisRates:
    """Verdicts with one basis."""

    basis: str
    """`checked`, `reasoned`, `guessed` or `unknown`."""
    share: Estimate
    """Share of all comparisons."""
    accuracy: Estimate
    """Accuracy over these verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRates:
    """Coverage and selective accuracy (`tirjudge.selective`) with intervals over prompts."""

    coverage: Estimate
    """Share of comparisons with a verdict."""
    accuracy: Estimate
    """Accuracy over the comparisons with a verdict."""
    by_basis: tuple[BasisRates, ...]
    """Rates of each basis. `unknown` only if there are such verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Use of programs, and accuracy with and without programs."""

    rollouts: Estimate
    """Share of rollouts that ran a program."""
    programs: float | None
    """Mean number of programs per judgment. None: no judgments."""
    with_programs: Estimate
    """Mean score of comparisons whose judgments ran a program."""
    without_programs: Estimate
    """Mean score of comparisons whose judgments ran no program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeErrors:
    """Frequency of one kind of failed call."""

    kind: CodeError
    of_programs: Estimate
    """Share of calls that failed in this way."""
    of_judgments: Estimate
    """Share of judgments with at least one such failure, among the judgments with a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Distribution of a quantity over judgments. Percentiles are observed values."""

    total: float
    mean: float
    median: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of judgments. Without judgments, every distribution is None."""

    num_judgments: int
    """Number of distinct judgments."""
    input_tokens: Distribution | None
    output_tokens: Distribution | None
    tool_calls: Distribution | None
    latency_s: Distribution | None
    """Seconds of making the judgment, while others were made too."""
    queue_s: Distribution | None
    """Seconds in the queue of a server before the judgment started."""
    engine_s: Distribution | None
    """Seconds of waiting for completions, summed over the rollouts of a judgment."""
    sandbox_s: Distribution | None
    """Seconds of running programs, summed over the rollouts of a judgment."""
    money: Distribution | None
    """Price, in the currency of the prices. None if no prices are given, too."""


def verdicts_of(judged: Sequence[JudgedExample]) -> Verdicts:
    """Return the shares of tied, missing and forced verdicts."""
    decisions = [(one.outline.cluster, decision) for one in judged for decision in one.decisions]
    statuses = [(one.outline.cluster, judgment.verdict.status) for one in judged for judgment in one.judgments]
    return Verdicts(
        tied=clustered_share((cluster, float(decision.tied)) for cluster, decision in decisions),
        no_verdict=clustered_share((cluster, float(not decision.has_verdict)) for cluster, decision in decisions),
        forced=clustered_share((cluster, float(decision.forced)) for cluster, decision in decisions),
        ties=clustered_share((cluster, float(status == "tie")) for cluster, status in statuses),
        abstained=clustered_share((cluster, float(status == "abstained")) for cluster, status in statuses),
    )


def verdict_rates_of(marks: Sequence[ComparisonScore]) -> VerdictRates:
    """Return coverage and selective accuracy over the comparisons of a run."""
    named = [(mark.outline.cluster, basis_name(mark.graded), mark.credit) for mark in marks]

    def rates(name: str) -> BasisRates:
        return BasisRates(
            basis=name,
            share=clustered_share((cluster, float(each == name)) for cluster, each, _ in named),
            accuracy=clustered_share((cluster, credit) for cluster, each, credit in named if each == name),
        )

    return VerdictRates(
        coverage=clustered_share((cluster, float(each is not None)) for cluster, each, _ in named),
        accuracy=clustered_share((cluster, credit) for cluster, each, credit in named if each is not None),
        by_basis=tuple(rates(name) for name in selective_accuracy(mark.graded for mark in marks).by_basis),
    )


def tool_use_of(judged: Sequence[JudgedExample], *, marks: Sequence[ComparisonScore]) -> ToolUse:
    """Return how often programs run, and the accuracy with and without programs.

    A comparison counts as made with programs if a program ran in any judgment on its responses, alone or together.

    Args:
        judged: the examples of one run.
        marks: scores of the comparisons of the run.
    """
    rollouts = [(one.outline.cluster, rollout) for one in judged for j in one.judgments for rollout in j.rollouts]
    used: dict[str, list[tuple[frozenset[int], bool]]] = defaultdict(list)
    for one in judged:
        for judgment, decisions in one.by_judgment():
            shown = frozenset(index for decision in decisions for index in decision.shown)
            used[one.outline.id].append((shown, any(rollout.ran_program for rollout in judgment.rollouts)))
    credits: dict[bool, list[tuple[str, float]]] = {True: [], False: []}
    for mark in marks:
        about = [ran for shown, ran in used[mark.outline.id] if shown <= set(mark.compared)]
        if about:
            credits[any(about)].append((mark.outline.cluster, mark.credit))
    num_programs = [
        sum(rollout.num_programs for rollout in judgment.rollouts) for judgment, _ in unique_judgments(judged)
    ]
    return ToolUse(
        rollouts=clustered_share((cluster, float(rollout.ran_program)) for cluster, rollout in rollouts),
        programs=fmean(num_programs) if num_programs else None,
        with_programs=clustered_share(credits[True]),
        without_programs=clustered_share(credits[False]),
    )


def code_errors_of(judged: Sequence[JudgedExample]) -> list[CodeErrors]:
    """Return the frequency of each kind of failed call."""
    found = [(cluster, [kind_of(turn) for turn in _calls(judgment)]) for judgment, cluster in unique_judgments(judged)]
    return [
        CodeErrors(
            kind=kind,
            of_programs=clustered_share((cluster, float(each is kind)) for cluster, kinds in found for each in kinds),
            of_judgments=clustered_share((cluster, float(kind in kinds)) for cluster, kinds in found if kinds),
        )
        for kind in CodeError
    ]


def kind_of(turn: TurnRecord) -> CodeError | None:
    """Return how the call of a turn failed; None if there was no call, or it succeeded.

    Raises:
        ValueError: the outcome is `sandbox_error`, which never occurs in a judgment.
    """
    match turn.outcome:
        case None | Outcome.OK:
            return None
        case Outcome.ERROR:
            error = (turn.output or "").lstrip()
            return CodeError.SYNTAX if error.startswith(NOT_PARSED) else CodeError.RUNTIME
        case Outcome.REFUSED:
            return CodeError.FORMAT
        case Outcome.SANDBOX_ERROR:
            raise ValueError("outcome: sandbox_error does not occur in judgments")
        case _:
            return CodeError(turn.outcome.value)


def costs_of(judged: Sequence[JudgedExample], *, prices: Prices | None = None) -> Costs:
    """Return tokens, seconds and money of the distinct judgments of a run.

    Args:
        judged: the examples of one run.
        prices: token prices. None: no money is computed. Each token counts once, although an endpoint may bill the
            prompt again at every turn.
    """
    prices = prices or Prices()
    usages = [judgment.usage for judgment, _ in unique_judgments(judged)]
    timings = [judgment.timing for judgment, _ in unique_judgments(judged)]
    money = [_money(usage, prices=prices) for usage in usages]
    return Costs(
        num_judgments=len(usages),
        input_tokens=spread_of([usage.input_tokens for usage in usages if usage.input_tokens is not None]),
        output_tokens=spread_of([usage.output_tokens for usage in usages if usage.output_tokens is not None]),
        tool_calls=spread_of([usage.tool_calls for usage in usages]),
        latency_s=spread_of([timing.total_s for timing in timings]),
        queue_s=spread_of([timing.queue_s for timing in timings]),
        engine_s=spread_of([timing.engine_s for timing in timings]),
        sandbox_s=spread_of([timing.sandbox_s for timing in timings]),
        money=spread_of([price for price in money if price is not None]),
    )


def _money(usage: Usage, *, prices: Prices) -> float | None:
    """Return the price of a judgment; that of its server if no prices are given. None: not known."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return usage.cost_usd
    cost = prices.cost_of(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    return usage.cost_usd if cost is None else cost


def spread_of(values: Sequence[float]) -> Distribution | None:
    """Return the distribution of values; None if there are none."""
    if not values:
        return None
    median, p90, p99 = np.percentile(values, [50, 90, 99], method="inverted_cdf")
    total = float(np.sum(values))
    return Distribution(total=total, mean=total / len(values), median=float(median), p90=float(p90), p99=float(p99))


def _calls(judgment: Judgment) -> Iterator[TurnRecord]:
    """Return the turns that called the Python tool."""
    return (turn for rollout in judgment.rollouts for turn in rollout.turns if turn.outcome is not None)


def unique_judgments(judged: Sequence[JudgedExample]) -> list[tuple[Judgment, str]]:
    """Return each distinct judgment with the cluster of the first example that has it."""
    found: dict[str, tuple[Judgment, str]] = {}
    for one in judged:
        for judgment in one.judgments:
            found.setdefault(judgment.id, (judgment, one.outline.cluster))
    return list(found.values())
