"""Protocols: the orders and votes to request, and the rule that scores the decisions.

paper         one order, drawn from a hash of the content; equal scores count as 0.5 (TIR-Judge, App. D, E)
official      the official rule of each benchmark
both_orders   two opposite orders; right only if both are right
votes=N       the majority of N rollouts in one order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tirjudge.right import ScoringRule
from tirjudge.types import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Official:
    """The official rule of a benchmark for one mode."""

    orders: Literal["single", "both"] = "single"
    counting: ScoringRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Orders and votes to request, with a scoring rule."""

    name: str
    orders: Literal["single", "both"] = "single"
    votes: int = 1
    counting: ScoringRule | None = None
    """Scoring rule. None: the official rule of the benchmark."""


PAPER = Protocol(name="paper", counting=ScoringRule())
OFFICIAL = Protocol(name="official")
BOTH_ORDERS = Protocol(name="both_orders", orders="both", counting=ScoringRule(orders="all"))


def find_protocol(name: str) -> Protocol:
    """Return a protocol by name, such as `paper` or `votes=5`.

    Raises:
        ValueError: unknown name.
    """
    for protocol in (PAPER, OFFICIAL, BOTH_ORDERS):
        if protocol.name == name:
            return protocol
    head, _, number = name.partition("=")
    if head == "votes" and number.isdecimal() and 1 <= int(number) <= 64:
        return Protocol(name=name, votes=int(number), counting=ScoringRule())
    raise ValueError(f"protocol: unknown protocol {name!r}; choose paper, official, both_orders or votes=N (1 to 64)")


DEFAULT_OFFICIAL = {mode: Official(counting=ScoringRule()) for mode in Mode}
"""The rule of a benchmark without an official rule for a mode: one order, a tie counts as 0.5."""
