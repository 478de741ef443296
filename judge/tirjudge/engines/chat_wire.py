"""Wire format of `/v1/chat/completions`: request bodies, answers, and errors about unsupported parameters.

Endpoints support different parameters: some reject `stop` or any temperature but their default, some have no
log-probabilities, some use another name for the token limit. Endpoints are not distinguished by name. The first request
sets all parameters; a parameter that the endpoint rejects by name is omitted from then on.
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
"""Values of `top_logprobs` to request, in this order: the next one is used if an endpoint rejects the first as too
large."""

LEAST_LIMIT = 256
"""Lower bound of an answer's token limit. Limits are not reduced further."""

SEEDS = 2**31
"""Exclusive upper bound of seeds, supported by every endpoint."""

OPTIONAL = ("logprobs", "seed", "top_p", "stop", "temperature")
"""Parameters that can be omitted. If an endpoint rejects several, the first of these is omitted."""

OTHER_NAMES = {"top_logprobs": "logprobs", "max_completion_tokens": "max_tokens"}
"""Name of a field in a request -> parameter that it belongs to."""

LIMITS = ("max_tokens", "max_completion_tokens")
"""Names of the token limit of an answer."""

_REFUSES = re.compile(
    r"unsupported|not support|unknown|unrecognized|not permitted|not allowed|not enabled|invalid|cannot|too large"
    r"|too high|at most|maximum|less than|only|deprecated|>",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context.(length|window|size)|(prompt|input) is too long|input token count|too many tokens", re.IGNORECASE
)
_WITH_THE_ANSWER = re.compile(r"max_tokens|max_completion_tokens|in (the )?completion", re.IGNORECASE)


class ChatErrorBody(BaseModel):
    """Error reported by an endpoint."""

    message: str
    """Error message of the endpoint."""
    param: str | None = None
    """Rejected parameter. None: not reported."""
    code: str | None = None
    """Error code. None: not reported."""

    @property
    def is_too_long(self) -> bool:
        """Whether the request does not fit the model's context."""
        return self.code == "context_length_exceeded" or bool(_TOO_LONG.search(self.message))

    @property
    def fits_with_less(self) -> bool:
        """Whether the request may fit with a smaller limit of the answer."""
        return self.is_too_long and bool(_WITH_THE_ANSWER.search(self.message))


class _Alternative(BaseModel):
    token: Text
    logprob: float = Field(allow_inf_nan=False)
    bytes: list[int] | None = None

    @property
    def raw(self) -> bytes:
        """Bytes of the token. A token may contain part of a character."""
        return self.token.encode() if self.bytes is None else bytes(self.bytes)


class Token(_Alternative):
    """A generated token and its most likely alternatives."""

    top_logprobs: list[_Alternative] = []


class Logprobs(BaseModel):
    """Log-probabilities of a choice."""

    content: list[Token] | None = None


def _joined(content: Any) -> Any:
    """Join the text parts of content that is a list of parts, as some reasoning models return it."""
    if not isinstance(content, list):
        return content
    return "".join(part["text"] for part in content if isinstance(part, dict) and part.get("type") == "text")


class Message(BaseModel):
    """Message of the assistant."""

    content: Annotated[Text | None, BeforeValidator(_joined)] = None
    refusal: Text | None = None


class ChatChoice(BaseModel):
    """One completion."""

    message: Message
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """The stop string that matched. Only vLLM reports it."""
    logprobs: Logprobs | None = None


class PromptDetails(BaseModel):
    """Details of the prompt tokens."""

    cached_tokens: int | None = None


