"""Client of one `/v1/chat/completions` endpoint: adapts requests to its parameters and retries temporary failures."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

import httpx2

from tirjudge.engines.chat_wire import LEAST_LIMIT, ChatAnswer, Taken, limit_in, read_answer, read_error
from tirjudge.errors import EngineNotListening, EngineUnavailable, PromptTooLong, TirjudgeError, logged
from tirjudge.http.exchange import (
    KEEPALIVE_S,
    UNREACHED,
    HTTPExchange,
    RequestRefused,
    ServerNotListening,
    ServerUnavailable,
    tls_context,
)
from tirjudge.http.protocol import invalid
from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.types import Sampling

OUT_OF_CREDIT = ("insufficient_quota", "billing_hard_limit_reached")
"""Error codes of a 429 that does not go away by waiting."""


class ChatEndpoint:
    """Client of one endpoint, for any of its models.

    Args:
        url: URL up to `/v1`, or the complete URL. `/v1` is added to a URL without a path.
        api_key: bearer token. None: no token is sent.
        timeout_s: maximum time to wait for one answer, in seconds.
        max_attempts: maximum number of attempts per request while the endpoint is busy or fails.
        max_wait_s: maximum pause between two attempts, in seconds, even if the endpoint asks for a longer one.
        connect_retry_s: time for which a refused connection is retried, in seconds. 0: fail at the first refusal.
        awaits_first: whether to retry if the endpoint has never been reached. False: fail on the first connection
            error.
        transport: httpx transport, for tests. None: the network.

    Raises:
        EngineUnavailable: `url` is not a URL.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_attempts: int = 8,
        max_wait_s: float = 60.0,
        connect_retry_s: float = CONNECT_RETRY_S,
        awaits_first: bool = True,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = endpoint_of(url)
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._max_wait_s = max_wait_s
        self._connect_retry_s = connect_retry_s
        self._is_awaited = awaits_first
        self._http = httpx2.AsyncClient(
            headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
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
        headers: Mapping[str, str] | None = None,
    ) -> ChatAnswer:
        """Send a conversation and return the answer. Rejected parameters are omitted, and the request is sent again.

        Args:
            messages: the conversation.
            taken: the model and its supported parameters. It is updated when the endpoint rejects a parameter.
            sampling: sampling parameters and stop strings.
            max_tokens: token limit of the answer. It is reduced if the endpoint asks for less.
            without: fields to omit from the request.
            headers: additional headers.

        Raises:
            PromptTooLong: the conversation does not fit the context of the model.
            RequestRefused: the endpoint rejects the request because of its key, its model or one of its fields.
            EngineUnavailable: the endpoint cannot be reached, stayed busy, failed, or is not a chat endpoint.
        """
        while True:
            fields = taken.body(messages, sampling=sampling, max_tokens=max_tokens)
            body = {name: value for name, value in fields.items() if name not in without}
            response = await self._send(body, headers=headers or {})
            if response.is_success:
                try:
                    return read_answer(response.content)
                except ValueError as error:
                    failure = EngineUnavailable(f"{self.url}: not the answer of a chat endpoint: {error}")
                    raise failure.logged_as(f"{self.url}: not the answer of a chat endpoint") from error
            refusal = read_error(response)
            if response.status_code in (400, 403, 413, 422):
                if taken.learn(refusal, sent=body):
                    continue
                if refusal.fits_with_less and limit_in(body) > LEAST_LIMIT:
                    max_tokens = max(LEAST_LIMIT, limit_in(body) // 2)
                    continue
                if refusal.is_too_long:
                    raise PromptTooLong(f"{self.url}: {refusal.message}")
            message = f"{self.url} answered {response.status_code}: {refusal.message}"
            raise RequestRefused(invalid(message, param=refusal.param, code=refusal.code or str(response.status_code)))

    async def _send(self, body: Mapping[str, object], *, headers: Mapping[str, str]) -> httpx2.Response:
        """Send a request and return a success or a permanent error. Temporary failures are retried."""
        exchange = HTTPExchange(
            self.url,
            headers=dict(headers),
            timeout_s=self._timeout_s,
            max_attempts=self._max_attempts,
            max_wait_s=self._max_wait_s,
            connect_retry_s=self._connect_retry_s,
            deadline_s=None,
        )
        while True:
            try:
                response = await self._http.post(self.url, json=dict(body), **exchange.attempt())
            except httpx2.ReadTimeout as error:
                failure = EngineUnavailable(f"{self.url} did not answer within {self._timeout_s:g} s")
                failure.__cause__ = error
                pause_s = exchange.pause_after_failure(failure, headers={})
            except httpx2.RequestError as error:
                pause_s = self._pause_after_error(exchange, error)
            else:
                self._is_awaited = True
                failure = self._temporary_failure(response)
                if failure is None:
                    return response
                pause_s = exchange.pause_after_failure(failure, headers=response.headers)
            await asyncio.sleep(pause_s)

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
        error."""
        status = response.status_code
        if status not in (408, 429) and status < 500:
            return None
        error = read_error(response)
        if status == 429 and error.code in OUT_OF_CREDIT:
            return None
        failure = EngineUnavailable(f"{self.url} answered {status}: {error.message}")
        return failure.logged_as(f"{self.url} answered {status}")


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
