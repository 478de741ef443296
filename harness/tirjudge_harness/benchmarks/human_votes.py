"""Pairs with the votes of several people, and the agreement of a judge with these votes.

The votes of an example are in `facts["votes"]`: 0 or 1 for the first or second response, and `TIED`. The judge's choice is
its choice in all judged orders; orders that disagree are a tie. A missing verdict agrees with no vote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean

from tirjudge.right import choices_by_order, scores_of
from tirjudge.types import ChatMessage, Mode
from tirjudge.verdict import TIED
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, ExampleMetadata, example, model_facts

VOTES = "votes"


def voted(
    *,
    id: str,
    prompt: str | tuple[ChatMessage, ...],
    responses: tuple[str, str],
    vote: int,
    subset: str,
    cluster: str | None = None,
    models: tuple[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> Example:
    """Return an example with one vote: 0, 1 or `TIED`. `models`: names of the models that wrote the responses."""
    return example(
        id=id,
        prompt=prompt,
        responses=responses,
        correct=_preferred([vote]),
        subset=subset,
        cluster=cluster,
        tags=tags,
        facts={VOTES: [vote], **({} if models is None else model_facts(*models))},
    )


def joined(first: Example, second: Example) -> Example:
    """Return an example with the votes of both examples, which have the same texts."""
    votes = [*first.outline.facts[VOTES], *second.outline.facts[VOTES]]
    return replace(
        first, outline=replace(first.outline, correct=_preferred(votes), facts={**first.outline.facts, VOTES: votes})
    )


def the_pair(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    """Return the two responses, even if the votes are tied."""
    return [(0, 1)]


def choice_of_judge(judged: JudgedExample) -> int | None:
    """Return 0, 1 or `TIED`; None without a verdict in one of the orders."""
    if judged.mode is Mode.POINTWISE:
        scores = scores_of(judged.decisions, expected=False)
        first, second = scores.get(0), scores.get(1)
        if first is None or second is None:
            return None
        return TIED if first == second else int(second > first)
    choices = choices_by_order(judged.decisions, (0, 1))
    if not choices or None in choices:
        return None
    return choices[0] if len(set(choices)) == 1 else TIED


def agreement_with_votes(judged: Sequence[JudgedExample], *, with_ties: bool) -> float | None:
    """Return the share of votes that equal the judge's choice. None: no vote counts.

    Args:
        judged: the examples.
        with_ties: whether ties count. False: votes for a tie and examples with a tie of the judge are left out.
    """
    return _share(
        (choice, vote)
        for one in judged
        for choice in (choice_of_judge(one),)
        for vote in one.outline.facts[VOTES]
        if with_ties or TIED not in (choice, vote)
    )


def agreement_of_voters(judged: Sequence[JudgedExample], *, with_ties: bool) -> float | None:
    """Return the share of pairs of votes on one example that are equal, which is the ceiling of `agreement_with_votes`.

    None: no pair of votes counts. `with_ties`: whether ties count.
    """
    return _share(
        both for one in judged for both in combinations(one.outline.facts[VOTES], 2) if with_ties or TIED not in both
    )


def _share(pairs: Iterable[tuple[int | None, int]]) -> float | None:
    equal = [choice == vote for choice, vote in pairs]
    return fmean(equal) if equal else None


def agreement_with_majority(choice: int | None, votes: Sequence[int]) -> float:
    """Return the expected agreement of a choice with the most frequent vote, 0 to 1.

    A tie agrees half with each response. If several votes are the most frequent, each is equally likely to be drawn.
    """
    if choice is None:
        return 0.0
    counted = Counter(votes)
    most = max(counted.values())
    return fmean(1 - abs(_place(choice) - _place(vote)) for vote, count in counted.items() if count == most)


def _place(choice: int) -> float:
    """Return 0 for the first response, 1 for the second, and 0.5 for a tie."""
    return 0.5 if choice == TIED else float(choice)


def _preferred(votes: Sequence[int]) -> tuple[int, ...]:
    """Return the response with more votes; both if the votes are even."""
    lead = votes.count(0) - votes.count(1)
    return (0, 1) if not lead else (0,) if lead > 0 else (1,)
