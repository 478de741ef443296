"""Judges items with a checkpoint, as the server does: greedy, in one order, with real programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tirjudge.concurrency import map_concurrently
from tirjudge.judge import Judge
from tirjudge.right import ScoringRule, credit, decisions_of
from tirjudge.types import Basis, JudgeRequest, Judgment, Mode, RolloutRecord
from tirjudge_training.bundled.evaluate import CONCURRENCY
from tirjudge_training.bundled.measuring.check_lists import written_checks
from tirjudge_training.bundled.measuring.items import FULL_SCORE, MeasuredItem
from tirjudge_training.validation import call_counts

RULE = ScoringRule(tie=0.5, accept_from=FULL_SCORE)
"""A tie counts one half. A single response is accepted if its score is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJudgment:
    """One judged item."""

    item: MeasuredItem
    credit: float
    """1: right, 0: wrong or no verdict, 0.5: a tie."""
    expected_credit: float
    """The same, but a guess counts by its probability of being right."""
    basis: Basis | None
    """What the verdict rests on. None: no verdict."""
    confidence: float | None
    """Confidence of the verdict. None: no verdict."""
    choice_probability: float | None
    """Probability of what the judge chose: a response, or yes or no. None: it chose nothing."""
    written: tuple[str, ...] | None
    """Checks of the first program. None: no program, or one without a list of checks."""
    output: str | None
    """Output of the first program. None: no program ran."""
    num_calls: int
    """Number of programs that ran."""
    num_failed_calls: int
    """Number of programs that failed."""

    @property
    def is_checked(self) -> bool:
        """Whether the verdict rests on a program."""
        return self.basis == "checked"


