"""Builders of comparison scores, decisions, judgments and examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.judgments import (
    Status,
    build_judgment,
    build_rollout,
    build_rollout_verdict,
    build_turn,
    build_verdict,
)
from tirjudge.right import Decision, decisions_of
from tirjudge.types import Judgment, Mode, Outcome
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import ExampleMetadata
from tirjudge_harness.metric_tree import ComparisonScore

MakeMark = Callable[..., ComparisonScore]
MakeJudged = Callable[..., JudgedExample]
MakeJudgment = Callable[..., Judgment]


def outline(
    id: str, *, cluster: str | None, subset: str, lengths: tuple[int, ...], num_responses: int = 2
) -> ExampleMetadata:
    return ExampleMetadata(
        id=id,
        subset=subset,
        num_responses=num_responses,
        correct=(0,),
        cluster=cluster or id,
        lengths=lengths,
    )


@pytest.fixture
def mark() -> MakeMark:
    """Builds the score of a comparison of response 0, which is right, with response 1."""

    def make(
        id: str, credit: float, *, cluster: str | None = None, subset: str = "s", lengths: tuple[int, ...] = ()
    ) -> ComparisonScore:
        result = {1.0: "right", 0.0: "wrong"}.get(credit, "tie")
        about = outline(id, cluster=cluster, subset=subset, lengths=lengths)
        return ComparisonScore(outline=about, compared=(0, 1), credit=credit, result=result)

    return make


@pytest.fixture
def chosen() -> MakeJudged:
    """Builds an example with decisions of a judge, each a pair of the responses shown and the response chosen."""

    def make(
        id: str,
        *decisions: tuple[tuple[int, ...], int | None],
        cluster: str | None = None,
        probabilities: Sequence[tuple[float, ...]] | None = None,
        num_responses: int = 2,
    ) -> JudgedExample:
        given = [None] * len(decisions) if probabilities is None else probabilities
        return JudgedExample(
            outline=outline(id, cluster=cluster, subset="s", lengths=(), num_responses=num_responses),
            mode=Mode.PAIRWISE,
            decisions=tuple(
                Decision(shown=shown, best=best, probabilities=p)
                for (shown, best), p in zip(decisions, given, strict=True)
            ),
        )

    return make


@pytest.fixture
def judgment() -> MakeJudgment:
    """Builds a judgment with one rollout for each list of outcomes and outputs of its programs."""

    def make(
        *rollouts: Sequence[tuple[Outcome, str]],
        id: str = "jdg_1",
        mode: Mode = Mode.PAIRWISE,
        status: Status = "decided",
        input_tokens: int = 0,
        output_tokens: int = 0,
        total_s: float = 0.0,
        scores: dict[str, float] | None = None,
    ) -> Judgment:
        shown = [0] if mode is Mode.POINTWISE else [0, 1]
        probabilities = scores or {"A": 0.8, "B": 0.2}
        verdict = build_rollout_verdict(
            max(probabilities, key=lambda label: probabilities[label]),
            best=None if mode is Mode.POINTWISE else 0,
            probabilities=probabilities,
        )
        return build_judgment(
            build_verdict(status),
            id=id,
            mode=mode,
            rollouts=[
                build_rollout(
                    shown, verdict=verdict, turns=[build_turn(outcome, output=output) for outcome, output in programs]
                )
                for programs in rollouts
            ],
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            total_s=total_s,
        )

    return make


@pytest.fixture
def judged() -> MakeJudged:
    """Builds an example with judgments, each with the responses it is about."""

    def make(
        id: str, *asked: tuple[tuple[int, ...], Judgment], mode: Mode = Mode.PAIRWISE, cluster: str | None = None
    ) -> JudgedExample:
        return JudgedExample(
            outline=outline(id, cluster=cluster, subset="s", lengths=()),
            mode=mode,
            decisions=tuple(d for responses, judgment in asked for d in decisions_of(judgment, asked=responses)),
            judgments=tuple(judgment for _, judgment in asked),
        )

    return make
