"""Client of one `/v1/chat/completions` endpoint: adapts requests to its parameters and retries temporary failures.

A request has a slot of the endpoint from its first attempt to its last, so at most `max_concurrency` requests are sent
or waiting for a retry. Further requests queue in order of arrival. The API key, and credentials in the URL, are in no
error: the endpoint's messages are searched for the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, ValidationError

from tirjudge.engines.chat_wire import (
    LEAST_LIMIT,
    ChatAnswer,
    ChatErrorBody,
    Taken,
    Trouble,
    limit_in,
    read_answer,
    read_error,
    status_in,
)
from tirjudge.errors import (
    ContentFiltered,
    EngineBusy,
    EngineNotListening,
    EngineUnavailable,
    PromptTooLong,
    TirjudgeError,
    logged,
)
from tirjudge.http.exchange import (
    KEEPALIVE_S,
    UNREACHED,
    EngineRefused,
    HTTPExchange,
    ServerNotListening,
    ServerUnavailable,
    retry_after_s,
    tls_context,
)
from tirjudge.http.protocol import Problem
from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.types import Sampling

MAX_CONCURRENCY = 8
"""Default maximum number of concurrent requests to one endpoint."""

TIMEOUT_S = 600.0
"""Default maximum seconds of one answer: the timeout of OpenAI's clients."""

MAX_TIMEOUTS = 2
"""Number of timeouts after which a request fails. A second attempt rarely succeeds where the first took this long."""

