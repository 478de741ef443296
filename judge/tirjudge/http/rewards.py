"""What crosses HTTP where many responses are judged at once: `/v1/reward`, `/v1/rerank`, `/v1/judge/batch`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, model_validator

from tirjudge.http.protocol import Problem
from tirjudge.strategies import ComparingStrategy, RankingStrategy
from tirjudge.types import MAX_CRITERIA, MAX_RESPONSES, ChatMessage, Criterion, Integer, Judgment, Number, Text, Wire

REWARD_PATH = "/v1/reward"
RERANK_PATH = "/v1/rerank"
BATCH_PATH = "/v1/judge/batch"

MAX_ITEMS = 4096
"""Most items of one request for rewards."""

MAX_REQUESTS = 4096
"""Most requests of one batch; longer lists are files, and belong to `/v1/batches`."""

Seconds = Annotated[StrictFloat, Field(gt=0.0, allow_inf_nan=False)]
Prompt = Text | Annotated[list[ChatMessage], Field(min_length=1)]
Responses = Annotated[list[Text], Field(min_length=1, max_length=MAX_RESPONSES)]


class JudgingOptions(Wire):
    """How the judge is to go about a request that is not a `JudgeRequest` itself: fields of it, under the same names, with
    the same bounds and defaults; a test holds that."""

    model: Text | None = None
    criteria: list[Criterion] | None = Field(default=None, min_length=1, max_length=MAX_CRITERIA)
    rubric: Text | None = None
    tools: Literal["auto", "on", "off"] = "auto"
    orders: Literal["single", "both"] = "single"
    votes: Integer = Field(default=1, ge=1, le=64)
    max_tool_calls: Integer = Field(default=3, ge=0, le=16)
    force_verdict: StrictBool = True
    temperature: StrictFloat | None = Field(default=None, ge=0.0, le=2.0)
    seed: Integer = Field(default=0, ge=0, lt=2**63)

    @property
    def judging(self) -> dict[str, Any]:
        """The fields that were given."""
        return {name: getattr(self, name) for name in JudgingOptions.model_fields if name in self.model_fields_set}


class RewardMode(StrEnum):
    """How a response becomes a reward; in a cohort by a strategy."""

    POINTWISE = "pointwise"
    EXPECTED_SCORE = "expected_score"
    PAIRWISE_VS_REFERENCE = "pairwise_vs_reference"
    COHORT = "cohort"


class RewardItem(Wire):
    """Responses to one prompt."""

    prompt: Prompt
    response: Text | None = None
    """One response; or else `responses`."""
    responses: Responses | None = None
    """Several: each judged by itself, or as the cohort."""
    reference: Text | None = None
    """An answer known to be good: shown to the judge, or what the mode compares with."""
    id: Text | None = None
    """Comes back with the rewards."""

    @model_validator(mode="after")
    def _has_responses(self) -> RewardItem:
        if (self.response is None) == (self.responses is None):
            raise ValueError("response: give either `response` or `responses`")
        return self

    @property
    def all_responses(self) -> list[str]:
        return self.responses if self.responses is not None else [self.response or ""]


class RewardRequest(JudgingOptions):
    """One item (`prompt` with `response` or `responses`), or many (`items`)."""

    mode: RewardMode = RewardMode.EXPECTED_SCORE
    strategy: ComparingStrategy = "circular"
    """Of a cohort."""
    scale: tuple[Number, Number] | Literal["raw"] = (0.0, 1.0)
    """Worst and best reward; `raw` leaves scores at 1 to 10 and probabilities at 0 to 1."""
    items: Annotated[list[RewardItem], Field(min_length=1, max_length=MAX_ITEMS)] | None = None
    prompt: Prompt | None = None
    response: Text | None = None
    responses: Responses | None = None
    reference: Text | None = None
    id: Text | None = None
    deadline_s: Seconds | None = None
    """Seconds for the whole request; None: no limit."""

    @model_validator(mode="after")
    def _fields_fit_one_another(self) -> RewardRequest:
        single = (self.prompt, self.response, self.responses, self.reference, self.id)
        if self.items is not None and any(given is not None for given in single):
            raise ValueError("items: given together with fields of a single item; give one or the other")
        if self.items is None and self.prompt is None:
            raise ValueError("prompt: not given, and neither is `items`")
        for place, item in enumerate(self.all_items):
            name = "" if self.items is None else f"items.{place}."
            if self.mode is RewardMode.COHORT and len(item.all_responses) < 2:
                raise ValueError(f"{name}responses: {len(item.all_responses)} given, a cohort has at least 2")
            if self.mode is RewardMode.PAIRWISE_VS_REFERENCE and item.reference is None:
                raise ValueError(f"{name}reference: not given, and the mode compares with it")
        return self

    @property
    def all_items(self) -> list[RewardItem]:
        if self.items is not None:
            return self.items
        assert self.prompt is not None
        return [
            RewardItem(
                prompt=self.prompt,
                response=self.response,
                responses=self.responses,
                reference=self.reference,
                id=self.id,
            )
        ]


class ResponseReward(Wire):
    """What one response got."""

    status: Literal["scored", "abstained", "failed"]
    """`abstained`: the judge gave no verdict. `failed`: no judgment could be made; `error` says why."""
    reward: float | None
    """None unless it is `scored`."""
    score: float | None
    """The judge's own, 1 to 10; None in modes that compare."""
    confidence: float | None
    reason: str | None
    """Why there is an abstention or a tie."""
    error: Problem | None
    forced: bool
    """Whether a verdict that it rests on had to be forced."""
    comparisons: int
    """How many decided comparisons it rests on; 0 where each response is judged by itself."""
    tool_calls: int
    judgments: list[str]
    """Ids of the judgments that it rests on."""


