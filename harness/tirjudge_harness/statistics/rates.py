"""How often a judge ties, says nothing, runs programs, and fails at them; what a judgment costs.

Judgments that several questions share, because they are the same, are counted once in what they cost, and for each
question in what they say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import numpy as np

from tirjudge.types import Judgment, Outcome, TurnRecord
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.prices import Prices
from tirjudge_harness.statistics.intervals import Estimate, clustered_share

NOT_PARSED = ("SyntaxError", "IndentationError", "TabError")
"""What Python says of a program that it cannot read."""


class CodeError(StrEnum):
    """How a program of the judge failed, or a call without one."""

    SYNTAX = "syntax"
    """Python could not read it."""
    RUNTIME = "runtime"
    """It raised, or exited with an error."""
    FORMAT = "format"
    """A run was asked for, and nothing could be run: no closed block of code, or one that is too large."""
    TIMEOUT = "timeout"
    OOM = "oom"
    CRASH = "crash"
    OUTPUT_LIMIT = "output_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Shares of all decisions, one a rollout."""

    tied: Estimate
    """That named two as equally good; equal scores are no tie of one decision."""
    no_verdict: Estimate
    forced: Estimate
    """That the judge had to be made to give."""
    ties: Estimate
    """Of judgments: those whose verdict is a tie."""
    abstained: Estimate
    """Of judgments: those without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Programs, and what came of them."""

    rollouts: Estimate
    """That ran a program."""
    programs: float | None
    """The mean number a judgment; None of nothing."""
    with_programs: Estimate
    """The mean credit of comparisons in whose judgment a program ran."""
    without_programs: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeErrors:
    """Of one kind."""

    kind: CodeError
    of_programs: Estimate
    """Of the calls."""
    of_judgments: Estimate
    """Of judgments with a call: those with at least one such error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Of a quantity over judgments."""

    total: float
    mean: float
    median: float
    p90: float
    p99: float
    """90 and 99 of a hundred are no larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What judgments took. Of none, each is None."""

    num_judgments: int
    input_tokens: Distribution | None
    output_tokens: Distribution | None
    tool_calls: Distribution | None
    latency_s: Distribution | None
    """From the request to the judgment, waiting included."""
    engine_s: Distribution | None
    sandbox_s: Distribution | None
    money: Distribution | None
    """None as well where no prices are given."""


def verdicts_of(judged: Sequence[JudgedExample]) -> Verdicts:
    """How often there is no plain verdict."""
    decisions = [(one.outline.cluster, decision) for one in judged for decision in one.decisions]
    statuses = [(one.outline.cluster, judgment.verdict.status) for one in judged for judgment in one.judgments]
    return Verdicts(
        tied=clustered_share((cluster, float(decision.tied)) for cluster, decision in decisions),
        no_verdict=clustered_share((cluster, float(not decision.has_verdict)) for cluster, decision in decisions),
        forced=clustered_share((cluster, float(decision.forced)) for cluster, decision in decisions),
        ties=clustered_share((cluster, float(status == "tie")) for cluster, status in statuses),
        abstained=clustered_share((cluster, float(status == "abstained")) for cluster, status in statuses),
    )


def tool_use_of(judged: Sequence[JudgedExample], *, marks: Sequence[ComparisonScore]) -> ToolUse:
    """How often programs run, and whether the judge is right then.

    A comparison was made with programs if one ran in any judgment on its responses, each alone or all together.

    Args:
        judged: one run.
        marks: what its comparisons earned.
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
    num_programs = [sum(rollout.num_programs for rollout in judgment.rollouts) for judgment, _ in _unique(judged)]
    return ToolUse(
        rollouts=clustered_share((cluster, float(rollout.ran_program)) for cluster, rollout in rollouts),
        programs=fmean(num_programs) if num_programs else None,
        with_programs=clustered_share(credits[True]),
        without_programs=clustered_share(credits[False]),
    )


def code_errors_of(judged: Sequence[JudgedExample]) -> list[CodeErrors]:
    """How calls fail, kind by kind."""
    found = [(cluster, [kind_of(turn) for turn in _calls(judgment)]) for judgment, cluster in _unique(judged)]
    return [
        CodeErrors(
            kind=kind,
            of_programs=clustered_share((cluster, float(each is kind)) for cluster, kinds in found for each in kinds),
            of_judgments=clustered_share((cluster, float(kind in kinds)) for cluster, kinds in found if kinds),
        )
        for kind in CodeError
    ]


def kind_of(turn: TurnRecord) -> CodeError | None:
    """How the call of a turn failed; None if it did not."""
    match turn.outcome:
        case None | Outcome.OK:
            return None
        case Outcome.ERROR:
            said = (turn.output or "").lstrip()
            return CodeError.SYNTAX if said.startswith(NOT_PARSED) else CodeError.RUNTIME
        case Outcome.REFUSED:
            return CodeError.FORMAT
        case Outcome.SANDBOX_ERROR:
            raise ValueError("outcome: sandbox_error given, which no judgment has")
        case _:
            return CodeError(turn.outcome.value)


def costs_of(judged: Sequence[JudgedExample], *, prices: Prices | None = None) -> Costs:
    """Tokens, seconds and money of the judgments of a run, each once.

    Args:
        judged: one run.
        prices: None: money is not counted. Each token counts once: an endpoint may bill every turn anew.
    """
    prices = prices or Prices()
    usages = [judgment.usage for judgment, _ in _unique(judged)]
    timings = [judgment.timing for judgment, _ in _unique(judged)]
    money = [prices.cost_of(input_tokens=u.input_tokens, output_tokens=u.output_tokens) for u in usages]
    return Costs(
        num_judgments=len(usages),
        input_tokens=spread_of([usage.input_tokens for usage in usages]),
        output_tokens=spread_of([usage.output_tokens for usage in usages]),
        tool_calls=spread_of([usage.tool_calls for usage in usages]),
        latency_s=spread_of([timing.total_s for timing in timings]),
        engine_s=spread_of([timing.engine_s for timing in timings]),
        sandbox_s=spread_of([timing.sandbox_s for timing in timings]),
        money=spread_of([price for price in money if price is not None]),
    )


def spread_of(values: Sequence[float]) -> Distribution | None:
    """Of the values; None of nothing."""
    if not values:
        return None
    median, p90, p99 = np.percentile(values, [50, 90, 99], method="inverted_cdf")
    total = float(np.sum(values))
    return Distribution(total=total, mean=total / len(values), median=float(median), p90=float(p90), p99=float(p99))


def _calls(judgment: Judgment) -> Iterator[TurnRecord]:
    """The turns that asked for a program to be run."""
    return (turn for rollout in judgment.rollouts for turn in rollout.turns if turn.outcome is not None)


def _unique(judged: Sequence[JudgedExample]) -> list[tuple[Judgment, str]]:
    """Each judgment once, with the prompt that first asked for it."""
    found: dict[str, tuple[Judgment, str]] = {}
    for one in judged:
        for judgment in one.judgments:
            found.setdefault(judgment.id, (judgment, one.outline.cluster))
    return list(found.values())