async def judge_items(
    judge: Judge, items: Sequence[MeasuredItem], *, on_item: Callable[[], None]
) -> list[MeasuredJudgment]:
    """Judge all items, one judgment each.

    Args:
        judge: judge with a real sandbox.
        items: the items.
        on_item: called after each item.
    """

    async def judged(item: MeasuredItem) -> MeasuredJudgment:
        judgment = await judge.judge(_request(item, item.mode, item.responses))
        on_item()
        return measured(item, judgment)

    return await map_concurrently(map(judged, items), num_at_once=CONCURRENCY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawJudgment:
    """One judged pair, before calibration."""

    chances: tuple[float, ...]
    """Probability of each response."""
    right: int
    """Index of the right response."""
    program_probability: float | None
    """Probability of the texts of all calls. None: no call."""
    is_checked: bool
    """Whether the verdict rests on a program."""

    @property
    def is_right(self) -> bool:
        """Whether the right response is the most probable one."""
        return self.chances[self.right] == max(self.chances)


async def judged_raw(judge: Judge, items: Sequence[MeasuredItem], *, on_item: Callable[[], None]) -> list[RawJudgment]:
    """Judge pairs, each of which has one right response. Items without a verdict are left out.

    Args:
        judge: judge with a profile that reads the probabilities of programs.
        items: the pairs.
        on_item: called after each item.
    """

    async def judged(item: MeasuredItem) -> RawJudgment | None:
        judgment = await judge.judge(_request(item, item.mode, item.responses))
        on_item()
        verdict, (rollout,) = judgment.verdict, judgment.rollouts
        if verdict.probabilities is None:
            return None
        found = [turn.probability for turn in rollout.turns if turn.probability is not None]
        return RawJudgment(
            chances=tuple(verdict.probabilities),
            right=next(iter(item.right)),
            program_probability=math.prod(found) if found else None,
            is_checked=verdict.basis == "checked",
        )

    found = await map_concurrently(map(judged, items), num_at_once=CONCURRENCY)
    return [each for each in found if each is not None]


def measured(item: MeasuredItem, judgment: Judgment) -> MeasuredJudgment:
    """Compare a judgment with what is known about its item."""
    asked = tuple(range(len(item.responses)))
    counted = credit(decisions_of(judgment, asked=asked), asked, right=item.right, mode=item.mode, counting=RULE)
    given = counted[1] if counted is not None else 0.0
    rollout, verdict = judgment.rollouts[0], judgment.verdict
    chances = _chances(item, judgment)
    choice = None if chances is None else _choice(item, judgment, chances)
    is_guess = verdict.basis == "guessed" and chances is not None
    counts = call_counts(judgment.rollouts)
    return MeasuredJudgment(
        item=item,
        credit=given,
        expected_credit=_expected(item, chances) if is_guess and chances is not None else given,
        basis=verdict.basis,
        confidence=verdict.confidence,
        choice_probability=choice,
        written=checks_in(rollout),
        output=next((turn.output for turn in rollout.turns if turn.output is not None), None),
        num_calls=counts["num_calls"],
        num_failed_calls=counts["num_failed_calls"],
    )


def checks_in(rollout: RolloutRecord) -> tuple[str, ...] | None:
    """Return the checks of the first program of a rollout; None if there are none."""
    code = next((turn.code for turn in rollout.turns if turn.code is not None), None)
    return None if code is None else written_checks(code)


def _request(item: MeasuredItem, mode: Mode, responses: Sequence[str], **options: str) -> JudgeRequest:
    fields = {"mode": mode, "prompt": item.prompt, "responses": list(responses), "temperature": 0.0, **options}
    return JudgeRequest.model_validate(fields | ({"evidence": list(item.evidence)} if item.evidence else {}))


def _chances(item: MeasuredItem, judgment: Judgment) -> list[float] | None:
    """Return the probability of each response, or of [no, yes] for one response; None if not known."""
    if item.mode is not Mode.POINTWISE:
        return judgment.verdict.probabilities
    verdict = judgment.rollouts[0].verdict
    if verdict is None or not verdict.probabilities:
        return None
    yes = sum(chance for label, chance in verdict.probabilities.items() if float(label) >= FULL_SCORE)
    return [1 - yes, yes]


def _choice(item: MeasuredItem, judgment: Judgment, chances: Sequence[float]) -> float | None:
    if item.mode is not Mode.POINTWISE:
        return None if judgment.verdict.best is None else chances[judgment.verdict.best]
    verdict = judgment.rollouts[0].verdict
    return None if verdict is None else chances[int(float(verdict.label) >= FULL_SCORE)]


def _expected(item: MeasuredItem, chances: Sequence[float]) -> float:
    if item.mode is Mode.POINTWISE:
        return chances[int(bool(item.right))]
    return sum(chances[place] for place in item.right)


# The same checks for all responses shown ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownChecks:
    """The checks of one prompt, for each way to show its responses."""

    item: MeasuredItem
    lists: tuple[tuple[str, ...] | None, ...]
    """Checks in both orders of the pair, and beside each response alone. None: no list of checks."""

    @property
    def are_equal(self) -> bool:
        """Whether all lists are the same, and there is one."""
        return self.lists[0] is not None and len(set(self.lists)) == 1

    @property
    def orders_are_equal(self) -> bool:
        """Whether the lists of both orders are the same, and there is one."""
        return self.lists[0] is not None and self.lists[0] == self.lists[1]


async def show_differently(
    judge: Judge, items: Sequence[MeasuredItem], *, on_item: Callable[[], None]
) -> list[ShownChecks]:
    """Judge pairs in both orders, and each of their responses alone."""

    async def judged(item: MeasuredItem) -> ShownChecks:
        pair = await judge.judge(_request(item, Mode.PAIRWISE, item.responses, orders="both"))
        alone = await judge.judge(_request(item, Mode.POINTWISE, item.responses))
        on_item()
        return ShownChecks(item=item, lists=tuple(map(checks_in, (*pair.rollouts, *alone.rollouts))))

    return await map_concurrently(map(judged, items), num_at_once=CONCURRENCY // 2)
