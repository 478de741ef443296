"""vLLM's `/score`, `/v1/score`, `/classify` and `/pooling`, for vLLM's clients and verl's reward loop.

A score is the reward of the second text as a response to the first. A classification has one class, whose probability is the
reward. verl makes sixteen attempts at a failing server and then ends the run. So every item gets a number, and
`judge_failed` marks the fallbacks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from tirjudge.integrations.detemplate import view_of
from tirjudge.types import Text
from tirjudge_server.dialects.base import Dialect, DialectEndpoint, Read, scored
from tirjudge_server.dialects.bodies import (
    CONVERSATION,
    RENDERED_PROMPT,
    ForeignMessage,
    ForeignRequest,
    chat_message,
    one_of,
)
from tirjudge_server.dialects.context import DialectContext
from tirjudge_server.failure import FailureRow, FailureStyle
from tirjudge_server.scoring import ResponseGroup, ResponseScore

Texts = Text | list[Text]

_PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
"""The pairs of field names that vLLM accepts for the two sides."""


class VllmScore(ForeignRequest):
    """Pairs of texts. Both sides have the same number of texts, or the first side has one text, which all pairs share."""

    text_1: Texts | None = None
    """The prompts: one for each text of `text_2`, or a single one for all. None: another pair of fields has the texts.
    The first complete pair is used, in the order of these fields."""
    text_2: Texts | None = None
    """The responses to score. None: another pair has the texts."""
    queries: Texts | None = None
    """The prompts, with the responses in `documents` or `items`. None: another pair has the texts."""
    documents: Texts | None = None
    """The responses to score, with the prompts in `queries`. None: another pair has the texts."""
    items: Texts | None = None
    """The responses to score, with the prompts in `queries`. Ignored if `documents` is given. None: another pair has
    the texts."""
    data_1: Texts | None = None
    """The prompts, with the responses in `data_2`. None: another pair has the texts."""
    data_2: Texts | None = None
    """The responses to score, with the prompts in `data_1`. None: another pair has the texts."""
    instruction: Text | None = None
    """The rubric; None: no rubric."""

    @model_validator(mode="after")
    def _has_pairs(self) -> VllmScore:
        first, second = self.sides
        if len(first) not in (1, len(second)):
            raise ValueError(f"text_1: {len(first)} texts given for {len(second)} in `text_2`; give {len(second)} or 1")
        return self

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """The texts of both sides: prompts and responses.

        Raises:
            ValueError: the request has no complete pair of fields.
        """
        for one, other in _PAIRS:
            first, second = getattr(self, one), getattr(self, other)
            if first is not None and second is not None:
                return _listed(first), _listed(second)
        raise ValueError(
            "text_1: missing; give `text_1` and `text_2`, or another pair such as `queries` and `documents`"
        )

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of a prompt and a response."""
        first, second = self.sides
        return list(zip(first * len(second) if len(first) == 1 else first, second, strict=True))


class VllmPooling(ForeignRequest):
    """Rendered chats in `input`, or one conversation in `messages`. The last turn is judged."""

    model_config = ConfigDict(json_schema_extra=one_of("input", "messages"))

    input: Texts | None = None
    """Chats, each rendered as one text by a chat template. The last turn of each is scored. Ignored if `messages` is
    given. None: `messages` has the conversation."""
    messages: list[ForeignMessage] | None = None
    """One conversation. Its last message must be by the assistant and is scored as the response to the others.
    Otherwise the score is the fallback. None: `input` has the chats."""

    @model_validator(mode="after")
    def _has_input(self) -> VllmPooling:
        if self.input is None and self.messages is None:
            raise ValueError("input: missing; give `input` or `messages`")
        return self


class VllmUsage(BaseModel):
    """Token counts. 0 if the endpoint of the model does not report them."""

    prompt_tokens: int
    """Number of tokens that the model read."""
    completion_tokens: int
    """Number of tokens that the model wrote."""
    total_tokens: int
    """Sum of both."""


class VllmRow(BaseModel):
    """Fields that the entries of all lists share."""

    index: int
    """Index of the text or chat in the request."""
    judge_failed: bool
    """An extension of vLLM's format: whether the number is a fallback."""


class VllmScoreRow(VllmRow):
    """The score of a pair."""

    object: Literal["score"]
    """Always `score`."""
    score: float
    """The reward, or the fallback."""


class VllmClassRow(VllmRow):
    """The classification of a chat."""

    label: Literal["LABEL_0"]
    """Always `LABEL_0`, the one class."""
    probs: list[float]
    """The reward, or the fallback, as the one number."""
    num_classes: Literal[1]
    """Always 1."""


