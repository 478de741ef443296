"""One `/v1/chat/completions` endpoint over HTTP: finds the form of a request that it takes, and tries again what may pass."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

import httpx2

from tirjudge.engines.chat_wire import LEAST_LIMIT, ChatAnswer, Taken, limit_in, read_answer, told_by
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
"""Codes of a 429 that waiting does not end."""


class ChatEndpoint:
    """Where the requests for any of its models go.

    Args:
        url: up to `/v1`, or whole; a host alone gets `/v1`.
        api_key: sent as a bearer token; None: nothing.
        timeout_s: longest wait for one answer.
        max_attempts: how often a request is sent at most while the endpoint is busy or fails.
        max_wait_s: longest pause between two attempts, whatever the endpoint asks for.
        connect_retry_s: seconds during which a refused connection is retried. 0: fail at the first refusal.
        awaits_first: whether an endpoint that was never reached is waited for; if not, the address is taken to be wrong.
        transport: how requests travel; None: over the network.

    Raises:
        EngineUnavailable: `url` is no URL.
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
        """The answer to the first form of the request that the endpoint takes.

        Args:
            messages: the conversation.
            taken: the model, and what it is known to take; learns from refusals.
            sampling: how to sample, when to stop.
            max_tokens: of the answer; less where the endpoint says that less would fit.
            without: fields of the request to leave out.
            headers: sent besides.

        Raises:
            PromptTooLong: the endpoint says so.
            RequestRefused: the endpoint does not answer such a request: the key, the model or a field is wrong.
            EngineUnavailable: it cannot be reached, stayed busy, or failed; or it is no chat endpoint.
        """
        while True:
            wished = taken.body(messages, sampling=sampling, max_tokens=max_tokens)
            body = {name: value for name, value in wished.items() if name not in without}
            response = await self._send(body, headers=headers or {})
            if response.is_success:
                try:
                    return read_answer(response.content)
                except ValueError as error:
                    failure = EngineUnavailable(f"{self.url}: not the answer of a chat endpoint: {error}")
                    raise failure.logged_as(f"{self.url}: not the answer of a chat endpoint") from error
            told = told_by(response)
            if response.status_code in (400, 403, 413, 422):
                if taken.learn(told, sent=body):
                    continue
                if told.fits_with_less and limit_in(body) > LEAST_LIMIT:
                    max_tokens = max(LEAST_LIMIT, limit_in(body) // 2)
                    continue
                if told.is_too_long:
                    raise PromptTooLong(f"{self.url}: {told.message}")
            message = f"{self.url} answered {response.status_code}: {told.message}"
            raise RequestRefused(invalid(message, param=told.param, code=told.code or str(response.status_code)))

    async def _send(self, body: Mapping[str, object], *, headers: Mapping[str, str]) -> httpx2.Response:
        """A success or a refusal; what may do better later is sent again."""
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
                failure = self._passing_failure(response)
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

    def _passing_failure(self, response: httpx2.Response) -> TirjudgeError | None:
        """What is raised if it does not pass; None for an answer that stays the same however often it is asked for."""
        status = response.status_code
        if status not in (408, 429) and status < 500:
            return None
        told = told_by(response)
        if status == 429 and told.code in OUT_OF_CREDIT:
            return None
        failure = EngineUnavailable(f"{self.url} answered {status}: {told.message}")
        return failure.logged_as(f"{self.url} answered {status}")


def endpoint_of(url: str) -> str:
    """Where the requests go.

    >>> endpoint_of("http://127.0.0.1:11434")
    'http://127.0.0.1:11434/v1/chat/completions'
    >>> endpoint_of("https://api.openai.com/v1/")
    'https://api.openai.com/v1/chat/completions'
    >>> endpoint_of("https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2025-01-01")
    'https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2025-01-01'

    Raises:
        EngineUnavailable: it is no URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise EngineUnavailable(f"{url} is no URL; https://api.openai.com/v1 is one")
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path or '/v1'}/chat/completions"
    return parts._replace(path=path).geturl()
