"""MT-Bench human judgments: experts compared the answers of six models to 80 questions with a follow-up question.

Agreement is counted over votes, separately for the two turns, with and without ties (setups S1 and S2 of the paper). The
agreement of experts with one another is the ceiling. The official rule judges both orders; orders that disagree are a tie.
The votes of the authors are left out, as in the official program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge.verdict import TIED
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.benchmarks.human_votes import (
    agreement_of_voters,
    agreement_with_votes,
    joined,
    the_pair,
    voted,
)
from tirjudge_harness.columns import messages, name, text, whole
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example
from tirjudge_harness.metric_tree import FormulaMetric
from tirjudge_harness.protocols import Official

WINNERS = {"model_a": 0, "model_b": 1}
TIE = "tie"
"""Start of the winner if the person preferred neither answer."""
RATERS = ("expert", "author")

REVISION = "6085f5b73c2ea3dee52918d07ed6b399f6c51fea"

FOLLOW_UP = """{first}

Then the user continues:

{second}"""
BOTH_ANSWERS = """{first}

To the second message:

{second}"""


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert the vote of an expert to one example. The model whose name sorts first has the first response."""
    rater, winner, turn = text(row, "judge"), text(row, "winner"), whole(row, "turn")
    if not rater.startswith(RATERS):
        raise ValueError(f"judge: {rater!r} does not start with one of {', '.join(RATERS)}")
    if winner not in WINNERS and not winner.startswith(TIE):
        raise ValueError(f"winner: expected {', '.join(WINNERS)} or {TIE}, got {winner!r}")
    if turn not in (1, 2):
        raise ValueError(f"turn: expected 1 or 2, got {turn}")
    first_model, second_model = text(row, "model_a"), text(row, "model_b")
    vote = WINNERS.get(winner, TIED)
    prompt, first = _shown(row, "conversation_a", turn=turn)
    _, second = _shown(row, "conversation_b", turn=turn)
    if first_model > second_model:
        first_model, second_model, first, second = second_model, first_model, second, first
        vote = TIED if vote == TIED else 1 - vote
    if rater.startswith(RATERS[0]):
        question = name(row, "question_id")
        yield voted(
            id=f"{question}/{first_model}/{second_model}/turn-{turn}",
            prompt=prompt,
            responses=(first, second),
            vote=vote,
            subset=f"turn {turn}",
            cluster=question,
            models=(first_model, second_model),
        )


def _shown(row: Row, column: str, *, turn: int) -> tuple[str, str]:
    """Return the questions and the answers up to a turn, each as one text."""
    given = messages(row, column)
    asked = [message.content for message in given if message.role == "user"][:turn]
    answered = [message.content for message in given if message.role == "assistant"][:turn]
    if len(asked) < turn or len(answered) < turn:
        raise ValueError(f"{column}: expected {turn} questions and answers, got {len(asked)} and {len(answered)}")
    if turn == 1:
        return asked[0], answered[0]
    return FOLLOW_UP.format(first=asked[0], second=asked[1]), BOTH_ANSWERS.format(first=answered[0], second=answered[1])


def _metrics(title: str, compute: Callable[..., float | None]) -> tuple[FormulaMetric, ...]:
    """Return one metric per turn, with and without ties."""

    def of(turn: int, *, with_ties: bool) -> FormulaMetric:
        def holds(one: JudgedExample) -> bool:
            return one.outline.subset == f"turn {turn}"

        counted: Callable[[Sequence[JudgedExample]], float | None] = partial(compute, with_ties=with_ties)
        ties = "with" if with_ties else "without"
        return FormulaMetric(name=f"{title}, turn {turn}, {ties} ties", compute=counted, holds=holds)

    return tuple(of(turn, with_ties=with_ties) for turn in (1, 2) for with_ties in (False, True))


BENCHMARK = Benchmark(
    name="mt-bench-human",
    title="MT-Bench human judgments",
    citation="arXiv:2306.05685",
    sources={
        "human": HubSource(
            id="lmsys/mt_bench_human_judgments",
            split="human",
            revision=REVISION,
            license="CC-BY-4.0",
            num_rows=3355,
        )
    },
    columns=("question_id", "model_a", "model_b", "winner", "judge", "conversation_a", "conversation_b", "turn"),
    examples=examples,
    joined=joined,
    compared=the_pair,
    sheet=(*_metrics("agreement", agreement_with_votes), *_metrics("experts", agreement_of_voters)),
    official={
        Mode.PAIRWISE: Official(orders="both", counting=ScoringRule(orders="all")),
        Mode.POINTWISE: Official(counting=ScoringRule(tie=0.0)),
    },
)
