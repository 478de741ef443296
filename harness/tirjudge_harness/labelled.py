"""Score a file of verdicts with labels, by every rule for which the file has enough orders.

first   only the first order counts
mean    the mean over both orders
net     right if more orders are right than wrong
all     right if every order is right
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tirjudge.right import ScoringRule, choices_by_order
from tirjudge.types import MODEL_MODES, Mode
from tirjudge.verdict import TIED
from tirjudge_harness.benchmark import Benchmark
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.evaluation import Evaluation, evaluate
from tirjudge_harness.external import EVEN
from tirjudge_harness.metric_tree import MeanMetric, Node, cells_by
from tirjudge_harness.protocols import Protocol

if TYPE_CHECKING:
    from tirjudge_harness.statistics.agreement import Agreement
    from tirjudge_harness.statistics.bias import Flips

RULES = (
    Protocol(name="first", counting=ScoringRule()),
    Protocol(name="mean", orders="both", counting=ScoringRule(orders="mean")),
    Protocol(name="net", orders="both", counting=ScoringRule(orders="net")),
    Protocol(name="all", orders="both", counting=ScoringRule(orders="all")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BothOrders:
    """Statistics of the pairs that were shown in both orders."""

    flips: Flips
    """Pairs whose two orders lead to different responses."""
    agreement: Agreement
    """Agreement of the first order with the second. A tie is a category."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """The result for a labeled file."""

    mode: Mode
    by_rule: dict[str, Evaluation]
    """Rule name -> evaluation, for each rule with enough orders in at least one example. A tie counts as 0.5, a missing
    verdict as 0."""
    agreement: Agreement | None
    """Agreement of the first order with the label. A tie is a category. None: the file has scores."""
    both_orders: BothOrders | None
    """Statistics of both orders. None: no pair was shown in both orders."""
    num_unlabelled: int
    """Examples without a label or with a tie as label. Every accuracy excludes them."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields; rates are from 0 to 1."""
        return {
            "mode": self.mode.value,
            "rules": {name: one.as_json() for name, one in self.by_rule.items()},
            "agreement": self.agreement and asdict(self.agreement),
            "both_orders": self.both_orders and asdict(self.both_orders),
            "num_unlabelled": self.num_unlabelled,
        }


def add_up(judged: Sequence[JudgedExample]) -> Labelled:
    """Compute all metrics of a labeled file.

    Args:
        judged: the examples, at least one, all judged in the same mode.
    """
    mode = judged[0].mode
    benchmark = _benchmark(judged)
    rules = RULES[:1] if mode is Mode.POINTWISE else RULES
    by_rule: dict[str, Evaluation] = {}
    for rule in rules:
        if rule.orders == "single" or any(len(_choices(one)) > 1 for one in judged):
            by_rule[rule.name] = evaluate(benchmark, judged, mode=mode, protocol=rule)
    return Labelled(
        mode=mode,
        by_rule=by_rule,
        agreement=None if mode is Mode.POINTWISE else _with_labels(judged),
        both_orders=_both_orders(judged),
        num_unlabelled=sum(not one.outline.correct for one in judged),
    )


def _benchmark(judged: Sequence[JudgedExample]) -> Benchmark:
    """Return a benchmark with the accuracy over all examples, and per subset if there are several subsets."""
    subsets = sorted({one.outline.subset for one in judged})
    parts: tuple[Node, ...] = cells_by("subset", subsets) if len(subsets) > 1 else ()
    return Benchmark(
        name="labelled",
        title="Labelled verdicts",
        citation="",
        sources={},
        columns=(),
        examples=lambda row, part: (),
        sheet=(MeanMetric(name="all", holds=lambda mark: True), *parts),
        modes=MODEL_MODES,
        compared=lambda outline, mode: [tuple(range(outline.num_responses))] if outline.num_responses > 1 else [],
    )


def _choices(judged: JudgedExample) -> list[int | None]:
    return choices_by_order(judged.decisions, range(judged.outline.num_responses))


def _with_labels(judged: Sequence[JudgedExample]) -> Agreement:
    from tirjudge_harness.statistics.agreement import agreement_of

    chosen = [(_choices(one) or [None])[0] for one in judged]
    even = [TIED if one.outline.facts.get(EVEN) else None for one in judged]
    labels = [one.outline.correct[0] if one.outline.correct else tied for one, tied in zip(judged, even, strict=True)]
    return agreement_of(chosen, labels)


def _both_orders(judged: Sequence[JudgedExample]) -> BothOrders | None:
    from tirjudge_harness.statistics.agreement import agreement_of
    from tirjudge_harness.statistics.bias import flips_of

    twice = [choices for one in judged if len(choices := _choices(one)) > 1]
    if not twice:
        return None
    agreement = agreement_of([first for first, *_ in twice], [second for _, second, *_ in twice])
    return BothOrders(flips=flips_of(judged), agreement=agreement)
