"""How often a judge ties, says nothing, runs programs, and fails at them; what a judgment costs.

Judgments that several questions share, because they are the same, are counted once in what they cost, and for each
question in what they say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import numpy as np

from tirjudge.types import Judgment, Outcome, RolloutRecord, TurnRecord
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.metric_tree import ComparisonScore
from tirjudge_harness.prices import Prices
from tirjudge_harness.statistics.intervals import Estimate, share_of

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
    decisions = [(decision, one.outline.cluster) for one in judged for decision in one.decisions]
    clusters = [cluster for _, cluster in decisions]
    judgments = [(judgment.verdict.status, one.outline.cluster) for one in judged for judgment in one.judgments]
    of_judgments = [cluster for _, cluster in judgments]
    return Verdicts(
        tied=share_of([float(decision.tied) for decision, _ in decisions], clusters=clusters),
        no_verdict=share_of([float(not decision.has_verdict) for decision, _ in decisions], clusters=clusters),
        forced=share_of([float(decision.forced) for decision, _ in decisions], clusters=clusters),
        ties=share_of([float(status == "tie") for status, _ in judgments], clusters=of_judgments),
        abstained=share_of([float(status == "abstained") for status, _ in judgments], clusters=of_judgments),
    )


def tool_use_of(judged: Sequence[JudgedExample], *, marks: Sequence[ComparisonScore]) -> ToolUse:
    """How often programs run, and whether the judge is right then.

    A comparison was made with programs if one ran in any judgment on its responses, each alone or all together.

    Args:
        judged: one run.
        marks: what its comparisons earned.
    """
    rollouts = [(rollout, one.outline.cluster) for one in judged for j in one.judgments for rollout in j.rollouts]
    used = _used(judged)
    credits: dict[bool, list[ComparisonScore]] = {True: [], False: []}
    for mark in marks:
        about = [ran for shown, ran in used[mark.outline.id] if shown <= set(mark.compared)]
        if about:
            credits[any(about)].append(mark)
    unique = _unique(judged)
    return ToolUse(
        rollouts=share_of([float(_ran(rollout)) for rollout, _ in rollouts], clusters=[name for _, name in rollouts]),
        programs=fmean(_num_programs(judgment) for judgment in unique) if unique else None,
        with_programs=_mean_credit(credits[True]),
        without_programs=_mean_credit(credits[False]),
    )


def code_errors_of(judged: Sequence[JudgedExample]) -> list[CodeErrors]:
    """How calls fail, kind by kind."""
    calls: list[tuple[CodeError | None, str]] = []
    judgments: list[tuple[set[CodeError | None], str]] = []
    for judgment, cluster in _unique_with_clusters(judged):
        kinds = [kind_of(turn) for rollout in judgment.rollouts for turn in _calls(rollout)]
        calls += [(kind, cluster) for kind in kinds]
        if kinds:
            judgments.append((set(kinds), cluster))
    of_calls, of_judgments = [name for _, name in calls], [name for _, name in judgments]
    return [
        CodeErrors(
            kind=kind,
            of_programs=share_of([float(found is kind) for found, _ in calls], clusters=of_calls),
            of_judgments=share_of([float(kind in found) for found, _ in judgments], clusters=of_judgments),
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
        prices: None: money is not counted.
    """
    judgments = _unique(judged)
    money = [price_of(judgment, prices=prices or Prices()) for judgment in judgments]
    return Costs(
        num_judgments=len(judgments),
        input_tokens=spread_of([judgment.usage.input_tokens for judgment in judgments]),
        output_tokens=spread_of([judgment.usage.output_tokens for judgment in judgments]),
        tool_calls=spread_of([judgment.usage.tool_calls for judgment in judgments]),
        latency_s=spread_of([judgment.timing.total_s for judgment in judgments]),
        engine_s=spread_of([judgment.timing.engine_s for judgment in judgments]),
        sandbox_s=spread_of([judgment.timing.sandbox_s for judgment in judgments]),
        money=spread_of([price for price in money if price is not None]),
    )


def price_of(judgment: Judgment, *, prices: Prices) -> float | None:
    """What the tokens of a judgment cost, each once; an endpoint that bills every turn's whole prompt takes more.

    None: no price is known.
    """
    usage = judgment.usage
    return prices.cost_of(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


def spread_of(values: Sequence[float]) -> Distribution | None:
    """Of the values; None of nothing."""
    if not values:
        return None
    median, p90, p99 = np.percentile(values, [50, 90, 99], method="inverted_cdf")
    total = float(np.sum(values))
    return Distribution(total=total, mean=total / len(values), median=float(median), p90=float(p90), p99=float(p99))


def _calls(rollout: RolloutRecord) -> Iterator[TurnRecord]:
    """The turns that asked for a program to be run."""
    return (turn for turn in rollout.turns if turn.outcome is not None)


def _ran(rollout: RolloutRecord) -> bool:
    return any(turn.outcome is not Outcome.REFUSED for turn in _calls(rollout))


def _num_programs(judgment: Judgment) -> int:
    return sum(turn.outcome is not Outcome.REFUSED for rollout in judgment.rollouts for turn in _calls(rollout))


def _used(judged: Sequence[JudgedExample]) -> Mapping[str, list[tuple[frozenset[int], bool]]]:
    """By example: what was shown in each judgment, and whether a program ran."""
    used: dict[str, list[tuple[frozenset[int], bool]]] = defaultdict(list)
    for one in judged:
        for judgment, decisions in one.by_judgment():
            shown = frozenset(index for decision in decisions for index in decision.shown)
            used[one.outline.id].append((shown, any(map(_ran, judgment.rollouts))))
    return used


def _mean_credit(marks: Sequence[ComparisonScore]) -> Estimate:
    return share_of([mark.credit for mark in marks], clusters=[mark.outline.cluster for mark in marks])


def _unique(judged: Sequence[JudgedExample]) -> list[Judgment]:
    return [judgment for judgment, _ in _unique_with_clusters(judged)]


def _unique_with_clusters(judged: Sequence[JudgedExample]) -> list[tuple[Judgment, str]]:
    """Each judgment once, with the prompt that first asked for it."""
    found: dict[str, tuple[Judgment, str]] = {}
    for one in judged:
        for judgment in one.judgments:
            found.setdefault(judgment.id, (judgment, one.outline.cluster))
    return list(found.values())
