"""Typed HTTP clients of a judge server: `Client` and `AsyncClient`.

    with Client("http://127.0.0.1:8400") as client:
        request = JudgeRequest(mode=Mode.PAIRWISE, prompt="Which is longer?", responses=["one", "three"])
        print(client.judge(request).verdict.best)

The two classes have the same methods. One `Client` can be shared by many threads, one `AsyncClient` by many tasks of
one event loop.

Retries: a request to a busy server is sent again after the time that the server asks for, and a broken connection is
reopened. A refused connection is retried for `connect_retry_s` (2 s by default); then `ServerNotListening`, a
`ServerUnavailable`, is raised. Every POST carries an idempotency key, so that the server judges a repeated request only once.

Deadlines: methods that judge take `deadline_s`, the time limit for the answer in seconds (None: no limit). Near the
limit, the server forces verdicts from the turns written so far.

Every method raises `RequestRefused` if the server rejects the request, `ServerUnavailable` if the server cannot be
reached or fails, and `DeadlineExceeded` if the deadline passes without an answer.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel

from tirjudge.http import DEFAULT_URL
from tirjudge.http.exchange import (
    KEEPALIVE_S,
    HTTPExchange,
    RequestRefused,
    ServerUnavailable,
    tls_context,
)
from tirjudge.http.protocol import (
    JUDGE_PATH,
    JUDGMENTS_PATH,
    MODELS_PATH,
    Event,
    JudgmentRecord,
    ModelCard,
    ModelList,
    Problem,
)
from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.http.rewards import (
    BATCH_PATH,
    RERANK_PATH,
    REWARD_PATH,
    JudgmentBatchAnswer,
    JudgmentBatchRequest,
    RerankAnswer,
    RerankRequest,
    RewardAnswer,
    RewardRequest,
)
from tirjudge.types import JudgeRequest, Judgment

__all__ = ["AsyncClient", "Client", "FormFile", "RequestRefused", "ServerUnavailable"]

Answer = TypeVar("Answer", bound=BaseModel)

AskedJudgment = JudgeRequest | Mapping[str, Any]
"""A request, or its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormFile:
    """A file in a form."""

    name: str
    content: bytes
    fields: Mapping[str, str]
    """Other fields of the form."""


class _Connection:
    """State shared by both clients: the connection to the server and the retry limits."""

    _http_class: Any

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_attempts: int = 8,
        max_wait_s: float = 30.0,
        connect_retry_s: float = CONNECT_RETRY_S,
        transport: Any = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._max_wait_s = max_wait_s
        self._connect_retry_s = connect_retry_s
        with _is_url(base_url):
            self._http = self._http_class(
                transport=transport,
                base_url=self.base_url,
                headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S),
                verify=tls_context(),
            )

    def _exchange(self, *, deadline_s: float | None = None, posts: bool = True) -> HTTPExchange:
        headers = {"content-type": "application/json", "idempotency-key": uuid.uuid4().hex} if posts else {}
        return HTTPExchange(
            self.base_url,
            headers=headers,
            timeout_s=self._timeout_s,
            max_attempts=self._max_attempts,
            max_wait_s=self._max_wait_s,
            connect_retry_s=self._connect_retry_s,
            deadline_s=deadline_s,
        )


