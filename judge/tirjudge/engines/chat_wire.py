"""Wire format of `/v1/chat/completions`: request bodies, answers, and errors about unsupported parameters.

Endpoints support different parameters: some reject `stop` or any temperature but their default, some have no
log-probabilities, some use another name for the token limit. Endpoints are not distinguished by name. The first request
sets all parameters; a parameter that the endpoint rejects by name is omitted from then on.
"""

from __future__ import annotations

import builtins
import json
import logging
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
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

MAX_MESSAGE_CHARS = 1000
"""Number of characters of an error message that are kept."""

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
_FILTERED = re.compile(
    r"content[ _]filter|content.management.policy|content policy|usage policy|safety system|potentially violating",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api[ _-]?key|unauthorized|authentication|invalid (bearer )?token", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"\bmodel\b[^.]{0,200}?\b(not found|not exist|not available|unknown)|unknown model|not a valid model", re.IGNORECASE
)
_NO_CREDIT = re.compile(r"credit balance|insufficient (balance|quota|credits?|funds)", re.IGNORECASE)
_WITH_THE_ANSWER = re.compile(r"max_tokens|max_completion_tokens|in (the )?completion", re.IGNORECASE)


OUT_OF_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
"""Error codes of a 429 that does not go away by waiting."""

FILTERED = ("content_filter", "content_policy_violation", "invalid_prompt", "sensitive_words_detected")
"""Error codes of a request that a content filter rejected."""


class Trouble(StrEnum):
    """What a permanent error of an endpoint is about."""

    KEY = "key"
    """The API key is missing, wrong, or lacks a permission."""
    MODEL = "model"
    """The endpoint does not have the model, or the URL is not that of a chat endpoint."""
    CREDIT = "credit"
    """The account has no credit or no quota left."""
    REQUEST = "request"
    """This request; others may be accepted."""


class ChatErrorBody(BaseModel):
    """Error reported by an endpoint."""

    message: str
    """Error message of the endpoint."""
    param: str | None = None
    """Rejected parameter. None: not reported."""
    code: str | None = None
    """Error code. None: not reported."""
    type: str | None = None
    """Error type. None: not reported."""

    @property
    def is_filtered(self) -> bool:
        """Whether a content filter rejected the request."""
        return self.code in FILTERED or bool(_FILTERED.search(self.message))

    @property
    def is_out_of_credit(self) -> bool:
        """Whether the account has no credit left. Waiting does not help."""
        names = (self.code, self.type)
        return any(name in names for name in OUT_OF_CREDIT) or bool(_NO_CREDIT.search(self.message))

    def trouble(self, status: int) -> Trouble:
        """Return what the error is about.

        Args:
            status: HTTP status of a permanent error.
        """
        if status == 402 or self.is_out_of_credit:
            return Trouble.CREDIT
        if status == 401:
            return Trouble.KEY
        if self.code == "model_not_found" or _NO_MODEL.search(self.message) or status in (404, 405):
            return Trouble.MODEL
        if status == 403 or self.code == "invalid_api_key" or _BAD_KEY.search(self.message):
            return Trouble.KEY
        return Trouble.REQUEST

    @property
    def rejects_parameter(self) -> bool:
        """Whether the error rejects a parameter by name."""
        named = any(_is_named(name, self.message) for name in (*OPTIONAL, *OTHER_NAMES, *LIMITS))
        return named and bool(_REFUSES.search(self.message))

    @property
    def is_too_long(self) -> bool:
        """Whether the request does not fit the model's context."""
        names = ("context_length_exceeded", "exceed_context_size_error", "string_above_max_length")
        return self.code in names or self.type in names or bool(_TOO_LONG.search(self.message))

    @property
    def fits_with_less(self) -> bool:
        """Whether the request may fit with a smaller limit of the answer."""
        return self.is_too_long and bool(_WITH_THE_ANSWER.search(self.message))


class _Alternative(BaseModel):
    token: Text
    logprob: float = Field(allow_inf_nan=False)
    bytes: list[int] | None = None

    @property
    def raw(self) -> builtins.bytes:
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
    reasoning_content: Any = None
    """Separate reasoning. It is only checked for presence."""
    reasoning: Any = None
    """Separate reasoning under its other name."""


class ChatChoice(BaseModel):
    """One completion."""

    message: Message
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """The stop string that matched. Only vLLM reports it."""
    logprobs: Logprobs | None = None


class PromptDetails(BaseModel):
    """Details of the prompt tokens."""

    cached_tokens: int | None = Field(default=None, ge=0)


class ChatUsage(BaseModel):
    """Token counts of a request. None: not reported."""

    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
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
            "logprobs": True,
        }
        if sampling.stop:
            parameters["stop"] = list(sampling.stop)
        if sampling.seed is not None:
            parameters["seed"] = sampling.seed % SEEDS
        supported = {name: value for name, value in parameters.items() if name not in self._left_out}
        if "logprobs" in supported:
            supported["top_logprobs"] = self._num_alternatives
        fixed = {"model": self._model, "messages": list(messages), self._limit_name: limit, "stream": False}
        return {**fixed, **supported}

    def leave_out(self, name: str) -> bool:
        """Omit an optional parameter from now on. Return whether it was sent until now."""
        was_sent = name not in self._left_out
        self._left_out.add(name)
        return was_sent

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
        if self.leave_out(refused):
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
        return ChatErrorBody(message=error[:MAX_MESSAGE_CHARS])
    if not isinstance(error, dict):
        return ChatErrorBody(message=head)
    message = error.get("message") or error.get("detail")
    named = {name: error[name] for name in ("param", "code", "type") if isinstance(error.get(name), str)}
    return ChatErrorBody(message=message[:MAX_MESSAGE_CHARS] if isinstance(message, str) else head, **named)


def status_in(body: bytes) -> int | None:
    """Return the status of an error that an endpoint sent with the status 200; None if the body is not an error."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    if not isinstance(content, dict) or "choices" in content or not content.get("error"):
        return None
    error = content["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 400


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
