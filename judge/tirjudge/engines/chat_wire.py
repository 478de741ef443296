"""What crosses HTTP with a chat endpoint: the body of a request, its answer, and what an endpoint says that it does not take.

Endpoints of this shape differ in what they take: some refuse `stop` or any temperature but their own, some have no
log-probabilities, some know the limit of an answer by another name. They are not told apart by name. All is asked for, and
what an endpoint refuses by name is left out from then on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import httpx2
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from tirjudge.types import Sampling, Text

logger = logging.getLogger(__name__)

NUM_ALTERNATIVES = (20, 5)
"""How many alternatives to each token are asked for; the next if an endpoint refuses so many."""

LEAST_LIMIT = 256
"""Limits of an answer are not lowered further than this, in tokens."""

SEEDS = 2**31
"""Seeds are below this, which every endpoint can hold."""

OPTIONAL = ("logprobs", "seed", "top_p", "stop", "temperature")
"""What is left out if an endpoint does not take it. Where it names several, the first of these goes."""

OTHER_NAMES = {"top_logprobs": "logprobs", "max_completion_tokens": "max_tokens"}

LIMITS = ("max_tokens", "max_completion_tokens")

_REFUSES = re.compile(
    r"unsupported|not support|unknown|unrecognized|not permitted|not allowed|not enabled|invalid|cannot|too large"
    r"|too high|at most|maximum|less than|only|deprecated|>",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context.(length|window|size)|(prompt|input) is too long|input token count|too many tokens", re.IGNORECASE
)
_WITH_THE_ANSWER = re.compile(r"max_tokens|max_completion_tokens|in (the )?completion", re.IGNORECASE)


class Told(BaseModel):
    """What went wrong, in an endpoint's words."""

    message: str
    param: str | None = None
    code: str | None = None

    @property
    def is_too_long(self) -> bool:
        """Whether the request does not fit the model's context."""
        return self.code == "context_length_exceeded" or bool(_TOO_LONG.search(self.message))

    @property
    def fits_with_less(self) -> bool:
        """Whether it may fit if less is kept free for the answer."""
        return self.is_too_long and bool(_WITH_THE_ANSWER.search(self.message))


class _Alternative(BaseModel):
    token: Text
    logprob: float = Field(allow_inf_nan=False)
    bytes: list[int] | None = None

    @property
    def raw(self) -> bytes:
        """What it stands for; part of a character may be a token."""
        return self.token.encode() if self.bytes is None else bytes(self.bytes)


class Token(_Alternative):
    """One that was written, and the likeliest at its place."""

    top_logprobs: list[_Alternative] = []


class Logprobs(BaseModel):
    content: list[Token] | None = None


def _joined(content: Any) -> Any:
    """Content in parts, as some models that think give it: its texts."""
    if not isinstance(content, list):
        return content
    return "".join(part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text")


class Message(BaseModel):
    content: Annotated[Text | None, BeforeValidator(_joined)] = None
    refusal: Text | None = None


class ChatChoice(BaseModel):
    message: Message
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """vLLM's: the stop string that matched."""
    logprobs: Logprobs | None = None


class PromptDetails(BaseModel):
    cached_tokens: int | None = None


class ChatUsage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class ChatAnswer(BaseModel):
    """Of a success. What else an endpoint says is not looked at."""

    choices: list[ChatChoice] = Field(min_length=1)
    usage: ChatUsage | None = None


class Taken:
    """What one endpoint takes, as far as it has said.

    Args:
        model: its name, for messages.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._left_out: set[str] = set()
        self._limit_name = LIMITS[0]
        self._most_tokens: int | None = None
        self._num_alternatives = NUM_ALTERNATIVES[0]

    def body(self, messages: Sequence[Mapping[str, str]], *, sampling: Sampling, max_tokens: int) -> dict[str, Any]:
        """A request for one answer."""
        limit = min(max_tokens, self._most_tokens or max_tokens)
        wishes: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop),
            "logprobs": True,
        }
        if sampling.seed is not None:
            wishes["seed"] = sampling.seed % SEEDS
        taken = {name: value for name, value in wishes.items() if name not in self._left_out}
        if "logprobs" in taken:
            taken["top_logprobs"] = self._num_alternatives
        return {"model": self._model, "messages": list(messages), self._limit_name: limit, "stream": False, **taken}

    def learn(self, told: Told, *, sent: Mapping[str, Any]) -> bool:
        """Whether another body will do better than the one that was refused with these words."""
        if told.is_too_long or not (told.param in sent or _REFUSES.search(told.message)):
            return False
        ours = [name for name in sent if name not in ("model", "messages", "stream")]
        named = {OTHER_NAMES.get(name, name) for name in ours if name == told.param or _is_named(name, told.message)}
        if "max_tokens" in named:
            return self._lower_limit(told, sent=sent)
        refused = next((name for name in OPTIONAL if name in named), None)
        if refused is None:
            return False
        if refused == "logprobs" and sent["top_logprobs"] == NUM_ALTERNATIVES[0] and _is_about_the_number(told):
            self._num_alternatives = NUM_ALTERNATIVES[1]
            return True
        if refused not in self._left_out:
            self._left_out.add(refused)
            logger.warning("%s takes no %s: it is left out", self._model, refused)
        return True

    def _lower_limit(self, told: Told, *, sent: Mapping[str, Any]) -> bool:
        if LIMITS[0] in sent and LIMITS[1] in told.message:
            self._limit_name = LIMITS[1]
            return True
        limit = limit_in(sent)
        if limit <= LEAST_LIMIT:
            return False
        self._most_tokens = max(LEAST_LIMIT, limit // 2)
        return True


def limit_in(body: Mapping[str, Any]) -> int:
    """Longest answer that a request asks for, in tokens."""
    return next(body[name] for name in LIMITS if name in body)


def _is_named(name: str, message: str) -> bool:
    """Whether a field of the request is spoken of; `stop` and `seed` are words as well, and have to stand in quotes."""
    pattern = rf"""['"`]{name}['"`]""" if name in ("stop", "seed") else rf"\b{name}\b"
    return bool(re.search(pattern, message, re.IGNORECASE))


def _is_about_the_number(told: Told) -> bool:
    """Whether so many alternatives are too many, where fewer may do."""
    about = told.param == "top_logprobs" or "top_logprobs" in told.message
    return about and re.search(r"\d", told.message) is not None


def told_by(response: httpx2.Response) -> Told:
    """What an endpoint says is wrong, in any of the shapes that there are, or the head of whatever it said."""
    head = " ".join(response.text[:300].split()) or response.reason_phrase
    try:
        body = response.json()
    except ValueError:
        return Told(message=head)
    if isinstance(body, list) and body and isinstance(body[0], dict):
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return Told(message=error)
    if not isinstance(error, dict):
        return Told(message=head)
    message = error.get("message") or error.get("detail")
    return Told(
        message=message if isinstance(message, str) else head,
        param=error["param"] if isinstance(error.get("param"), str) else None,
        code=error["code"] if isinstance(error.get("code"), str) else None,
    )


def read_answer(content: bytes) -> ChatAnswer:
    """The answer of a success.

    Raises:
        ValueError: it is not a chat endpoint's; says where.
    """
    try:
        return ChatAnswer.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise ValueError(f"{where}: {first['msg']}") from error