class ItemRewards(Wire):
    index: int
    id: str | None
    rewards: list[ResponseReward]
    """One a response, in their order."""


class RewardUsage(Wire):
    input_tokens: int
    output_tokens: int
    judgments: int


class RewardCounts(Wire):
    scored: int
    abstained: int
    failed: int


class RewardAnswer(Wire):
    object: Literal["reward"] = "reward"
    model: str
    mode: RewardMode
    strategy: str | None
    """None unless the mode is `cohort`."""
    scale: tuple[float, float]
    data: list[ItemRewards]
    """One an item, in their order."""
    counts: RewardCounts
    usage: RewardUsage


class RerankRequest(JudgingOptions):
    prompt: Prompt
    responses: Annotated[list[Text], Field(min_length=1, max_length=MAX_RESPONSES)]
    method: RankingStrategy = "listwise"
    reference: Text | None = None
    """An answer known to be good, shown to the judge."""
    top_n: Annotated[Integer, Field(ge=1)] | None = None
    """How many results to give; None: all."""
    return_responses: StrictBool = False
    """Whether results hold the text as well."""
    deadline_s: Seconds | None = None
    """Seconds for the whole request; None: no limit."""


class Ranked(Wire):
    index: int
    """Of the response, in the request."""
    rank: int | None
    """From 1, equal scores share one; None without a score."""
    response: str | None
    detail: ResponseReward


class RerankAnswer(Wire):
    object: Literal["rerank"] = "rerank"
    model: str
    method: str
    best: int | None
    """Index of the first result; None if nothing could be scored."""
    results: list[Ranked]
    """Best first; equal ones in the order of the request, those without a score at the end."""
    usage: RewardUsage


class JudgmentBatchRequest(Wire):
    requests: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_REQUESTS)]
    """`JudgeRequest`s; one that is malformed gets its own error and does not stop the others."""
    deadline_s: Seconds | None = None
    """Seconds for all of them together; None: no limit."""


class JudgmentBatchItem(Wire):
    index: int
    judgment: Judgment | None
    """None exactly when there is an error."""
    error: Problem | None


class JudgmentBatchAnswer(Wire):
    object: Literal["list"] = "list"
    data: list[JudgmentBatchItem]
    """One a request, in their order."""
