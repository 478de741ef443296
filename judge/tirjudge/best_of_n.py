"""The best of N responses to one prompt, chosen by a judge. One definition for the library, the harness and the server.

How the responses are set in order is a strategy (`tirjudge.strategies`). Equal texts are judged once and share what they
get. Of responses that come out equal, those are best whose answer most of the equal ones share (TIR-Judge, App. E), and of
these the first.
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
"""How many responses one listwise comparison shows."""

VERIFIED_WEIGHT = 4.0
"""What a verified response's vote weighs; any other weighs 1."""

JudgeOne = Callable[[JudgeRequest], Awaitable[Judgment]]
"""A judge in this process, or a client of one elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was chosen, and what it rests on."""

    method: str
    """Name of the strategy."""
    ranking: tuple[int, ...]
    """Indexes of all responses, the best first."""
    scores: tuple[float | None, ...]
    """One a response: 1 to 10 where each was scored, else 0 to 1. None: the judge decided nothing about it."""
    judgments: tuple[Judgment, ...]
    """In the order in which they were asked for."""

    @property
    def best(self) -> int:
        return self.ranking[0]

    @property
    def num_calls(self) -> int:
        return len(self.judgments)

    @property
    def num_undecided(self) -> int:
        """Judgments without a verdict."""
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
    """Choose the best response.

    Args:
        prompt: what the responses answer: text, or a conversation.
        responses: one at least.
        judge: makes one judgment; several are asked for side by side.
        method: name of a strategy.
        answers: the final answer of each response, in a form in which equal answers are equal texts; an answer of None agrees
            with nothing. None: each text is its own answer.
        seed: of orders, samples, and the draw of a knockout or of groups.
        group_size: how many responses a listwise comparison shows at most.
        verified_weight: what the vote of a verified response weighs.
        judging: fields of the `JudgeRequest`s, such as `tools`, `votes` and `reference`.

    Raises:
        ValueError: there is no response, the answers are not as many, or the method needs what is not given.
        EngineUnavailable, ServerUnavailable, ...: a judgment could not be made; nothing is selected.
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
        raise ValueError("responses: none given, one at least is needed")
    if answers is not None and len(answers) != num_responses:
        raise ValueError(f"answers: {len(answers)} given for {num_responses} responses; one each is needed")
    if group_size < 2:
        raise ValueError(f"group_size: {group_size} given, at least 2 responses are compared")


SortKey = TypeVar("SortKey", float, tuple[float, ...])


def best_first(sort_keys: Sequence[SortKey | None], *, answers: Sequence[Hashable | None] | None = None) -> list[int]:
    """Indexes in the order of their sort_keys, those without one at the end.

    Equal ones: by how many of the equal ones share their answer, which None never does, and then in their own order.

    >>> best_first([7.0, 9.0, None, 9.0, 9.0], answers=["4", "5", "6", "6", "6"])
    [3, 4, 1, 0, 2]
    """
    own = answers if answers is not None else [None] * len(sort_keys)
    classes = [(key_, answer) for key_, answer in zip(sort_keys, own, strict=True)]
    votes = Counter(each for each in classes if each[1] is not None)
    first_of: dict[tuple[object, object], int] = {}
    for index, each in enumerate(classes):
        first_of.setdefault(each, index)
    places = {key_: place for place, key_ in enumerate(sorted({m for m in sort_keys if m is not None}, reverse=True))}

    def key(index: int) -> tuple[int, int, int, int]:
        place = places.get(sort_keys[index], len(places))  # type: ignore[arg-type]
        return place, -votes[classes[index]], first_of[classes[index]], index

    return sorted(range(len(sort_keys)), key=key)


def majority_index(answers: Sequence[Hashable | None]) -> int:
    """The first response with the answer that most give; of answers given as often, the one that was given first.

    >>> majority_index(["7", None, "8", "8", None, None])
    2
    """
    return best_first([0.0] * len(answers), answers=answers)[0]
