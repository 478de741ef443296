"""The cost of a request in rollouts and characters, computed from its texts before any judgment is made.

A rollout is one run of the model on one prompt. A judgment has votes x orders rollouts for each of its prompts; a pointwise
judgment has one prompt per response. Characters are counted in the texts of all rollouts, without truncation; a text that
appears in several prompts counts several times. A small request body can have a high cost, for example if it asks for all
pairs of its responses, or many questions about one long input. Every endpoint checks the total cost of a request against
one `CostLimits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge.http.rewards import RewardMode
from tirjudge.strategies import STRATEGIES
from tirjudge.strategies.base import PromptCounts
from tirjudge.types import ChatMessage, Criterion, JudgeRequest, Mode
from tirjudge_server.scoring import ResponseGroup, Scoring
from tirjudge_server.settings import MAX_PROMPT_CHARS, MAX_ROLLOUTS
from tirjudge_web.cost import check_cost

_SPLIT = "split the request into several"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of a request or of a part of it."""

    rollouts: int = 0
    """Number of rollouts."""
    chars: int = 0
    """Characters of the prompts and responses of all rollouts, before truncation."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(rollouts=self.rollouts + other.rollouts, chars=self.chars + other.chars)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLimits:
    """The maximum cost of one request."""

    rollouts: int = MAX_ROLLOUTS
    """Maximum number of rollouts."""
    chars: int = MAX_PROMPT_CHARS
    """Maximum number of characters in all rollouts."""

    def check(self, cost: Cost, *, param: str | None = None) -> None:
        """Check the cost of a whole request.

        Args:
            cost: the total cost.
            param: the request field that causes the cost, for the error; None: no field in particular.

        Raises:
            Refused: 413, the cost exceeds a limit.
        """
        check_cost(
            cost.rollouts,
            most=self.rollouts,
            what="rollouts (judgments x orders x votes)",
            param=param,
            remedy=f"{_SPLIT}, or ask for fewer pairs, orders or votes",
        )
        check_cost(
            cost.chars,
            most=self.chars,
            what="characters in the prompts of all rollouts",
            param=param,
            remedy=f"{_SPLIT}, or shorten what is repeated in each prompt",
        )

    def affordable(self, costs: Sequence[Cost]) -> list[bool]:
        """Return for each part of a request whether it is judged. A part that costs too much does not fail the others.

        All parts are judged if their total cost is within the limits. Otherwise each part is judged if its cost is within an
        equal share of the limits.
        """
        total = sum(costs, Cost())
        if total.rollouts <= self.rollouts and total.chars <= self.chars:
            return [True] * len(costs)
        most = CostLimits(rollouts=self.rollouts // len(costs), chars=self.chars // len(costs))
        return [cost.rollouts <= most.rollouts and cost.chars <= most.chars for cost in costs]


def request_cost(request: JudgeRequest, *, group_size: int) -> Cost:
    """The cost of one judgment.

    Args:
        request: the request to the judge.
        group_size: maximum number of responses in one listwise prompt.
    """
    shared = _text_chars(request.prompt) + _guidance_chars(request.reference, request.rubric, request.criteria)
    return _cost(
        request.responses,
        counts=_counts(len(request.responses), mode=request.mode, group_size=group_size),
        shared=shared,
        repeats=_repeats(request.mode, orders=request.orders, votes=request.votes),
    )


def group_cost(group: ResponseGroup, *, scoring: Scoring, group_size: int) -> Cost:
    """The cost of the rewards of one group.

    Args:
        group: the responses to one prompt. Duplicates are counted as if they were different.
        scoring: how responses become rewards.
        group_size: maximum number of responses in one listwise prompt.
    """
    judging = scoring.judging
    guidance = _guidance_chars(group.reference, judging.get("rubric"), judging.get("criteria"))
    responses, mode = list(group.responses), Mode.POINTWISE
    counts = PromptCounts(prompts=len(responses), showings=1)
    if scoring.mode is RewardMode.PAIRWISE_VS_REFERENCE:
        mode = Mode.PAIRWISE
    elif scoring.mode is RewardMode.COHORT:
        mode = Mode.PAIRWISE
        counts = STRATEGIES.named(scoring.strategy).prompt_counts(len(responses), group_size=group_size)
    repeats = _repeats(mode, orders=judging.get("orders", "single"), votes=judging.get("votes", 1))
    return _cost(responses, counts=counts, shared=_text_chars(group.prompt) + guidance, repeats=repeats)


def question_cost(prompt_chars: int, options: Sequence[str], *, like: JudgeRequest, group_size: int) -> Cost:
    """The cost of a judgment whose prompt is not rendered yet.

    Args:
        prompt_chars: number of characters of the future prompt.
        options: the options to choose from.
        like: a request with the same reference, rubric, criteria, orders and votes.
        group_size: maximum number of options in one listwise prompt.
    """
    shared = prompt_chars + _guidance_chars(like.reference, like.rubric, like.criteria)
    repeats = _repeats(Mode.PAIRWISE, orders=like.orders, votes=like.votes)
    counts = _counts(len(options), mode=Mode.LISTWISE, group_size=group_size)
    return _cost(options, counts=counts, shared=shared, repeats=repeats)


def _cost(responses: Sequence[str], *, counts: PromptCounts, shared: int, repeats: int) -> Cost:
    shown = sum(map(len, responses))
    chars = counts.prompts * shared + counts.showings * shown
    return Cost(rollouts=repeats * counts.prompts, chars=repeats * chars)


def _counts(num_responses: int, *, mode: Mode, group_size: int) -> PromptCounts:
    """Return the prompt counts of one judgment, which shows responses in the same groups as the listwise strategy."""
    strategy = STRATEGIES["pointwise" if mode.scores_each else "listwise"]
    return strategy.prompt_counts(num_responses, group_size=group_size)


def _repeats(mode: Mode, *, orders: str, votes: int) -> int:
    return votes * (2 if orders == "both" and not mode.scores_each else 1)


def _text_chars(prompt: str | Sequence[ChatMessage]) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message.content) for message in prompt)


def _guidance_chars(reference: str | None, rubric: str | None, criteria: Sequence[Criterion] | None) -> int:
    return len(reference or "") + len(rubric or "") + sum(len(criterion.text) for criterion in criteria or ())
