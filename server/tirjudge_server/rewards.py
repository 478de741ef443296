"""`POST /v1/reward`: rewards for one item or many. Each response has a separate status.

If the judge abstains or a judgment fails, the response has `reward: null` and a reason, never a low score. If every
judgment failed because of the server, the endpoint responds with an HTTP error with `retry-after`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from tirjudge.http.rewards import (
    REWARD_PATH,
    ItemRewards,
    ResponseReward,
    RewardAnswer,
    RewardCounts,
    RewardMode,
    RewardRequest,
    RewardUsage,
)
from tirjudge_server.call import Priority, call_of
from tirjudge_server.cost import Cost, group_cost
from tirjudge_server.failure import FAILED_HEADER, NATIVE_FAILURES, Fallbacks
from tirjudge_server.request_batch import RequestBatch
from tirjudge_server.scoring import (
    ResponseGroup,
    ResponseScore,
    Scoring,
    count_missing,
    only_failures,
    score_groups,
)
from tirjudge_server.service import JudgeService
from tirjudge_web.body import read_request
from tirjudge_web.connection import while_connected
from tirjudge_web.errors import problem_from

MAX_BODY_BYTES = 16 * 1024 * 1024

REQUESTS = {REWARD_PATH: RewardRequest}
"""Path -> model of its request body."""


def router(
    service: JudgeService, *, max_body_bytes: int = MAX_BODY_BYTES, fallbacks: Fallbacks | None = None
) -> APIRouter:
    """The reward endpoint.

    Args:
        service: judges the responses.
        max_body_bytes: maximum size of a request body.
        fallbacks: counts missing rewards; None: they are not exported.
    """
    routes = APIRouter()
    counted = fallbacks or Fallbacks()

    @routes.post(REWARD_PATH, response_model=RewardAnswer)
    async def reward(request: Request) -> Response:
        """Compute rewards of responses."""
        asked = await read_request(request, RewardRequest, draining=service.draining, max_bytes=max_body_bytes)
        call = call_of(request, dialect="reward", priority=Priority.REWARD, deadline_s=asked.deadline_s)
        batch = RequestBatch(service, call=call)
        return await while_connected(request.receive, _answer(asked, batch=batch, fallbacks=counted))

    return routes


async def _answer(asked: RewardRequest, *, batch: RequestBatch, fallbacks: Fallbacks) -> Response:
    """The response with every item's rewards.

    Raises:
        Refused: the request is invalid, or it costs too much.
        QueueFull, EngineUnavailable, ...: every reward failed because of the server. The first failure is raised.
    """
    scale = None if asked.scale == "raw" else (float(asked.scale[0]), float(asked.scale[1]))
    scoring = Scoring(mode=asked.mode, strategy=asked.strategy, scale=scale, judging=asked.judging)
    groups = [
        ResponseGroup(
            prompt=item.prompt if isinstance(item.prompt, str) else tuple(item.prompt),
            responses=tuple(item.all_responses),
            reference=item.reference,
        )
        for item in asked.all_items
    ]
    check_groups(groups, scoring=scoring, service=batch.service, param="prompt" if asked.items is None else "items")
    results = await score_groups(groups, scoring=scoring, ask=batch.ask)
    rewards = [reward for group in results for reward in group]
    error = only_failures(rewards)
    if error is not None:
        raise error
    count_missing(rewards, label="reward", row=NATIVE_FAILURES, fallbacks=fallbacks)
    shown = [[response_reward(reward) for reward in group] for group in results]
    statuses = Counter(reward.status for group in shown for reward in group)
    answer = RewardAnswer(
        model=batch.service.judge.profile.name,
        mode=asked.mode,
        strategy=asked.strategy if asked.mode is RewardMode.COHORT else None,
        scale=None if scoring.mode.scores_each and batch.service.judge.engine.facts.scores else scoring.ends,
        data=[
            ItemRewards(index=index, id=item.id, rewards=rewards)
            for index, (item, rewards) in enumerate(zip(asked.all_items, shown, strict=True))
        ],
        counts=RewardCounts(scored=statuses["scored"], abstained=statuses["abstained"], failed=statuses["failed"]),
        usage=usage_of(batch),
    )
    headers = answer_headers(rewards, judgment_ids=batch.judgment_ids)
    return Response(answer.model_dump_json(), headers=headers, media_type="application/json")


def usage_of(batch: RequestBatch) -> RewardUsage:
    """Tokens and number of the judgments of a batch."""
    return RewardUsage(
        input_tokens=batch.input_tokens,
        output_tokens=batch.output_tokens,
        judgments=len(batch.judgment_ids),
        cost_usd=batch.cost_usd,
    )


def check_groups(groups: Sequence[ResponseGroup], *, scoring: Scoring, service: JudgeService, param: str) -> None:
    """Check the total cost of the groups.

    Args:
        groups: all groups of the request.
        scoring: how responses become rewards.
        service: has the cost limits.
        param: the request field with the groups, for the error.

    Raises:
        Refused: 413, the total cost exceeds a limit.
    """
    group_size = service.judge.profile.group_size
    costs = (group_cost(group, scoring=scoring, group_size=group_size) for group in groups)
    service.cost_limits.check(sum(costs, Cost()), param=param)


def answer_headers(rewards: Sequence[ResponseScore], *, judgment_ids: Sequence[str]) -> dict[str, str]:
    """Response headers: the judgment id if there is exactly one judgment, and the number of missing scores if not 0."""
    num_missing = sum(reward.missing is not None for reward in rewards)
    headers = {FAILED_HEADER: str(num_missing)} if num_missing else {}
    return headers | ({"x-judgment-id": judgment_ids[0]} if len(judgment_ids) == 1 else {})


def response_reward(reward: ResponseScore) -> ResponseReward:
    """The reward of one response, in the format of the endpoint."""
    status = "scored" if reward.is_scored else "abstained" if reward.error is None else "failed"
    return ResponseReward(
        status=status,
        reward=reward.value,
        score=reward.score,
        confidence=reward.confidence,
        reason=reward.reason if reward.error is None else None,
        error=None if reward.error is None else problem_from(reward.error)[1],
        forced=reward.forced,
        basis=reward.basis,
        comparisons=reward.num_comparisons,
        tool_calls=reward.tool_calls,
        judgments=list(reward.judgment_ids),
    )
