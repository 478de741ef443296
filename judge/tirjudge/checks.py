"""Checks of responses: deterministic rules beside the model, and what a failed check does to a verdict.

A gate changes the verdict of the model:

    cap        pointwise: the score of a response that fails is at most the cap
    decides    pairwise, listwise: a response that fails loses to those that pass; pointwise: as a cap of 1

Without a model, the checks give the scores: 1 + 9 x the weighted share of the checks that a response passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from tirjudge.errors import EvidenceRefused
from tirjudge.kinds import Kinds
from tirjudge.tools.base import ToolOptions
from tirjudge.types import (
    GOOD_SCORE,
    RULE,
    CheckResult,
    GateRecord,
    JudgeRequest,
    Mode,
    Severity,
    StoreKind,
    Verdict,
    label_of,
)
from tirjudge.verdict import highest

LOWEST, HIGHEST = 1.0, 10.0
"""Bounds of a score."""

SCORE_DIGITS = 3
"""Decimal places of scores, as in `tirjudge.verdict`."""

NO_CHECK_APPLIES = "no_check_applies"
"""Reason of an abstention: every check of a response was skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Effect of a failed check on a verdict."""

    cap: float | None = None
    """Pointwise: highest score of a response that fails. None: no cap."""
    decides: bool = False
    """Pairwise and listwise: whether a response that fails loses to those that pass."""

    @property
    def highest(self) -> float:
        """Highest score of a response that fails."""
        caps = [HIGHEST] if self.cap is None else [self.cap]
        return min([*caps, LOWEST] if self.decides else caps)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededStore:
    """A store of evidence that each request must attach, because a check asks it."""

    name: str
    kind: StoreKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCard:
    """What is known about a check."""

    name: str
    """Name, unique within its file."""
    kind: str
    """Kind, such as `sql`."""
    severity: Severity
    """Lowest severity of a finding that fails the check."""
    weight: float
    """Weight in the score without a model, above 0."""
    gate: Gate | None
    """Effect on verdicts. None: the check only reports."""
    sha256: str
    """SHA-256 of its definition and of the registered store that it asks."""
    needs: NeededStore | None = None
    """Store that comes with the request. None: the check asks a registered store or none."""


class Checks(Protocol):
    """Open checks."""

    @property
    def cards(self) -> Sequence[CheckCard]:
        """The checks, in the order of the results."""
        ...

    async def examine(self, request: JudgeRequest) -> list[list[CheckResult]]:
        """Check each response.

        Returns:
            For each response, one result per check.

        Raises:
            SandboxUnavailable: a check could not be made, for a reason outside the response.
        """
        ...


ChecksOpener = Callable[[str, ToolOptions], AbstractAsyncContextManager[Checks]]
"""Opens the checks of a settings file and closes them at the end of the block. It raises ValueError for invalid settings,
ToolUnavailable for a missing library, and SandboxUnavailable."""

OPENERS: Kinds[ChecksOpener] = Kinds("tirjudge.check_files", what="opener of checks")
"""Openers of checks, by name."""

OPENER = "evidence"
"""Name of the opener of `--checks FILE`."""


def open_checks(path: str, *, options: ToolOptions) -> AbstractAsyncContextManager[Checks]:
    """Open the checks of a settings file, and close them at the end of the block.

    Raises:
        ValueError, ToolUnavailable, SandboxUnavailable: as in `ChecksOpener`.
    """
    return OPENERS.named(OPENER)(path, options)


def require_stores(request: JudgeRequest, *, cards: Sequence[CheckCard]) -> None:
    """Check that a request attaches the stores that the checks need.

    Raises:
        EvidenceRefused: a store is missing or has another kind.
    """
    attached = {store.name: store.kind for store in request.evidence or ()}
    for card in cards:
        need = card.needs
        if need is not None and attached.get(need.name) != need.kind:
            given = ", ".join(f"{name} ({kind})" for name, kind in attached.items()) or "none"
            raise EvidenceRefused(
                f"evidence: {given} given, but the check {card.name!r} needs the store {need.name!r} of kind {need.kind}; "
                "attach it to the request"
            )


def gated(
    verdict: Verdict, *, mode: Mode, cards: Sequence[CheckCard], results: Sequence[Sequence[CheckResult]]
) -> Verdict:
    """Return the verdict of the model after the gates. An abstention stays one; the scores that it has are capped too.

    Args:
        verdict: verdict of the model.
        mode: mode of the request.
        cards: the checks.
        results: for each response, one result per check.
    """
    if mode.scores_each:
        return _capped(verdict, cards, results)
    return verdict if verdict.status == "abstained" else _decided(verdict, cards, results)


def _failing(cards: Sequence[CheckCard], results: Sequence[CheckResult]) -> list[CheckCard]:
    """Return the checks with a gate that a response fails."""
    return [card for card, result in zip(cards, results, strict=True) if card.gate is not None and result.failed]


def _capped(verdict: Verdict, cards: Sequence[CheckCard], results: Sequence[Sequence[CheckResult]]) -> Verdict:
    """Return a pointwise verdict with capped scores, and with the best response of these."""
    scores = list(verdict.scores or ())
    gates = []
    for response, score in enumerate(scores):
        for card in _failing(cards, results[response]):
            cap = card.gate.highest if card.gate is not None else HIGHEST
            if score is not None and cap < score:
                gates.append(GateRecord(check=card.name, response=response, effect="cap", before=score, after=cap))
                scores[response] = score = cap
    if not gates:
        return verdict
    known = [score for score in scores if score is not None]
    if verdict.status == "abstained":
        decided = {}
    elif len(scores) == 1:
        decided = {"label": _score_label(known[0]), "reason": RULE, "basis": "checked"}
    else:
        decided = _best_of_scores(known)
        if decided["best"] == verdict.best:
            decided = {}
        elif decided["best"] is not None:
            decided |= {"reason": RULE, "basis": "checked"}
        else:
            decided["basis"] = "checked"
    return verdict.model_copy(update={**decided, "scores": scores, "gates": gates})


def _decided(verdict: Verdict, cards: Sequence[CheckCard], results: Sequence[Sequence[CheckResult]]) -> Verdict:
    """Return the verdict of a comparison, in which a response that fails a deciding check loses to those that pass.

    If the best response fails, the most probable one of the others wins; several without a lead share a tie. After a tie, the
    only response that passes wins. Otherwise the best one stays, and the responses that fail are behind those that pass.
    """
    deciding = [[c for c in _failing(cards, each) if c.gate is not None and c.gate.decides] for each in results]
    passing = [response for response, failed in enumerate(deciding) if not failed]
    losers = [response for response, failed in enumerate(deciding) if failed]
    if not passing or not losers:
        return verdict
    stays = verdict.best in passing or (verdict.best is None and len(passing) > 1)
    if stays and not _is_behind(passing, losers, verdict.probabilities):
        return verdict
    best = verdict.best if stays else _most_probable(passing, verdict.probabilities)
    gates = [
        GateRecord(check=card.name, response=response, effect="decides", before=verdict.best, after=best)
        for response in losers
        for card in deciding[response]
    ]
    if stays:
        return verdict.model_copy(update={"gates": gates})
    return verdict.model_copy(
        update={
            "status": "tie" if best is None else "decided",
            "best": best,
            "label": None if best is None else label_of(best),
            "reason": RULE,
            "basis": "checked",
            "gates": gates,
        }
    )


def _is_behind(passing: Sequence[int], losers: Sequence[int], probabilities: Sequence[float] | None) -> bool:
    """Whether a response that passes is not more probable than one that fails."""
    return probabilities is not None and min(map(probabilities.__getitem__, passing)) <= max(
        map(probabilities.__getitem__, losers)
    )


def _most_probable(responses: Sequence[int], probabilities: Sequence[float] | None) -> int | None:
    """Return the most probable of some responses; None if none leads."""
    if len(responses) == 1:
        return responses[0]
    if probabilities is None:
        return None
    top = max(probabilities[response] for response in responses)
    leading = [response for response in responses if probabilities[response] == top]
    return leading[0] if len(leading) == 1 else None


def rules_score(cards: Sequence[CheckCard], results: Sequence[CheckResult]) -> float | None:
    """Return the score of a response by its checks, 1 to 10, before the gates; None if every check was skipped.

    It is 1 + 9 x the sum of the weights of the passed checks / the sum of the weights of those that apply.
    """
    applying = [(card.weight, result.passed) for card, result in zip(cards, results, strict=True) if not result.skipped]
    total = math.fsum(weight for weight, _ in applying)
    if not applying:
        return None
    return round(
        LOWEST + (HIGHEST - LOWEST) * math.fsum(weight for weight, passed in applying if passed) / total, SCORE_DIGITS
    )


def rules_verdict(*, mode: Mode, cards: Sequence[CheckCard], results: Sequence[Sequence[CheckResult]]) -> Verdict:
    """Return the verdict of the checks alone. The highest score is the best; equal scores are a tie.

    Probabilities are 0, 1 or those of a tie: a rule has no doubt.

    Args:
        mode: mode of the request. Pointwise and rules give the scores.
        cards: the checks.
        results: for each response, one result per check.
    """
    scored = [rules_score(cards, each) for each in results]
    scores = [score for score in scored if score is not None]
    if len(scores) < len(scored):
        return _by_rules(
            status="abstained", reason=NO_CHECK_APPLIES, scores=scored if scores and mode.scores_each else None
        )
    by_score = _capped(_by_rules(status="decided", scores=scored), cards, results)
    scores = [score for score in by_score.scores or () if score is not None]
    if mode.scores_each:
        decided = _best_of_scores(scores) if len(scores) > 1 else {"label": _score_label(scores[0])}
        return by_score.model_copy(
            update={
                "reason": None,
                **decided,
                "probabilities": [float(score >= GOOD_SCORE) for score in scores],
                "confidence": 1.0,
                "basis": "checked",
            }
        )
    verdict = _decided(_by_rules(**_best_of_scores(scores)), cards, results)
    leading = [i for i, score in enumerate(scores) if score == max(scores)] if verdict.best is None else [verdict.best]
    return verdict.model_copy(
        update={
            "reason": verdict.reason if verdict.status == "tie" else None,
            "probabilities": [1 / len(leading) if i in leading else 0.0 for i in range(len(scores))],
            "confidence": 1 / len(leading),
            "gates": [*by_score.gates, *verdict.gates],
        }
    )


def _by_rules(**fields: object) -> Verdict:
    empty = dict.fromkeys(("best", "label", "scores", "probabilities", "confidence", "label_mass"))
    basis = None if fields["status"] == "abstained" else "checked"
    return Verdict.model_validate({**empty, "forced": False, "basis": basis, **fields})


def _best_of_scores(scores: Sequence[float]) -> dict[str, object]:
    """Return the fields of a verdict that name the best response of several."""
    best = highest(scores)
    if best is None:
        return {"status": "tie", "best": None, "label": None, "reason": "equal_scores"}
    return {"status": "decided", "best": best, "label": label_of(best), "reason": None}


def _score_label(score: float) -> str:
    """Return the label of a score: the nearest whole number, of two the lower one."""
    return str(math.ceil(score - 0.5))
