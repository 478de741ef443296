"""How a judge is asked, and how what it says is counted: named, explicit objects.

paper         one random order, drawn from the content; a tied pair of scores counts half (TIR-Judge, App. D, E)
official      each benchmark's own
both_orders   two opposite orders; right only if both are
votes=N       the majority of N rollouts in one order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tirjudge.right import ScoringRule
from tirjudge.types import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Official:
    """A benchmark's own rule for one mode."""

    orders: Literal["single", "both"] = "single"
    counting: ScoringRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way to ask and to count."""

    name: str
    orders: Literal["single", "both"] = "single"
    votes: int = 1
    counting: ScoringRule | None = None
    """None: the benchmark's own."""


PAPER = Protocol(name="paper", counting=ScoringRule())
OFFICIAL = Protocol(name="official")
BOTH_ORDERS = Protocol(name="both_orders", orders="both", counting=ScoringRule(orders="all"))


def find_protocol(name: str) -> Protocol:
    """The protocol of a name; `votes=5` is one.

    Raises:
        ValueError: there is none of that name.
    """
    for protocol in (PAPER, OFFICIAL, BOTH_ORDERS):
        if protocol.name == name:
            return protocol
    head, _, number = name.partition("=")
    if head == "votes" and number.isdecimal() and 1 <= int(number) <= 64:
        return Protocol(name=name, votes=int(number), counting=ScoringRule())
    raise ValueError(f"protocol: {name!r} given; paper, official, both_orders and votes=N (1 to 64) are known")


DEFAULT_OFFICIAL = {mode: Official(counting=ScoringRule()) for mode in Mode}