class ChatUsage(BaseModel):
    """Token counts of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class ChatAnswer(BaseModel):
    """Body of a successful response. Other fields are ignored."""

    choices: list[ChatChoice] = Field(min_length=1)
    usage: ChatUsage | None = None


class Taken:
    """Parameters that one endpoint supports, as learned from its errors.

    Args:
        model: name of the model in requests and messages.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._left_out: set[str] = set()
        self._limit_name = LIMITS[0]
        self._most_tokens: int | None = None
        self._num_alternatives = NUM_ALTERNATIVES[0]

    def body(self, messages: Sequence[Mapping[str, str]], *, sampling: Sampling, max_tokens: int) -> dict[str, Any]:
        """Return the body of a request, without parameters that the endpoint rejected earlier."""
        limit = min(max_tokens, self._most_tokens or max_tokens)
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "stop": list(sampling.stop),
            "logprobs": True,
        }
        if sampling.seed is not None:
            parameters["seed"] = sampling.seed % SEEDS
        supported = {name: value for name, value in parameters.items() if name not in self._left_out}
        if "logprobs" in supported:
            supported["top_logprobs"] = self._num_alternatives
        fixed = {"model": self._model, "messages": list(messages), self._limit_name: limit, "stream": False}
        return {**fixed, **supported}

    def learn(self, error: ChatErrorBody, *, sent: Mapping[str, Any]) -> bool:
        """Adapt to an error. Return whether `body` now returns another body that may be accepted.

        Args:
            error: error of the endpoint.
            sent: the rejected body.
        """
        if error.is_too_long or not (error.param in sent or _REFUSES.search(error.message)):
            return False
        ours = [name for name in sent if name not in ("model", "messages", "stream")]
        named = {OTHER_NAMES.get(name, name) for name in ours if name == error.param or _is_named(name, error.message)}
        if "max_tokens" in named:
            return self._lower_limit(error, sent=sent)
        refused = next((name for name in OPTIONAL if name in named), None)
        if refused is None:
            return False
        if refused == "logprobs" and sent["top_logprobs"] == NUM_ALTERNATIVES[0] and _is_about_the_number(error):
            self._num_alternatives = NUM_ALTERNATIVES[1]
            return True
        if refused not in self._left_out:
            self._left_out.add(refused)
            logger.warning("%s does not support %s: omitted from now on", self._model, refused)
        return True

    def _lower_limit(self, error: ChatErrorBody, *, sent: Mapping[str, Any]) -> bool:
        if LIMITS[0] in sent and LIMITS[1] in error.message:
            self._limit_name = LIMITS[1]
            return True
        limit = limit_in(sent)
        if limit <= LEAST_LIMIT:
            return False
        self._most_tokens = max(LEAST_LIMIT, limit // 2)
        return True


def limit_in(body: Mapping[str, Any]) -> int:
    """Return the token limit of the answer in a request body."""
    return next(body[name] for name in LIMITS if name in body)


def _is_named(name: str, message: str) -> bool:
    """Whether an error message names a parameter. `stop` and `seed` must be in quotes, because they are also plain
    words."""
    pattern = rf"""['"`]{name}['"`]""" if name in ("stop", "seed") else rf"\b{name}\b"
    return bool(re.search(pattern, message, re.IGNORECASE))


def _is_about_the_number(error: ChatErrorBody) -> bool:
    """Whether an error rejects the value of `top_logprobs`, so that a smaller value may be accepted."""
    about = error.param == "top_logprobs" or "top_logprobs" in error.message
    return about and re.search(r"\d", error.message) is not None


def read_error(response: httpx2.Response) -> ChatErrorBody:
    """Parse the error in a response, in any of the usual shapes. Otherwise the message is the start of the response
    text."""
    head = " ".join(response.text[:300].split()) or response.reason_phrase
    try:
        body = response.json()
    except ValueError:
        return ChatErrorBody(message=head)
    if isinstance(body, list) and body and isinstance(body[0], dict):
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return ChatErrorBody(message=error)
    if not isinstance(error, dict):
        return ChatErrorBody(message=head)
    message = error.get("message") or error.get("detail")
    return ChatErrorBody(
        message=message if isinstance(message, str) else head,
        param=error["param"] if isinstance(error.get("param"), str) else None,
        code=error["code"] if isinstance(error.get("code"), str) else None,
    )


def read_answer(content: bytes) -> ChatAnswer:
    """Parse the body of a successful response.

    Raises:
        ValueError: the body is not that of a chat endpoint. The message names the first invalid field.
    """
    try:
        return ChatAnswer.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise ValueError(f"{where}: {first['msg']}") from error
