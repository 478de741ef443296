"""Asks any `/v1/chat/completions` endpoint for answers as they come: no tools, no log-probabilities, no stop strings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from tirjudge.engines.chat import OUT_OF_CREDIT, endpoint_of
from tirjudge.engines.chat_wire import Answer, Taken, read_answer, told_by
from tirjudge.errors import EngineUnavailable, PromptTooLong, TirjudgeError
from tirjudge.exchange import KEEPALIVE_S, UNREACHED, Exchange, RequestRefused, ServerUnavailable, tls_context
from tirjudge.protocol import invalid
from tirjudge.types import Sampling

_UNWANTED = ("logprobs", "top_logprobs", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One answer of a model."""

    text: str
    was_cut: bool
    """Whether it ran into the limit of tokens, or a filter."""
    num_tokens: int
    """As the endpoint counts them; 0: it does not say."""


class Endpoint:
    """One endpoint, and what its models are known to take.

    Args:
        url: up to `/v1`, or whole; a host alone gets `/v1`.
        api_key: sent as a bearer token; None: nothing.
        timeout_s: longest wait for one answer.
        max_attempts: how often a request is sent at most while the endpoint is busy, fails or cannot be reached.
        max_wait_s: longest pause between two attempts.

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
    ) -> None:
        self.url = endpoint_of(url)
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._max_wait_s = max_wait_s
        self._taken: dict[str, Taken] = {}
        self._was_reached = False
        self._http = httpx2.AsyncClient(
            headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
            verify=tls_context(),
        )

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def answer(self, messages: Sequence[Mapping[str, str]], *, model: str, sampling: Sampling) -> Sampled:
        """One answer to a conversation.

        Raises:
            PromptTooLong: the endpoint says so.
            RequestRefused: the endpoint does not answer such a request: the key, the model or a field is wrong.
            EngineUnavailable: it cannot be reached, stayed busy, or failed; or it is no chat endpoint.
        """
        taken = self._taken.setdefault(model, Taken(model))
        while True:
            wished = taken.body(messages, sampling=sampling, max_tokens=sampling.max_tokens)
            body = {name: value for name, value in wished.items() if name not in _UNWANTED}
            response = await self._send(body)
            if response.is_success:
                return self._sampled(response)
            told = told_by(response)
            if response.status_code in (400, 403, 413, 422):
                if taken.learn(told, sent=body):
                    continue
                if told.is_too_long:
                    raise PromptTooLong(f"{self.url}: {told.message}")
            message = f"{self.url} answered {response.status_code}: {told.message}"
            raise RequestRefused(invalid(message, param=told.param, code=told.code or str(response.status_code)))

    def _sampled(self, response: httpx2.Response) -> Sampled:
        try:
            answer: Answer = read_answer(response.content)
        except ValueError as error:
            raise EngineUnavailable(f"{self.url}: not the answer of a chat endpoint: {error}") from error
        choice = answer.choices[0]
        return Sampled(
            text=choice.message.content or choice.message.refusal or "",
            was_cut=choice.finish_reason in ("length", "content_filter"),
            num_tokens=0 if answer.usage is None else answer.usage.completion_tokens,
        )

    async def _send(self, body: Mapping[str, Any]) -> httpx2.Response:
        """A success or a refusal; what may do better later is sent again."""
        exchange = Exchange(
            self.url,
            headers={},
            timeout_s=self._timeout_s,
            max_attempts=self._max_attempts,
            max_wait_s=self._max_wait_s,
            deadline_s=None,
        )
        while True:
            try:
                response = await self._http.post(self.url, json=dict(body), **exchange.attempt())
            except httpx2.ReadTimeout:
                failure = EngineUnavailable(f"{self.url} did not answer within {self._timeout_s:g} s")
                pause_s = exchange.pause_after_failure(failure, headers={})
            except httpx2.RequestError as error:
                if isinstance(error, UNREACHED) and not self._was_reached:
                    # Nothing was ever there: more likely another address than a moment of trouble.
                    raise EngineUnavailable(f"{self.url} cannot be reached: {error or type(error).__name__}") from error
                try:
                    pause_s = exchange.pause_after_error(error)
                except ServerUnavailable as unavailable:
                    raise EngineUnavailable(str(unavailable)) from error
            else:
                self._was_reached = True
                if (passing := self._passing_failure(response)) is None:
                    return response
                pause_s = exchange.pause_after_failure(passing, headers=response.headers)
            await asyncio.sleep(pause_s)

    def _passing_failure(self, response: httpx2.Response) -> TirjudgeError | None:
        """What is raised if it does not pass; None for an answer that stays the same however often it is asked for."""
        status = response.status_code
        if status not in (408, 429) and status < 500:
            return None
        told = told_by(response)
        if status == 429 and told.code in OUT_OF_CREDIT:
            return None
        return EngineUnavailable(f"{self.url} answered {status}: {told.message}")
