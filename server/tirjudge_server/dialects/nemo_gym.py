"""NeMo Gym: a resources server with `/verify`, one rollout per request, and `/compare`, one group per request.

A rollout without a score has `_ng_failure_class: judge_failed` and `mask_sample`. Its reward of zero is a placeholder: the
collector excludes it from every mean and verifies the rollout again on demand. With a cohort size above 1, `/verify` holds
the rollouts of one prompt until the group is complete, and rewards them by comparison.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from statistics import fmean, pstdev
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, model_validator

from tirjudge.http.protocol import shown
from tirjudge.http.rewards import RewardMode
from tirjudge.strategies.base import chances
from tirjudge.strategies.pairs import all_pairs, neighbours
from tirjudge.types import MAX_NUMBER, Judgment, Mode, Received, Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint
from tirjudge_server.dialects.bodies import CONVERSATION, ForeignMessage, ForeignRequest, chat_message, text_of
from tirjudge_server.dialects.context import DialectContext, DialectSettings
from tirjudge_server.dialects.gathering import Gathering
from tirjudge_server.dialects.responses_objects import prompt_in, response_in
from tirjudge_server.failure import FailureRow, FailureStyle, MissingScore, missing_in
from tirjudge_server.scoring import ResponseGroup, ResponseScore, failed, judge_request, no_score

MAX_REASON_CHARS = 2000
"""Maximum length of a failure reason in a response."""

WORST, BEST, NEUTRAL = 1.0, 5.0, 3.0
"""The range of scores of `/compare`, and its score for responses that could not be compared."""

REFERENCES = ("reference", "expected_answer", "ground_truth", "answer")
"""Names of the field with the reference answer, in order of precedence."""


class _Echoed(Received):
    """A body that is returned in the response, including unknown fields."""

    model_config = ConfigDict(frozen=True, extra="allow")


class NemoVerify(_Echoed):
    """A rollout to reward."""

    responses_create_params: dict[str, Any]
    """Parameters of the Responses API call, with the prompt."""
    response: dict[str, Any]
    """The response object of that call."""


class NemoCompare(ForeignRequest):
    """The responses to one prompt, to reward by comparison."""

    conversation_history: list[ForeignMessage]
    """The prompt."""
    response_objs: list[dict[str, Any]]
    """Response objects of the Responses API."""
    principle: Text | None = None
    """The rubric; None: no rubric."""


class NemoSession(ForeignRequest):
    """Start or end of a session."""

    resources_session_id: Text | None = None
    """Id of the session; it is returned."""


class NemoMetrics(ForeignRequest):
    """Rewarded rollouts to aggregate."""

    verify_responses: list[dict[str, Any]]
    """Responses of `/verify`."""

    @model_validator(mode="after")
    def _rewards_can_be_averaged(self) -> NemoMetrics:
        for index, row in enumerate(self.verify_responses):
            reward = row.get("reward")
            if isinstance(reward, int | float) and abs(reward) > MAX_NUMBER:
                raise ValueError(
                    f"verify_responses.{index}.reward: {shown(reward)} given; the maximum is {MAX_NUMBER:g}"
                )
        return self


class NemoVerified(BaseModel):
    """The rollout with its reward: all fields of the request, and these."""

    model_config = ConfigDict(extra="allow")

    reward: float
    """The reward. 0 if there is none."""
    mask_sample: bool
    """Whether there is no reward. The collector then excludes the rollout from means, and can verify it again."""
    failure_kind: str = ""
    """`judge_failed` if there is no reward, otherwise as in the request."""
    failure_reason: str = ""
    """Why there is no reward; otherwise as in the request."""


class NemoComparison(BaseModel):
    """A comparison of two responses."""

    response_i: int
    """Index of the first response."""
    response_j: int
    """Index of the second response."""
    judge_idx: int
    """Always 0."""
    score_1: float
    """Score of the first response, from 1 to 5."""
    score_2: float
    """Score of the second response, from 1 to 5."""
    ranking: float
    """Preference, from 1 (the first response) to 6 (the second)."""
    judge_failed: bool
    """True: the judge gave no verdict. Both scores are then 3, and `ranking` is 3.5."""


class NemoComparisonMetrics(BaseModel):
    """Statistics of the comparisons."""

    mean_individual_score: float
    """Mean of the scores of all comparisons with a verdict."""
    std_individual_score: float
    """Their standard deviation."""
    tiebreak_usage_rate: float
    """Always 0."""
    judge_failed_rate: float
    """Share of the comparisons without a verdict."""


class NemoCompared(BaseModel):
    """Rewards of the responses."""

    rewards: list[float]
    """The rewards, from 1 to 5, in order."""
    comparison_results: list[NemoComparison] | None
    """The comparisons. None: there was nothing to compare."""
    metrics: NemoComparisonMetrics | None
    """Statistics of the comparisons. None: there was nothing to compare."""


class NemoAggregate(BaseModel):
    """Statistics of rewards: mean, minimum, maximum and standard deviation."""

    group_level_metrics: list[dict[str, Any]]
    """The statistics of each task, with its `_ng_task_index`."""
    agent_metrics: dict[str, float]
    """The statistics of all rollouts with a reward, and the numbers of failed and of all rollouts."""
    key_metrics: dict[str, float]
    """The mean reward. Empty: no rollout has a reward."""


def open_gathering(settings: DialectSettings) -> Gathering[ResponseGroup, ResponseScore]:
    """The state of the dialect: groups of rollouts that are not complete yet."""
    return Gathering(size=settings.cohort_size, wait_s=settings.cohort_wait_s)


def routes(settings: DialectSettings) -> APIRouter:
    """The endpoints without a request body."""
    made = APIRouter()

    @made.get("/reverify_mode")
    async def reverify_mode() -> str:
        """Whether one rollout can be verified again separately."""
        return "stateless" if settings.cohort_size == 1 else "unsupported"

    return made


async def verify(asked: NemoVerify, context: DialectContext) -> dict[str, Any]:
    """Reward one rollout, judged separately or compared with the other rollouts of its group."""
    gathering: Gathering[ResponseGroup, ResponseScore] = context.state
    async with context.batch.service.draining.limit():
        group = await asyncio.to_thread(_group, asked, context=context)
        if group is None or gathering.size == 1:
            (reward,) = await context.score([group])
            return _verified(asked, reward)
        try:
            key, name = (context.batch.call.caller, _group_key(asked, group)), _member_name(asked)
            compare = partial(_compare_gathered, context=context)
            reward = await gathering.result(key, group, name=name, compare=compare)
        except Exception as error:
            reward = failed(error)
        context.note([reward])
        return _verified(asked, reward)


async def _compare_gathered(groups: list[ResponseGroup], *, context: DialectContext) -> list[ResponseScore]:
    """Reward the rollouts of a complete group by comparison. `context` belongs to the rollout that arrived last."""
    responses = tuple(response for group in groups for response in group.responses)
    whole = ResponseGroup(prompt=groups[0].prompt, responses=responses, reference=groups[0].reference)
    scoring = context.scoring.on(context.scoring.ends, mode=RewardMode.COHORT)
    rewards = await context.score([whole], scoring=scoring)
    context.rewards.clear()
    return rewards


def _group(asked: NemoVerify, *, context: DialectContext) -> ResponseGroup | None:
    prompt = prompt_in(asked.responses_create_params)
    response = response_in(asked.response, view=context.view)
    if not prompt or response is None:
        return None
    return ResponseGroup(prompt=prompt, responses=(response,), reference=_reference(asked.model_extra or {}))


def _reference(extras: Mapping[str, Any]) -> str | None:
    metadata = extras.get("verifier_metadata")
    places = [extras, metadata] if isinstance(metadata, Mapping) else [extras]
    found = (text_of(place.get(name)) for place in places for name in REFERENCES)
    return next((text for text in found if text is not None), None)


def _group_key(asked: NemoVerify, group: ResponseGroup) -> str:
    """Hash of the group id and attempt, or of the prompt without a group id. It does not identify the caller."""
    extras = asked.model_extra or {}
    named = [extras.get("_ng_group_id"), extras.get("_ng_group_attempt")]
    asked_for = asked.responses_create_params.get("input"), extras.get("principle"), group.reference
    content = json.dumps(named if named[0] is not None else asked_for, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _member_name(asked: NemoVerify) -> str:
    """The index of the rollout, or the id of the response. A rollout without either is never treated as a retry."""
    extras = asked.model_extra or {}
    for name in (extras.get("_ng_rollout_index"), asked.response.get("id")):
        if name is not None:
            return str(name)
    return uuid.uuid4().hex


def _verified(asked: NemoVerify, reward: ResponseScore) -> dict[str, Any]:
    echoed = asked.model_dump()
    config = echoed.get("instance_config")
    if reward.missing is None:
        # A row that is verified again still has the failure fields of its last verification.
        stale = ("_ng_failure_class", "_ng_failure_judge_error", "failure_kind", "failure_reason")
        kept = {name: value for name, value in echoed.items() if name not in stale}
        if isinstance(config, dict) and "mask_sample" in config:
            kept["instance_config"] = {**config, "mask_sample": False}
        return {**kept, "reward": reward.value, "mask_sample": False}
    reason = f"{reward.missing}: {reward.reason}"[:MAX_REASON_CHARS]
    return {
        **echoed,
        "reward": 0.0,
        "mask_sample": True,
        "failure_kind": "judge_failed",
        "failure_reason": reason,
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": reason,
        "instance_config": {**(config if isinstance(config, dict) else {}), "mask_sample": True},
    }


async def compare(asked: NemoCompare, context: DialectContext) -> dict[str, Any]:
    """Reward responses from 1 to 5: the mean over each response's comparisons.

    Raises:
        Refused: 413, the comparisons cost too much.
        QueueFull, EngineUnavailable, ...: all comparisons of a response failed, at least one because of the server.
    """
    context.scoring = context.scoring.on((WORST, BEST), mode=RewardMode.COHORT)
    if asked.principle is not None:
        context.scoring = context.scoring.judged_with(rubric=asked.principle)
    context.check_samples(len(asked.response_objs))
    texts = await asyncio.to_thread(
        lambda: [response_in(response, view=context.view) or "" for response in asked.response_objs]
    )
    history = tuple(chat_message(message) for message in asked.conversation_history)
    if len(texts) < 2 or not any(message.content for message in history):
        context.note([no_score(MissingScore.UNREADABLE, reason="nothing to compare") for _ in texts])
        return {"rewards": [NEUTRAL] * len(texts), "comparison_results": None, "metrics": None}
    strategy = "all_pairs" if context.scoring.strategy == "all_pairs" else "circular"
    group, scoring = ResponseGroup(prompt=history, responses=tuple(texts)), replace(context.scoring, strategy=strategy)
    context.cost_limits.check(context.cost_of(group, scoring=scoring))
    pairs = list((all_pairs if strategy == "all_pairs" else neighbours)(len(texts)))
    questions = [
        partial(judge_request, group, mode=Mode.PAIRWISE, responses=[texts[i], texts[j]], scoring=scoring)
        for i, j in pairs
    ]
    rows: list[dict[str, Any]] = []
    points: list[list[float]] = [[] for _ in texts]
    undecided: list[list[ResponseScore]] = [[] for _ in texts]
    for (i, j), answer in zip(pairs, await context.batch.ask_all(questions), strict=True):
        decided = chances(answer, num_compared=2)
        if decided is not None:
            first, second = (context.scoring.scaled(p) for p in decided)
            points[i].append(first)
            points[j].append(second)
            rows.append(_row(i, j, first, second, 1 + 5 * decided[1], failed=False))
            continue
        for index in (i, j):
            undecided[index].append(_undecided(answer))
        rows.append(_row(i, j, NEUTRAL, NEUTRAL, 3.5, failed=True))
    rewards = []
    for own, missing in zip(points, undecided, strict=True):
        # Without any comparison, report a server failure if there is one, because a retry may help.
        reward = ResponseScore(value=fmean(own)) if own else next(filter(attrgetter("is_ours"), missing), missing[0])
        if reward.is_ours and reward.error is not None:
            raise reward.error
        rewards.append(reward)
    context.note(rewards)
    scores = [score for own in points for score in own]
    return {
        "rewards": [NEUTRAL if reward.value is None else reward.value for reward in rewards],
        "comparison_results": rows,
        "metrics": {
            "mean_individual_score": fmean(scores) if scores else NEUTRAL,
            "std_individual_score": pstdev(scores) if scores else 0.0,
            "tiebreak_usage_rate": 0.0,
            "judge_failed_rate": fmean(float(row["judge_failed"]) for row in rows),
        },
    }


def _undecided(answer: Judgment | Exception) -> ResponseScore:
    if isinstance(answer, Exception):
        return failed(answer)
    missing = missing_in(answer.verdict) or MissingScore.ABSTAINED
    return no_score(missing, reason=answer.verdict.reason or "undecided")


def _row(i: int, j: int, first: float, second: float, ranking: float, *, failed: bool) -> dict[str, Any]:
    return {
        "response_i": i,
        "response_j": j,
        "judge_idx": 0,
        "score_1": first,
        "score_2": second,
        "ranking": ranking,
        "judge_failed": failed,
    }


async def session(asked: NemoSession, context: DialectContext) -> dict[str, Any]:
    """Accept the start or end of a session; the server keeps no sessions."""
    return asked.model_dump(exclude_none=True)


async def aggregate(asked: NemoMetrics, context: DialectContext) -> dict[str, Any]:
    """Mean rewards per task and over all tasks, without rollouts that have no score."""
    by_task: dict[Any, list[float]] = {}
    num_failed = 0
    for row in asked.verify_responses:
        reward = row.get("reward")
        if row.get("mask_sample") or row.get("_ng_failure_class") or not isinstance(reward, int | float):
            num_failed += 1
            continue
        task = row.get("_ng_task_index")
        by_task.setdefault(task if isinstance(task, int | str) else None, []).append(float(reward))
    rewards = [reward for own in by_task.values() for reward in own]
    overall = _summary(rewards) | {"judge_failed": num_failed, "num_rollouts": len(asked.verify_responses)}
    return {
        "group_level_metrics": [{"_ng_task_index": task} | _summary(own) for task, own in by_task.items()],
        "agent_metrics": overall,
        "key_metrics": {"mean/reward": overall["mean/reward"]} if rewards else {},
    }


def _summary(rewards: Sequence[float]) -> dict[str, float]:
    if not rewards:
        return {}
    return {
        "mean/reward": fmean(rewards),
        "min/reward": min(rewards),
        "max/reward": max(rewards),
        "std/reward": pstdev(rewards),
    }


_RESPONSE = {
    "id": "resp_1",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "red fox"}]}],
}
_ROLLOUT = {"responses_create_params": {"input": "Write two words."}, "response": _RESPONSE}
_SESSION = {"A session": {"resources_session_id": "session-1"}}

DIALECT = Dialect(
    name="nemo_gym",
    endpoints=[
        DialectEndpoint(
            path="/verify",
            body=NemoVerify,
            answer=NemoVerified,
            reply=verify,
            summary="Reward one rollout.",
            examples={"One rollout": _ROLLOUT},
        ),
        DialectEndpoint(
            path="/compare",
            body=NemoCompare,
            answer=NemoCompared,
            reply=compare,
            summary="Reward the rollouts of one prompt.",
            examples={
                "Two rollouts of a prompt": {
                    "conversation_history": CONVERSATION[:1],
                    "response_objs": [_RESPONSE, _RESPONSE],
                }
            },
        ),
        DialectEndpoint(
            path="/seed_session",
            body=NemoSession,
            answer=NemoSession,
            reply=session,
            summary="Start a session; no state is kept.",
            examples=_SESSION,
        ),
        DialectEndpoint(
            path="/close_session",
            body=NemoSession,
            answer=NemoSession,
            reply=session,
            summary="End a session; no state is kept.",
            examples=_SESSION,
        ),
        DialectEndpoint(
            path="/aggregate_metrics",
            body=NemoMetrics,
            answer=NemoAggregate,
            reply=aggregate,
            summary="Mean rewards, without rollouts that have no score.",
            examples={"One rollout": {"verify_responses": [{"_ng_task_index": 0, "reward": 1.0}]}},
        ),
    ],
    deadline_s=1500.0,
    # NeMo Gym writes rows with `_ng_failure_class` to a failure file, excludes them from means, and can verify them again.
    failures=FailureRow(judge=FailureStyle.MARKED, server=FailureStyle.MARKED),
    # NeMo Gym's own server returns the neutral score if a comparison cannot be parsed, and 503 if the judge is down.
    failures_at={"/compare": FailureRow(judge=FailureStyle.FALLBACK, server=FailureStyle.ERROR)},
    open_state=open_gathering,
    routes=routes,
)