MAX_PAUSE_S = 300.0
"""A longer pause is not waited for, such as the one until a daily limit is reset."""

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Maximum size of an answer. The log-probabilities of 16,384 tokens take about half of it."""

MODELS_S = 5.0
"""Timeout of the request for the names of the models, which only improve an error message."""

NUM_SHOWN_MODELS = 12
"""Number of model names in an error message."""

ADAPTABLE = (400, 403, 413, 422, 500, 501)
"""Status codes with which endpoints reject a parameter. llama-cpp-python rejects `logprobs` with a 500."""

PROBLEM_TYPES = {
    Trouble.KEY: "authentication_error",
    Trouble.MODEL: "permission_error",
    Trouble.CREDIT: "permission_error",
    Trouble.REQUEST: "invalid_request_error",
}
"""What an error is about -> its type. Runs stop at the first error that is not about a single request."""


class _Card(BaseModel):
    id: str


class _ModelList(BaseModel):
    data: list[_Card]


class ChatEndpoint:
    """Client of one endpoint, for any of its models.

    Args:
        url: URL up to `/v1`, or the complete URL. `/v1` is added to a URL without a path.
        api_key: bearer token. None: no token is sent.
        timeout_s: maximum seconds from sending a request to the end of its answer.
        max_concurrency: maximum number of concurrent requests.
        max_attempts: maximum number of attempts per request while the endpoint is busy or fails.
        max_wait_s: maximum pause between two attempts, in seconds, even if the endpoint asks for a longer one.
        connect_retry_s: time for which a refused connection is retried, in seconds. 0: fail at the first refusal.
        awaits_first: whether to retry if the endpoint has never been reached. False: fail on the first connection
            error.
        transport: httpx transport, for tests. None: the network.

    Attributes:
        url: the complete URL without credentials and query, for messages.

    Raises:
        EngineUnavailable: `url` is not a URL.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        max_concurrency: int = MAX_CONCURRENCY,
        max_attempts: int = 8,
        max_wait_s: float = 60.0,
        connect_retry_s: float = CONNECT_RETRY_S,
        awaits_first: bool = True,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        parts = urlsplit(endpoint_of(url))
        # The HTTP client logs the URL that it is given, so credentials become a header.
        self._target = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self.url = self._target.partition("?")[0]
        self._secrets = [secret for secret in (api_key, parts.password, parts.query) if secret]
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(max_concurrency)
        self._max_attempts = max_attempts
        self._max_wait_s = max_wait_s
        self._connect_retry_s = connect_retry_s
        self._is_awaited = awaits_first
        self._http = httpx2.AsyncClient(
            headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
            auth=None if parts.password is None else (parts.username or "", parts.password),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
            verify=tls_context(),
            transport=transport,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        taken: Taken,
        sampling: Sampling,
        max_tokens: int,
        without: Collection[str] = (),
        extra: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        max_attempts: int | None = None,
        connect_retry_s: float | None = None,
    ) -> ChatAnswer:
        """Send a conversation and return the answer. Rejected parameters are omitted, and the request is sent again.

        Args:
            messages: the conversation.
            taken: the model and its supported parameters. It is updated when the endpoint rejects a parameter.
            sampling: sampling parameters and stop strings.
            max_tokens: token limit of the answer. It is reduced if the endpoint asks for less.
            without: fields to omit from the request.
            extra: additional fields of the request, such as `response_format`.
            headers: additional headers.
            max_attempts, connect_retry_s: as for the class; None: its values.

        Raises:
            PromptTooLong: the conversation does not fit the context of the model.
            ContentFiltered: a content filter of the endpoint rejected the conversation.
            EngineRefused: the endpoint rejects the request because of its key, its model or one of its fields.
            EngineBusy: the endpoint limits the rate of requests.
            EngineUnavailable: the endpoint cannot be reached, stayed busy, failed, or is not a chat endpoint.
        """
        new_exchange = partial(
            HTTPExchange,
            self.url,
            headers=dict(headers or {}),
            timeout_s=self._timeout_s,
            max_attempts=self._max_attempts if max_attempts is None else max_attempts,
            max_wait_s=self._max_wait_s,
            connect_retry_s=self._connect_retry_s if connect_retry_s is None else connect_retry_s,
            deadline_s=None,
        )
        async with self._slots:
            while True:
                fields = taken.body(messages, sampling=sampling, max_tokens=max_tokens)
                body = {name: value for name, value in (fields | dict(extra or {})).items() if name not in without}
                response = await self._send(body, exchange=new_exchange())
                if response.is_success:
                    return self._answer_in(response)
                refusal = self._error_in(response)
                if response.status_code in ADAPTABLE and taken.learn(refusal, sent=body):
                    continue
                if refusal.fits_with_less and limit_in(body) > LEAST_LIMIT:
                    max_tokens = max(LEAST_LIMIT, limit_in(body) // 2)
                    continue
                raise self._refused(refusal, status=response.status_code)

    async def model_names(self) -> list[str]:
        """Return the names of the endpoint's models; empty if it does not tell them."""
        target = self._target.partition("?")[0].removesuffix("/chat/completions") + "/models"
        with suppress(httpx2.HTTPError, ValidationError, TimeoutError):
            async with asyncio.timeout(MODELS_S):
                response = await self._http.get(target, timeout=MODELS_S)
            if response.is_success:
                return [card.id for card in _ModelList.model_validate_json(response.content).data][:NUM_SHOWN_MODELS]
        return []

    def _answer_in(self, response: httpx2.Response) -> ChatAnswer:
        """Parse a successful response.

        Raises:
            EngineUnavailable: it is not the answer of a chat endpoint.
        """
        try:
            return read_answer(response.content)
        except ValueError as error:
            kind = response.headers.get("content-type", "no content type")
            head = self._blanked(" ".join(response.text[:120].split()))
            failure = EngineUnavailable(f"{self.url}: not the answer of a chat endpoint: {error} ({kind}: {head!r})")
            raise failure.logged_as(f"{self.url}: not the answer of a chat endpoint") from error

    def _refused(self, refusal: ChatErrorBody, *, status: int) -> TirjudgeError:
        """Return the exception for a permanent error."""
        if refusal.is_too_long:
            return PromptTooLong(f"{self.url}: {refusal.message}")
        if refusal.is_filtered and status in (400, 403, 422):
            return ContentFiltered(f"{self.url} answered {status}: {refusal.message}")
        code = refusal.code or str(status)
        problem = Problem(
            message=f"{self.url} answered {status}: {refusal.message}",
            type=PROBLEM_TYPES[refusal.trouble(status)],
            param=refusal.param,
            code=code,
        )
        return EngineRefused(problem).logged_as(f"{self.url} answered {status} ({refusal.trouble(status)})")

    async def _send(self, body: Mapping[str, object], *, exchange: HTTPExchange) -> httpx2.Response:
        """Send a request and return a success or a permanent error. Temporary failures are retried."""
        num_timeouts = 0
        while True:
            headers: Mapping[str, str] = {}
            try:
                response = await self._post(body, exchange=exchange)
            except (httpx2.ReadTimeout, TimeoutError) as error:
                num_timeouts += 1
                late = EngineUnavailable(f"{self.url} did not answer within {self._timeout_s:g} s")
                late.__cause__ = error
                if num_timeouts == MAX_TIMEOUTS:
                    raise late from error
                failure = late
            except httpx2.RequestError as error:
                await asyncio.sleep(self._pause_after_error(exchange, error))
                continue
            else:
                self._is_awaited = True
                headers = response.headers
                failure = self._temporary_failure(response)
                if failure is None:
                    return response
            await asyncio.sleep(exchange.pause_after_failure(failure, headers=headers))

    async def _post(self, body: Mapping[str, object], *, exchange: HTTPExchange) -> httpx2.Response:
        """Send a request once and return the response with its body.

        Raises:
            TimeoutError, httpx2.RequestError: there is no complete response.
            EngineUnavailable: the response is a stream of events, or too large.
        """
        content = bytearray()
        async with (
            asyncio.timeout(self._timeout_s),
            self._http.stream("POST", self._target, json=dict(body), **exchange.attempt()) as response,
        ):
            kind = response.headers.get("content-type", "")
            if response.is_success and kind.startswith("text/event-stream"):
                raise EngineUnavailable(
                    f"{self.url}: answered with a stream of events, but `stream: false` was sent; "
                    "configure the endpoint or the proxy to honor it"
                )
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > MAX_ANSWER_BYTES:
                    raise EngineUnavailable(f"{self.url}: the answer has more than {MAX_ANSWER_BYTES} bytes")
        status = status_in(bytes(content)) if response.is_success else None
        kept = {name: value for name, value in response.headers.items() if name not in DECODED}
        return httpx2.Response(status or response.status_code, headers=kept, content=bytes(content))

    def _pause_after_error(self, exchange: HTTPExchange, error: httpx2.RequestError) -> float:
        if isinstance(error, UNREACHED) and not self._is_awaited:
            raise EngineUnavailable(f"{self.url} cannot be reached: {error or type(error).__name__}") from error
        try:
            return exchange.pause_after_error(error)
        except ServerNotListening as failure:
            raise EngineNotListening(str(failure)) from failure
        except ServerUnavailable as failure:
            raise EngineUnavailable(str(failure)).logged_as(logged(failure)) from failure

    def _temporary_failure(self, response: httpx2.Response) -> TirjudgeError | None:
        """Return the error to raise if all retries of a temporary failure fail; None for a success or a permanent
        error.

        Raises:
            EngineBusy: the endpoint asks for a pause that is too long to wait for.
        """
        status = response.status_code
        if status not in (408, 429) and status < 500:
            return None
        error = self._error_in(response)
        if error.is_too_long or (status == HTTPStatus.TOO_MANY_REQUESTS and error.is_out_of_credit):
            return None
        if status in ADAPTABLE and error.rejects_parameter:
            return None
        message, said = f"{self.url} answered {status}: {error.message}", f"{self.url} answered {status}"
        if status != HTTPStatus.TOO_MANY_REQUESTS:
            return EngineUnavailable(message).logged_as(said)
        asked_s = retry_after_s(response.headers)
        failure = EngineBusy(message, retry_after_s=asked_s or 1.0).logged_as(said)
        if asked_s is not None and asked_s > MAX_PAUSE_S:
            raise failure
        return failure

    def _error_in(self, response: httpx2.Response) -> ChatErrorBody:
        error = read_error(response)
        return error.model_copy(update={"message": self._blanked(error.message)})

    def _blanked(self, text: str) -> str:
        """Return a text of the endpoint without the secrets of the requests."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


DECODED = ("content-encoding", "content-length", "transfer-encoding")
"""Headers that do not apply to a decoded body."""


def endpoint_of(url: str) -> str:
    """Return the complete URL of an endpoint.

    >>> endpoint_of("http://127.0.0.1:11434")
    'http://127.0.0.1:11434/v1/chat/completions'
    >>> endpoint_of("https://api.openai.com/v1/")
    'https://api.openai.com/v1/chat/completions'
    >>> endpoint_of("https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2025-01-01")
    'https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2025-01-01'

    Raises:
        EngineUnavailable: the argument is not a URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise EngineUnavailable(f"{url} is not a URL; give one such as https://api.openai.com/v1")
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path or '/v1'}/chat/completions"
    return parts._replace(path=path).geturl()
