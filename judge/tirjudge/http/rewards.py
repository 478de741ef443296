"""Wire types of the endpoints for many responses: `/v1/reward`, `/v1/rerank`, `/v1/judge/batch`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    StrictBool,
    StrictFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from tirjudge.http.protocol import Problem
from tirjudge.strategies import ComparingStrategy, RankingStrategy
from tirjudge.types import (
    MAX_CRITERIA,
    MAX_FUNCTIONS,
    MAX_RESPONSES,
    Basis,
    CandidateCode,
    ChatMessage,
    Criterion,
    Integer,
    Judgment,
    Number,
    Text,
    Wire,
    is_none,
)

REWARD_PATH = "/v1/reward"
RERANK_PATH = "/v1/rerank"
BATCH_PATH = "/v1/judge/batch"

MAX_ITEMS = 4096
"""Maximum number of items in one reward request."""

MAX_REQUESTS = 4096
"""Maximum number of requests in one batch. Use `/v1/batches` with a file for more."""

Seconds = Annotated[StrictFloat, Field(gt=0.0, allow_inf_nan=False)]
Prompt = Text | Annotated[list[ChatMessage], Field(min_length=1)]
Responses = Annotated[list[Text], Field(min_length=1, max_length=MAX_RESPONSES)]


class JudgingOptions(Wire):
    """Judging options of other request types: fields of `JudgeRequest` with the same names, bounds and defaults. A test
    checks that they are equal."""

    model: Text | None = None
    criteria: list[Criterion] | None = Field(default=None, min_length=1, max_length=MAX_CRITERIA)
    rubric: Text | None = None
    tools: Literal["auto", "on", "off"] = "auto"
    orders: Literal["single", "both"] = "single"
    votes: Integer = Field(default=1, ge=1, le=64)
    max_tool_calls: Integer = Field(default=3, ge=0, le=16)
    force_verdict: StrictBool = True
    require: Literal["checked"] | None = Field(default=None, exclude_if=is_none)
    min_confidence: StrictFloat | None = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False, exclude_if=is_none)
    temperature: StrictFloat | None = Field(default=None, ge=0.0, le=2.0)
    seed: Integer = Field(default=0, ge=0, lt=2**63)
    functions: list[Text] | None = Field(default=None, max_length=MAX_FUNCTIONS, exclude_if=is_none)
    candidate_code: CandidateCode = Field(default="flag", exclude_if=lambda value: value == "flag")

    @property
    def judging(self) -> dict[str, Any]:
        """The options that were given, for a `JudgeRequest`."""
        return {name: getattr(self, name) for name in JudgingOptions.model_fields if name in self.model_fields_set}


class RewardMode(StrEnum):
    """Method that computes the reward of a response."""

    POINTWISE = "pointwise"
    """The score that the judge wrote."""
    EXPECTED_SCORE = "expected_score"
    """The sum of score x P(score)."""
    PAIRWISE_VS_REFERENCE = "pairwise_vs_reference"
    """P(the response is better than the reference)."""
    COHORT = "cohort"
    """The score from a strategy that compares the responses to one prompt."""

    @property
    def scores_each(self) -> bool:
        """Whether the reward of a response is its own score."""
        return self in (RewardMode.POINTWISE, RewardMode.EXPECTED_SCORE)


class RewardItem(Wire):
    """One or several responses to one prompt."""

    prompt: Prompt
    """The question: a text or a conversation."""
    response: Text | None = None
    """One response. None: `responses` is given."""
    responses: Responses | None = None
    """Several responses, judged separately or as a cohort. None: `response` is given."""
    reference: Text | None = None
    """A known good answer. The judge sees it. In the mode `pairwise_vs_reference`, each response is compared with
    it."""
    id: Text | None = None
    """Id of the item, returned with its rewards."""

    @model_validator(mode="after")
    def _has_responses(self) -> RewardItem:
        if (self.response is None) == (self.responses is None):
            raise ValueError("response: give either `response` or `responses`")
        return self

    @property
    def all_responses(self) -> list[str]:
        """The responses of the item as a list."""
        return self.responses if self.responses is not None else [self.response or ""]


def _different_ends(value: Any, parse: ValidatorFunctionWrapHandler) -> Any:
    try:
        worst, best = parse(value)
    except ValidationError:
        raise ValueError("two numbers, the worst and the best reward") from None
    if worst == best:
        raise ValueError("two different numbers, the worst and the best reward")
    return worst, best


Scale = Annotated[tuple[Number, Number], WrapValidator(_different_ends)]
"""Worst and best reward. The worst one may be the larger number."""


class RewardRequest(JudgingOptions):
    """Request for rewards of one item (`prompt` with `response` or `responses`) or of many items (`items`)."""

    mode: RewardMode = RewardMode.EXPECTED_SCORE
    """Method that computes the rewards."""
    strategy: ComparingStrategy = "circular"
    """Strategy of the mode `cohort`."""
    scale: Scale | Literal["raw"] = (0.0, 1.0)
    """Worst and best reward. `raw`: keep scores at 1 to 10 and probabilities at 0 to 1. Scores of a scalar reward model are
    always raw."""
    items: Annotated[list[RewardItem], Field(min_length=1, max_length=MAX_ITEMS)] | None = None
    """Several items. None: the fields of `RewardItem` below are given."""
    prompt: Prompt | None = None
    response: Text | None = None
    responses: Responses | None = None
    reference: Text | None = None
    id: Text | None = None
    deadline_s: Seconds | None = None
    """Time limit of the whole request, in seconds. None: no limit."""

    @model_validator(mode="after")
    def _fields_fit_one_another(self) -> RewardRequest:
        single = (self.prompt, self.response, self.responses, self.reference, self.id)
        if self.items is not None and any(given is not None for given in single):
            raise ValueError("items: given together with fields of a single item; give only one of them")
        if self.items is None and self.prompt is None:
            raise ValueError("prompt: not given; give `prompt` or `items`")
        for place, item in enumerate(self.all_items):
            name = "" if self.items is None else f"items.{place}."
            if self.mode is RewardMode.COHORT and len(item.all_responses) < 2:
                raise ValueError(f"{name}responses: {len(item.all_responses)} given; a cohort needs at least 2")
            if self.mode is RewardMode.PAIRWISE_VS_REFERENCE and item.reference is None:
                raise ValueError(f"{name}reference: not given; the mode pairwise_vs_reference needs it")
        return self

    @property
    def all_items(self) -> list[RewardItem]:
        """The items of the request as a list."""
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
    """Reward of one response."""

    status: Literal["scored", "abstained", "failed"]
    """`abstained`: the judge gave no verdict. `failed`: no judgment could be made; see `error`."""
    reward: float | None
    """The reward. None: the status is not `scored`."""
    score: float | None
    """Score of the judge, 1 to 10, or a raw score. None in modes that compare."""
    confidence: float | None
    """Confidence of the verdict. None: not known."""
    reason: str | None
    """Reason for an abstention or a tie. None: neither."""
    error: Problem | None
    """Why no judgment could be made. None: no error."""
    forced: bool
    """Whether one of the verdicts behind the reward was forced."""
    basis: Basis | None = Field(default=None, exclude_if=is_none)
    """Basis of the verdicts behind the reward, as in `Verdict`. None (omitted from JSON): no verdict."""
    comparisons: int
    """Number of decided comparisons behind the reward. 0 if each response is judged separately."""
    tool_calls: int
    """Number of tool calls in the judgments behind the reward."""
    judgments: list[str]
    """Ids of the judgments behind the reward."""


class ItemRewards(Wire):
    """Rewards of one item."""

    index: int
    """Index of the item in the request."""
    id: str | None
    """Id of the item in the request. None: it has no id."""
    rewards: list[ResponseReward]
    """One reward per response, in their order."""


class RewardUsage(Wire):
    """Token and judgment counts of a request. Token counts are None if the endpoint of the model reports none."""

    input_tokens: int | None
    """Number of prompt tokens."""
    output_tokens: int | None
    """Number of generated tokens."""
    judgments: int
    """Number of judgments made."""
    cost_usd: float | None = Field(default=None, exclude_if=lambda cost: cost is None)
    """Price of the judgments in US dollars. None: the prices or the counts are not known."""


class RewardCounts(Wire):
    """Number of responses with each status."""

    scored: int
    """Responses with a reward."""
    abstained: int
    """Responses for which the judge gave no verdict."""
    failed: int
    """Responses whose judgment failed."""


class RewardAnswer(Wire):
    """Response of `REWARD_PATH`."""

    object: Literal["reward"] = "reward"
    """Always `reward`."""
    model: str
    """Name of the judge."""
    mode: RewardMode
    """Mode of the request."""
    strategy: str | None
    """Strategy of the mode `cohort`. None in other modes."""
    scale: tuple[float, float] | None
    """Worst and best reward. None: raw scores of a scalar reward model, which have no scale."""
    data: list[ItemRewards]
    """Rewards of each item, in the order of the request."""
    counts: RewardCounts
    """Number of responses with each status."""
    usage: RewardUsage
    """Token and judgment counts."""


class RerankRequest(JudgingOptions):
    """Request to rank the responses to one prompt."""

    prompt: Prompt
    """The question: a text or a conversation."""
    responses: Annotated[list[Text], Field(min_length=1, max_length=MAX_RESPONSES)]
    """The responses to rank."""
    method: RankingStrategy = "listwise"
    """Name of the strategy."""
    reference: Text | None = None
    """A known good answer, shown to the judge. None: no reference."""
    top_n: Annotated[Integer, Field(ge=1)] | None = None
    """Maximum number of results. None: all."""
    return_responses: StrictBool = False
    """Whether the results contain the response texts."""
    deadline_s: Seconds | None = None
    """Time limit of the whole request, in seconds. None: no limit."""


class Ranked(Wire):
    """Result of one response."""

    index: int
    """Index of the response in the request."""
    rank: int | None
    """Rank from 1. Equal scores share a rank. None: no score."""
    response: str | None
    """Text of the response. None: `return_responses` is false."""
    detail: ResponseReward
    """Score of the response, with the judgments behind it."""


class RerankAnswer(Wire):
    """Response of `RERANK_PATH`."""

    object: Literal["rerank"] = "rerank"
    """Always `rerank`."""
    model: str
    """Name of the judge."""
    method: str
    """Name of the strategy."""
    best: int | None
    """Index of the best response. None: no response has a score."""
    results: list[Ranked]
    """Results, best first. Equal results keep the order of the request; results without a score come last."""
    usage: RewardUsage
    """Token and judgment counts."""


class JudgmentBatchRequest(Wire):
    """Several independent requests in one."""

    requests: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_REQUESTS)]
    """`JudgeRequest`s. A malformed request gets an error and does not affect the others."""
    deadline_s: Seconds | None = None
    """Time limit of the whole batch, in seconds. None: no limit."""


class JudgmentBatchItem(Wire):
    """Result of one request of a batch."""

    index: int
    """Index of the request in the batch."""
    judgment: Judgment | None
    """The judgment. None exactly when `error` is given."""
    error: Problem | None
    """Why the judgment could not be made. None: no error."""


class JudgmentBatchAnswer(Wire):
    """Response of `BATCH_PATH`."""

    object: Literal["list"] = "list"
    """Always `list`."""
    data: list[JudgmentBatchItem]
    """One result per request, in the order of the batch."""
