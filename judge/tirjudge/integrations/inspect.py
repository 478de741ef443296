"""Adapter for Inspect: a judge as a scorer of an answer, alone or compared with the target.

    from inspect_ai import Task
    from inspect_ai.dataset import csv_dataset
    from inspect_ai.solver import generate
    from tirjudge.integrations.inspect import judge_score, preference_over_target

    task = Task(
        dataset=csv_dataset("questions.csv"),
        solver=generate(),
        scorer=[judge_score(url="http://judge:8400"), preference_over_target(url="http://judge:8400")],
    )

A sample without a verdict is unscored: metrics ignore it, and the log has the reason. The explanation of a score
contains the judge's text and program outputs; its metadata contain the id of the judgment. Inspect logs arguments, so
give the key in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from tirjudge.client import AsyncClient, ServerUnavailable
from tirjudge.errors import DeadlineExceeded
from tirjudge.integrations.scoring import key_in, prompt_of, score_of
from tirjudge.types import ChatMessage, JudgeRequest, Judgment, Mode

Tools = Literal["auto", "on", "off"]


@scorer(metrics=[mean(), stderr()])
def judge_score(
    url: str,
    *,
    api_key_file: str | None = None,
    use_target: bool = True,
    rubric: str | None = None,
    tools: Tools = "auto",
    votes: int = 1,
    require: Literal["checked"] | None = None,
    min_confidence: float | None = None,
    deadline_s: float = 300.0,
) -> Scorer:
    """Score an answer from 0 to 1.

    Args:
        url: URL of the server.
        api_key_file: file with the API key. None: the server requires none.
        use_target: whether to show the target to the judge as a known good answer.
        rubric: judging instructions as text. None: the judge chooses.
        tools: whether the judge may (`auto`), must (`on`) or must not (`off`) run Python.
        votes: number of rollouts whose scores are averaged.
        require, min_confidence: as in `JudgeRequest`. A verdict that does not meet them is unscored.
        deadline_s: time limit per sample, in seconds.
    """

    async def score(state: TaskState, target: Target) -> Score:
        request = JudgeRequest(
            mode=Mode.POINTWISE,
            prompt=_prompt(state),
            responses=[state.output.completion],
            reference=target.text if use_target and target.text else None,
            rubric=rubric,
            tools=tools,
            votes=votes,
            require=require,
            min_confidence=min_confidence,
        )
        return await _ask(request, value=score_of, url=url, api_key_file=api_key_file, deadline_s=deadline_s)

    return score


@scorer(metrics=[mean(), stderr()])
def preference_over_target(
    url: str,
    *,
    api_key_file: str | None = None,
    orders: Literal["single", "both"] = "both",
    tools: Tools = "auto",
    votes: int = 1,
    require: Literal["checked"] | None = None,
    min_confidence: float | None = None,
    deadline_s: float = 300.0,
) -> Scorer:
    """Score 1 if the answer is better than the target (an answer by another author), 0 if it is worse, 0.5 for a tie.

    Args:
        url, api_key_file, tools, votes, require, min_confidence, deadline_s: as for `judge_score`.
        orders: whether to show the two in one order or in both. If both orders disagree, the result is a tie.
    """

    async def score(state: TaskState, target: Target) -> Score:
        request = JudgeRequest(
            mode=Mode.PAIRWISE,
            prompt=_prompt(state),
            responses=[state.output.completion, target.text],
            orders=orders,
            tools=tools,
            votes=votes,
            require=require,
            min_confidence=min_confidence,
        )
        return await _ask(request, value=_preference, url=url, api_key_file=api_key_file, deadline_s=deadline_s)

    return score


async def _ask(
    request: JudgeRequest,
    *,
    value: Callable[[Judgment], float | None],
    url: str,
    api_key_file: str | None,
    deadline_s: float,
) -> Score:
    """Judge a request and return the score; unscored without a verdict."""
    answer = request.responses[0]
    try:
        async with AsyncClient(url, api_key=key_in(api_key_file)) as client:
            judgment = await client.judge(request, deadline_s=deadline_s)
    except (ServerUnavailable, DeadlineExceeded) as error:
        return Score.unscored(reason="scoring_failed", answer=answer, explanation=str(error))
    verdict = judgment.verdict
    metadata = {"judgment": judgment.id, "judge": judgment.model, "verdict": verdict.model_dump(mode="json")}
    explanation = "\n\n".join(_lines(judgment))
    given = value(judgment)
    if given is None:
        return Score.unscored(reason="grader_failed", answer=answer, explanation=explanation, metadata=metadata)
    return Score(value=given, answer=answer, explanation=explanation, metadata=metadata)


def _preference(judgment: Judgment) -> float | None:
    match judgment.verdict.status:
        case "decided":
            return 1.0 if judgment.verdict.best == 0 else 0.0
        case "tie":
            return 0.5
        case _:
            return None


def _lines(judgment: Judgment) -> list[str]:
    """Return the judge's texts and program outputs."""
    lines = [f"{judgment.verdict.status}: {judgment.verdict.reason}"] if judgment.verdict.reason else []
    for rollout in judgment.rollouts:
        for turn in rollout.turns:
            lines.append(turn.text)
            if turn.output is not None:
                lines.append(f"{turn.outcome}:\n{turn.output}")
    return lines


def _prompt(state: TaskState) -> list[ChatMessage] | str:
    given = state.input
    return prompt_of(given if isinstance(given, str) else [{"role": turn.role, "content": turn.text} for turn in given])