class VllmPoolingRow(VllmRow):
    """The pooled output of a chat."""

    object: Literal["pooling"]
    """Always `pooling`."""
    data: list[float]
    """The reward, or the fallback, as the one number."""


class VllmList(BaseModel):
    """Fields that all lists share."""

    id: str
    """Id of the response."""
    object: Literal["list"]
    """Always `list`."""
    created: int
    """Unix time in seconds."""
    model: str
    """Name of the judge."""
    usage: VllmUsage
    """Token counts."""


class VllmScores(VllmList):
    """Scores of pairs."""

    data: list[VllmScoreRow]
    """One score for each pair, in order."""


class VllmClasses(VllmList):
    """Classifications of chats."""

    data: list[VllmClassRow]
    """One classification for each chat, in order."""


class VllmPooled(VllmList):
    """Pooled outputs of chats."""

    data: list[VllmPoolingRow]
    """One output for each chat, in order."""


def read_pairs(asked: VllmScore, context: DialectContext) -> list[ResponseGroup]:
    """The second text of each pair, as a response to the first."""
    if asked.instruction is not None and "rubric" not in context.scoring.judging:
        context.scoring = context.scoring.judged_with(rubric=asked.instruction)
    context.check_samples(len(asked.sides[1]))
    return [
        ResponseGroup(prompt=first, responses=(view_of(second, view=context.view),)) for first, second in asked.pairs
    ]


def read_chats(asked: VllmPooling, context: DialectContext) -> list[ResponseGroup | None]:
    """The last response of each chat."""
    if asked.messages is None:
        return context.read_chats(_listed(asked.input or []))
    chat = [chat_message(message) for message in asked.messages]
    if len(chat) < 2 or chat[-1].role != "assistant":
        return [None]
    return [ResponseGroup(prompt=tuple(chat[:-1]), responses=(view_of(chat[-1].content, view=context.view),))]


def endpoint(
    path: str,
    body: type[BaseModel],
    read: Read,
    *,
    prefix: str,
    row: Callable[[float], dict[str, Any]],
    answer: type[VllmList],
    summary: str,
    examples: Mapping[str, Any],
) -> DialectEndpoint:
    """An endpoint that responds with a list of rewards.

    Args:
        path: path of the endpoint.
        body: model of the request body.
        read: reads the responses from a body.
        prefix: prefix of the response's id.
        row: reward -> its fields in the list.
        answer: model of the response.
        summary: description for the OpenAPI schema.
        examples: title -> body of an example.
    """

    def write(asked: Any, rewards: list[ResponseScore], context: DialectContext) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": context.model,
            "data": [
                {"index": index, **row(context.number(reward)), "judge_failed": not reward.is_scored}
                for index, reward in enumerate(rewards)
            ],
            "usage": context.usage(),
        }

    return DialectEndpoint(
        path=path, body=body, reply=scored(read, write), summary=summary, examples=examples, answer=answer
    )


def _listed(given: Texts) -> list[str]:
    return [given] if isinstance(given, str) else given


_CHATS = {
    "A conversation": {"messages": CONVERSATION},
    "A rendered conversation": {"input": f"{RENDERED_PROMPT}red fox<|im_end|>"},
}

DIALECT = Dialect(
    name="vllm_scoring",
    endpoints=[
        *(
            endpoint(
                path,
                VllmScore,
                read_pairs,
                prefix="score",
                row=lambda number: {"object": "score", "score": number},
                answer=VllmScores,
                summary="vLLM's similarity score.",
                examples={"Two responses": {"text_1": "Write two words.", "text_2": ["red fox", "one red fox"]}},
            )
            for path in ("/score", "/v1/score")
        ),
        endpoint(
            "/classify",
            VllmPooling,
            read_chats,
            prefix="classify",
            row=lambda number: {"label": "LABEL_0", "probs": [number], "num_classes": 1},
            answer=VllmClasses,
            summary="vLLM's classification, with the reward as the one class.",
            examples=_CHATS,
        ),
        endpoint(
            "/pooling",
            VllmPooling,
            read_chats,
            prefix="pool",
            row=lambda number: {"object": "pooling", "data": [number]},
            answer=VllmPooled,
            summary="vLLM's pooling, with the reward as the one number.",
            examples=_CHATS,
        ),
    ],
    deadline_s=600.0,
    failures=FailureRow(judge=FailureStyle.FALLBACK, server=FailureStyle.FALLBACK),
)
