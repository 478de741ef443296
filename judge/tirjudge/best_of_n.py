"""Select the best of N responses to one prompt with a judge. The library, the harness and the server share this code.

A ranking strategy (`tirjudge.strategies`) orders the responses. Identical responses are judged once and share the result.
Responses of equal rank are ordered by how many of them have the same answer (TIR-Judge, App. E), then by their
position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tirjudge.strategies import STRATEGIES
from tirjudge.strategies.base import Contest, rank
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Mode

GROUP_SIZE = 4
"""Default number of responses in one listwise comparison."""

VERIFIED_WEIGHT = 4.0
"""Default weight of the vote of a verified response. Other votes have weight 1."""

JudgeOne = Callable[[JudgeRequest], Awaitable[Judgment]]
"""Makes one judgment: the method of a local judge or of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Result of a selection, with the judgments behind it."""

    method: str
    """Name of the strategy."""
    ranking: tuple[int, ...]
    """Indexes of all responses, best first."""
    scores: tuple[float | None, ...]
    """One score per response: 1 to 10 if the strategy scores each response, otherwise 0 to 1. None: no verdict on
    it."""
    judgments: tuple[Judgment, ...]
    """Judgments in the order in which they were requested."""

    @property
    def best(self) -> int:
        """Index of the best response."""
        return self.ranking[0]

    @property
    def num_calls(self) -> int:
        """Number of judgments."""
        return len(self.judgments)

    @property
    def num_undecided(self) -> int:
        """Number of judgments without a verdict."""
        return sum(judgment.verdict.status == "abstained" for judgment in self.judgments)


async def select(
    prompt: str | Sequence[ChatMessage],
    responses: Sequence[str],
    *,
    judge: JudgeOne,
    method: str = "knockout",
    answers: Sequence[str | None] | None = None,
    seed: int = 0,
    group_size: int = GROUP_SIZE,
    verified_weight: float = VERIFIED_WEIGHT,
    **judging: Any,
) -> Selection:
    """Select the best response.

    Args:
        prompt: the question that the responses answer: a text or a conversation.
        responses: at least one response.
        judge: makes one judgment. It is called concurrently.
        method: name of a strategy.
        answers: final answer of each response, normalized so that equal answers are equal strings. An answer of None is
            equal to no other. None instead of a list: each response text is its own answer.
        seed: seed of response orders, of sampling, and of the draw of a knockout or of groups.
        group_size: maximum number of responses in a listwise comparison.
        verified_weight: weight of the vote of a verified response. Other votes have weight 1.
        judging: further fields of each `JudgeRequest`, such as `tools`, `votes` and `reference`.

    Raises:
        ValueError: no responses, a wrong number of answers, or a missing argument that the method needs.
        EngineUnavailable, ServerUnavailable, ...: a judgment could not be made, so nothing was selected.
    """
    strategy = STRATEGIES.named(method)
    _check(len(responses), answers=answers, group_size=group_size)
    if strategy.needs_answers and (answers is None or judging.get("tools") == "off"):
        wrong = "answers: not given" if answers is None else 'tools: "off" given'
        raise ValueError(f"{wrong}, and {method} is a vote over answers that programs verify")
    fields = {"prompt": prompt if isinstance(prompt, str) else list(prompt), "seed": seed, **judging}
    judgments: list[Judgment | None] = []

    async def ask(mode: Mode, indexes: Sequence[int]) -> Judgment:
        number = len(judgments)
        judgments.append(None)
        request = JudgeRequest.model_validate({"mode": mode, "responses": [responses[i] for i in indexes], **fields})
        judgments[number] = judgment = await judge(request)
        return judgment

    contest = Contest(
        ask=ask,
        seed=seed,
        group_size=group_size,
        answers=answers or (),
        needs_program=judging.get("tools") == "on",
        verified_weight=verified_weight,
    )
    results = await rank(strategy, responses, contest=contest)
    return Selection(
        method=method,
        ranking=tuple(best_first([result.order_key for result in results], answers=answers or responses)),
        scores=tuple(result.score for result in results),
        judgments=tuple(judgment for judgment in judgments if judgment is not None),
    )


def _check(num_responses: int, *, answers: Sequence[str | None] | None, group_size: int) -> None:
    if not num_responses:
        raise ValueError("responses: none given; give at least one")
    if answers is not None and len(answers) != num_responses:
        raise ValueError(f"answers: {len(answers)} given for {num_responses} responses; give one per response")
    if group_size < 2:
        raise ValueError(f"group_size: {group_size} given; give at least 2")


SortKey = TypeVar("SortKey", float, tuple[float, ...])


def best_first(sort_keys: Sequence[SortKey | None], *, answers: Sequence[Hashable | None] | None = None) -> list[int]:
    """Return the indexes in descending order of their sort keys. Indexes with key None come last.

    Indexes with equal keys are ordered by how many of them share their answer (an answer of None is shared with no
    other), then by position.

    Args:
        sort_keys: one key per response.
        answers: one answer per response. None: no two answers are equal.

    >>> best_first([7.0, 9.0, None, 9.0, 9.0], answers=["4", "5", "6", "6", "6"])
    [3, 4, 1, 0, 2]
    """
    answer_of = answers if answers is not None else [None] * len(sort_keys)
    classes = [(sort_key, answer) for sort_key, answer in zip(sort_keys, answer_of, strict=True)]
    votes = Counter(each for each in classes if each[1] is not None)
    first_of: dict[tuple[object, object], int] = {}
    for index, each in enumerate(classes):
        first_of.setdefault(each, index)
    distinct = sorted({each for each in sort_keys if each is not None}, reverse=True)
    ranks = {sort_key: rank for rank, sort_key in enumerate(distinct)}

    def key(index: int) -> tuple[int, int, int, int]:
        rank = ranks.get(sort_keys[index], len(ranks))  # type: ignore[arg-type]
        return rank, -votes[classes[index]], first_of[classes[index]], index

    return sorted(range(len(sort_keys)), key=key)


def majority_index(answers: Sequence[Hashable | None]) -> int:
    """Return the index of the first response with the most frequent answer. Among equally frequent answers, the first
    wins.

    >>> majority_index(["7", None, "8", "8", None, None])
    2
    """
    return best_first([0.0] * len(answers), answers=answers)[0]