class Client(_Connection):
    """Blocking client of one server. Use it as a context manager, or call `close`.

    Args:
        base_url: URL of the server. Default: where `tirjudge serve` listens on this machine.
        api_key: API key. None: the server requires none.
        timeout_s: maximum time to wait for an answer, in seconds, including the server's queue.
        max_attempts: maximum number of attempts per request.
        max_wait_s: maximum pause between two attempts, in seconds, even if the server asks for a longer one.
        connect_retry_s: time for which a refused connection is retried, in seconds, because the server may be restarting.
            0: fail at the first refusal.
        transport: httpx transport, for tests. None: TCP.

    Raises:
        ServerUnavailable: `base_url` is not a URL.
    """

    _http_class = httpx2.Client
    _http: httpx2.Client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def judge(self, request: AskedJudgment, *, deadline_s: float | None = None) -> Judgment:
        """Judge one request and return the judgment.

        Args:
            request: the request, or a mapping with its fields, such as `{"mode": "pairwise", "prompt": ...}`.
            deadline_s: time limit for the answer in seconds. None: no limit.

        Raises:
            ValueError: the fields are not those of a request.
        """
        return self._post(JUDGE_PATH, _without_stream(request), answer=Judgment, deadline_s=deadline_s)

    def stream(self, request: AskedJudgment, *, deadline_s: float | None = None) -> Iterator[Event]:
        """Judge one request and yield its events as they happen. The last event is the `Judgment`.

        An interrupted stream raises `ServerUnavailable` and is not retried, because its events have already been
        yielded.
        """
        exchange = self._exchange(deadline_s=deadline_s)
        with self._opened(exchange, JUDGE_PATH, content=_streamed(request)) as response, exchange.streaming():
            for sent in httpx2.EventSource(response, max_event_size=None):
                event = exchange.event(sent)
                yield event
                if isinstance(event, Judgment):
                    return
        raise exchange.cut_off()

    def judge_batch(
        self, requests: Sequence[AskedJudgment], *, deadline_s: float | None = None
    ) -> list[Judgment | Problem]:
        """Judge many requests in one HTTP request and return one result per request, in order.

        A request that failed has a `Problem` in place of its judgment; the others are not affected.
        """
        answer = self._post(BATCH_PATH, _batch(requests), answer=JudgmentBatchAnswer, deadline_s=deadline_s)
        return _judgments(answer)

    def reward(self, request: RewardRequest, *, deadline_s: float | None = None) -> RewardAnswer:
        """Return rewards for the responses to one or more prompts. A response without a reward has the reason."""
        return self._post(REWARD_PATH, request, answer=RewardAnswer, deadline_s=deadline_s)

    def rerank(self, request: RerankRequest, *, deadline_s: float | None = None) -> RerankAnswer:
        """Rank the responses to one prompt, best first."""
        return self._post(RERANK_PATH, request, answer=RerankAnswer, deadline_s=deadline_s)

    def judgment(self, judgment_id: str) -> JudgmentRecord:
        """Return the stored record of a judgment."""
        return self._get(_record_path(judgment_id), answer=JudgmentRecord)

    def models(self) -> list[ModelCard]:
        """Return the judges that the server offers, at least one."""
        return self._get(MODELS_PATH, answer=ModelList).data

    def call(
        self, method: str, path: str, *, answer: type[Answer], body: bytes | None = None, file: FormFile | None = None
    ) -> Answer:
        """Send a request to an endpoint that has no method of its own, and return the parsed response.

        Args:
            method: HTTP method.
            path: path with its query, such as `/v1/evals?limit=20`.
            answer: type of the response.
            body: JSON. None: no body.
            file: a file to upload in a form. None: no file.
        """
        exchange = self._exchange(posts=body is not None)
        return self._send(exchange, method, path, content=body, file=file, answer=answer)

    def _get(self, path: str, *, answer: type[Answer]) -> Answer:
        return self._send(self._exchange(posts=False), "GET", path, content=None, answer=answer)

    def _post(self, path: str, body: BaseModel, *, answer: type[Answer], deadline_s: float | None) -> Answer:
        exchange = self._exchange(deadline_s=deadline_s)
        return self._send(exchange, "POST", path, content=body.model_dump_json(exclude_unset=True), answer=answer)

    def _send(
        self,
        exchange: HTTPExchange,
        method: str,
        path: str,
        *,
        content: str | bytes | None,
        answer: type[Answer],
        file: FormFile | None = None,
    ) -> Answer:
        """Send a request, retry as `exchange` decides, and return the parsed body of the successful response."""
        form: dict[str, Any] = (
            {} if file is None else {"files": {"file": (file.name, file.content)}, "data": file.fields}
        )
        while True:
            try:
                response = self._http.request(method, path, content=content, **form, **exchange.attempt())
            except httpx2.RequestError as error:
                pause_s = exchange.pause_after_error(error)
            else:
                if response.is_success:
                    with exchange.understood():
                        return answer.model_validate_json(response.content)
                pause_s = exchange.pause_after(response)
            time.sleep(pause_s)

    @contextmanager
    def _opened(self, exchange: HTTPExchange, path: str, *, content: str) -> Iterator[httpx2.Response]:
        """Send a request, retry as `exchange` decides, and yield the successful response with its body unread."""
        while True:
            try:
                request = self._http.build_request("POST", path, content=content, **exchange.attempt())
                response = self._http.send(request, stream=True)
                if not response.is_success:
                    response.read()
            except httpx2.RequestError as error:
                time.sleep(exchange.pause_after_error(error))
                continue
            if response.is_success:
                with closing(response):
                    yield response
                return
            time.sleep(exchange.pause_after(response))


