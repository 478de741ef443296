"""Protocols: the orders and votes to request, and the rule that scores the decisions.

paper         one order, drawn from a hash of the content; equal scores count as 0.5 (TIR-Judge, App. D, E)
official      the official rule and sampling of each benchmark
single_game   one order; a tie and a missing verdict count as wrong (JudgeBench's `--single_game`)
both_orders   two opposite orders; right only if both are right, or if the rule of the format that joins them is right
votes=N       the majority of N rollouts in one order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tirjudge.right import ScoringRule
from tirjudge.types import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialSampling:
    """How the official code of a benchmark samples the answers of a model."""

    temperature: float
    top_p: float = 1.0
    max_tokens: int | None = None
    """Maximum number of tokens of an answer, thoughts included. None: the official code sets different limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Official:
    """The official rule of a benchmark for one mode."""

    orders: Literal["single", "both"] = "single"
    counting: ScoringRule
    sampling: OfficialSampling | None = None
    """Sampling of the official code. None: it fixes none."""
    ignores_junk: bool = False
    """Whether the official code ignores a decision that it does not offer, such as `A>A`. It then counts as no verdict."""


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
SINGLE_GAME = Protocol(name="single_game", counting=ScoringRule(tie=0.0))
BOTH_ORDERS = Protocol(name="both_orders", orders="both", counting=ScoringRule(orders="joined"))


def find_protocol(name: str) -> Protocol:
    """Return a protocol by name, such as `paper` or `votes=5`.

    Raises:
        ValueError: unknown name.
    """
    for protocol in (PAPER, OFFICIAL, SINGLE_GAME, BOTH_ORDERS):
        if protocol.name == name:
            return protocol
    head, _, number = name.partition("=")
    if head == "votes" and number.isdecimal() and 1 <= int(number) <= 64:
        return Protocol(name=name, votes=int(number), counting=ScoringRule())
    raise ValueError(
        f"protocol: unknown protocol {name!r}; choose paper, official, single_game, both_orders or votes=N (1 to 64)"
    )


DEFAULT_RULE = Official(counting=ScoringRule())
"""The rule of a benchmark without an official rule for a mode: one order, a tie counts as 0.5."""

DEFAULT_OFFICIAL: dict[Mode | None, Official] = dict.fromkeys(Mode, DEFAULT_RULE)
"""The official rules of a benchmark without its own."""