class AsyncClient(_Connection):
    """Asynchronous client of one server. Use it as an async context manager, or await `close`.

    Args:
        base_url, api_key, timeout_s, max_attempts, max_wait_s, connect_retry_s: as for `Client`.
        transport: asynchronous httpx transport, for tests. None: TCP.

    Raises:
        ServerUnavailable: `base_url` is not a URL.
    """

    _http_class = httpx2.AsyncClient
    _http: httpx2.AsyncClient

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def judge(self, request: AskedJudgment, *, deadline_s: float | None = None) -> Judgment:
        """Judge one request and return the judgment. See `Client.judge`."""
        return await self._post(JUDGE_PATH, _without_stream(request), answer=Judgment, deadline_s=deadline_s)

    async def stream(self, request: AskedJudgment, *, deadline_s: float | None = None) -> AsyncIterator[Event]:
        """Judge one request and yield its events as they happen. See `Client.stream`."""
        exchange = self._exchange(deadline_s=deadline_s)
        async with self._opened(exchange, JUDGE_PATH, content=_streamed(request)) as response:
            with exchange.streaming():
                async for sent in httpx2.EventSource(response, max_event_size=None):
                    event = exchange.event(sent)
                    yield event
                    if isinstance(event, Judgment):
                        return
        raise exchange.cut_off()

    async def judge_batch(
        self, requests: Sequence[AskedJudgment], *, deadline_s: float | None = None
    ) -> list[Judgment | Problem]:
        """Judge many requests in one HTTP request; one result per request, in order. See `Client.judge_batch`."""
        answer = await self._post(BATCH_PATH, _batch(requests), answer=JudgmentBatchAnswer, deadline_s=deadline_s)
        return _judgments(answer)

    async def reward(self, request: RewardRequest, *, deadline_s: float | None = None) -> RewardAnswer:
        """Return rewards for the responses to one or more prompts. See `Client.reward`."""
        return await self._post(REWARD_PATH, request, answer=RewardAnswer, deadline_s=deadline_s)

    async def rerank(self, request: RerankRequest, *, deadline_s: float | None = None) -> RerankAnswer:
        """Rank the responses to one prompt, best first. See `Client.rerank`."""
        return await self._post(RERANK_PATH, request, answer=RerankAnswer, deadline_s=deadline_s)

    async def judgment(self, judgment_id: str) -> JudgmentRecord:
        """Return the stored record of a judgment. See `Client.judgment`."""
        return await self._get(_record_path(judgment_id), answer=JudgmentRecord)

    async def models(self) -> list[ModelCard]:
        """Return the judges that the server offers. See `Client.models`."""
        return (await self._get(MODELS_PATH, answer=ModelList)).data

    async def call(
        self, method: str, path: str, *, answer: type[Answer], body: bytes | None = None, file: FormFile | None = None
    ) -> Answer:
        """Like `Client.call`."""
        exchange = self._exchange(posts=body is not None)
        return await self._send(exchange, method, path, content=body, file=file, answer=answer)

    async def _get(self, path: str, *, answer: type[Answer]) -> Answer:
        return await self._send(self._exchange(posts=False), "GET", path, content=None, answer=answer)

    async def _post(self, path: str, body: BaseModel, *, answer: type[Answer], deadline_s: float | None) -> Answer:
        exchange = self._exchange(deadline_s=deadline_s)
        return await self._send(exchange, "POST", path, content=body.model_dump_json(exclude_unset=True), answer=answer)

    async def _send(
        self,
        exchange: HTTPExchange,
        method: str,
        path: str,
        *,
        content: str | bytes | None,
        answer: type[Answer],
        file: FormFile | None = None,
    ) -> Answer:
        form: dict[str, Any] = (
            {} if file is None else {"files": {"file": (file.name, file.content)}, "data": file.fields}
        )
        while True:
            try:
                response = await self._http.request(method, path, content=content, **form, **exchange.attempt())
            except httpx2.RequestError as error:
                pause_s = exchange.pause_after_error(error)
            else:
                if response.is_success:
                    with exchange.understood():
                        return answer.model_validate_json(response.content)
                pause_s = exchange.pause_after(response)
            await asyncio.sleep(pause_s)

    @asynccontextmanager
    async def _opened(self, exchange: HTTPExchange, path: str, *, content: str) -> AsyncIterator[httpx2.Response]:
        """Send a request, retry as `exchange` decides, and yield the successful response with its body unread."""
        while True:
            try:
                request = self._http.build_request("POST", path, content=content, **exchange.attempt())
                response = await self._http.send(request, stream=True)
                if not response.is_success:
                    await response.aread()
            except httpx2.RequestError as error:
                await asyncio.sleep(exchange.pause_after_error(error))
                continue
            if response.is_success:
                async with aclosing(response):
                    yield response
                return
            await asyncio.sleep(exchange.pause_after(response))


@contextmanager
def _is_url(base_url: str) -> Iterator[None]:
    if not base_url.lower().startswith(("http://", "https://")):
        raise ServerUnavailable(f"{base_url} is not a URL of a server; give one such as {DEFAULT_URL}")
    try:
        yield
    except httpx2.InvalidURL as error:
        raise ServerUnavailable(f"{base_url} is not a URL: {error}") from error


def _without_stream(request: AskedJudgment) -> JudgeRequest:
    return JudgeRequest.model_validate(request).model_copy(update={"stream": False})


def _streamed(request: AskedJudgment) -> str:
    asked = JudgeRequest.model_validate(request).model_copy(update={"stream": True})
    return asked.model_dump_json(exclude_unset=True)


def _batch(requests: Sequence[AskedJudgment]) -> JudgmentBatchRequest:
    return JudgmentBatchRequest(
        requests=[_without_stream(request).model_dump(mode="json", exclude_unset=True) for request in requests]
    )


def _judgments(answer: JudgmentBatchAnswer) -> list[Judgment | Problem]:
    found = [item.judgment or item.error for item in sorted(answer.data, key=lambda item: item.index)]
    return [each for each in found if each is not None]


def _record_path(judgment_id: str) -> str:
    return f"{JUDGMENTS_PATH}/{quote(judgment_id, safe='')}"
