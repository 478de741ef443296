"""The clients of a server, `Client` and `AsyncClient`: requests go out, judgments come back, typed.

    with Client("http://127.0.0.1:8400") as client:
        request = JudgeRequest(mode=Mode.PAIRWISE, prompt="Which is longer?", responses=["one", "three"])
        print(client.judge(request).verdict.best)

A busy server is asked again when it said to, and a connection that breaks is made anew: every request carries a key by
which the server knows the second attempt for the first, and judges once. A refused connection is retried for
`connect_retry_s` (2 s by default); then the request fails with `ServerNotListening`, a `ServerUnavailable`.
The two have the same methods; one `Client` may be used by many threads, one `AsyncClient` by many tasks of one event loop.

Every method takes `deadline_s`, the seconds in which the answer must be there: the server forces verdicts from what there
is when they are nearly up, and `DeadlineExceeded` is raised where there is nothing. All raise `RequestRefused` where the
request is at fault, and `ServerUnavailable` where the server is.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel

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

__all__ = ["AsyncClient", "Client", "RequestRefused", "ServerUnavailable"]

Answer = TypeVar("Answer", bound=BaseModel)


class _Connection:
    """What the two have in common: where the server is, and how long to try."""

    _http_class: Any

    def __init__(
        self,
        base_url: str,
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
    """Talks to one server, and waits for it; use it as `with`.

    Args:
        base_url: such as `http://127.0.0.1:8400`.
        api_key: one of the server's keys; None: it asks for none.
        timeout_s: longest wait for an answer, the queue included.
        max_attempts: how often one request is sent at most.
        max_wait_s: longest pause between two attempts, whatever the server asks for.
        connect_retry_s: seconds during which a refused connection is retried, because a server may be restarting.
            0: fail at the first refusal.
        transport: another way to the server than a socket.

    Raises:
        ServerUnavailable: `base_url` is no URL.
    """

    _http_class = httpx2.Client
    _http: httpx2.Client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def judge(self, request: JudgeRequest, *, deadline_s: float | None = None) -> Judgment:
        """One judgment."""
        return self._post(JUDGE_PATH, _whole(request), answer=Judgment, deadline_s=deadline_s)

    def stream(self, request: JudgeRequest, *, deadline_s: float | None = None) -> Iterator[Event]:
        """The events of one judgment as they happen; the last one is the `Judgment`.

        A stream that breaks off is not begun anew: what was seen of it cannot be taken back.
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
        self, requests: Sequence[JudgeRequest], *, deadline_s: float | None = None
    ) -> list[Judgment | Problem]:
        """Many judgments, in order; where one could not be made, what is wrong with it."""
        answer = self._post(BATCH_PATH, _batch(requests), answer=JudgmentBatchAnswer, deadline_s=deadline_s)
        return _judgments(answer)

    def reward(self, request: RewardRequest, *, deadline_s: float | None = None) -> RewardAnswer:
        """Rewards for the responses of one prompt or of many; a response without one says why."""
        return self._post(REWARD_PATH, request, answer=RewardAnswer, deadline_s=deadline_s)

    def rerank(self, request: RerankRequest, *, deadline_s: float | None = None) -> RerankAnswer:
        """The responses to one prompt, the best first."""
        return self._post(RERANK_PATH, request, answer=RerankAnswer, deadline_s=deadline_s)

    def judgment(self, judgment_id: str) -> JudgmentRecord:
        """What the server has on record."""
        return self._get(_record_path(judgment_id), answer=JudgmentRecord)

    def models(self) -> list[ModelCard]:
        """The judges that the server offers, one at least."""
        return self._get(MODELS_PATH, answer=ModelList).data

    def _get(self, path: str, *, answer: type[Answer]) -> Answer:
        return self._asked(self._exchange(posts=False), "GET", path, content=None, answer=answer)

    def _post(self, path: str, body: BaseModel, *, answer: type[Answer], deadline_s: float | None) -> Answer:
        exchange = self._exchange(deadline_s=deadline_s)
        return self._asked(exchange, "POST", path, content=body.model_dump_json(exclude_unset=True), answer=answer)

    def _asked(
        self, exchange: HTTPExchange, method: str, path: str, *, content: str | None, answer: type[Answer]
    ) -> Answer:
        """The whole answer of a success; asks again while that may help."""
        while True:
            try:
                response = self._http.request(method, path, content=content, **exchange.attempt())
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
        """A success whose body is still to come; asks again while that may help."""
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
    """The same in coroutines; use it as `async with`.

    Args:
        base_url, api_key, timeout_s, max_attempts, max_wait_s, connect_retry_s: as for `Client`.
        transport: another way to the server than a socket.

    Raises:
        ServerUnavailable: `base_url` is no URL.
    """

    _http_class = httpx2.AsyncClient
    _http: httpx2.AsyncClient

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def judge(self, request: JudgeRequest, *, deadline_s: float | None = None) -> Judgment:
        """One judgment."""
        return await self._post(JUDGE_PATH, _whole(request), answer=Judgment, deadline_s=deadline_s)

    async def stream(self, request: JudgeRequest, *, deadline_s: float | None = None) -> AsyncIterator[Event]:
        """The events of one judgment as they happen; the last one is the `Judgment`.

        A stream that breaks off is not begun anew: what was seen of it cannot be taken back.
        """
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
        self, requests: Sequence[JudgeRequest], *, deadline_s: float | None = None
    ) -> list[Judgment | Problem]:
        """Many judgments, in order; where one could not be made, what is wrong with it."""
        answer = await self._post(BATCH_PATH, _batch(requests), answer=JudgmentBatchAnswer, deadline_s=deadline_s)
        return _judgments(answer)

    async def reward(self, request: RewardRequest, *, deadline_s: float | None = None) -> RewardAnswer:
        """Rewards for the responses of one prompt or of many; a response without one says why."""
        return await self._post(REWARD_PATH, request, answer=RewardAnswer, deadline_s=deadline_s)

    async def rerank(self, request: RerankRequest, *, deadline_s: float | None = None) -> RerankAnswer:
        """The responses to one prompt, the best first."""
        return await self._post(RERANK_PATH, request, answer=RerankAnswer, deadline_s=deadline_s)

    async def judgment(self, judgment_id: str) -> JudgmentRecord:
        """What the server has on record."""
        return await self._get(_record_path(judgment_id), answer=JudgmentRecord)

    async def models(self) -> list[ModelCard]:
        """The judges that the server offers, one at least."""
        return (await self._get(MODELS_PATH, answer=ModelList)).data

    async def _get(self, path: str, *, answer: type[Answer]) -> Answer:
        return await self._asked(self._exchange(posts=False), "GET", path, content=None, answer=answer)

    async def _post(self, path: str, body: BaseModel, *, answer: type[Answer], deadline_s: float | None) -> Answer:
        exchange = self._exchange(deadline_s=deadline_s)
        return await self._asked(
            exchange, "POST", path, content=body.model_dump_json(exclude_unset=True), answer=answer
        )

    async def _asked(
        self, exchange: HTTPExchange, method: str, path: str, *, content: str | None, answer: type[Answer]
    ) -> Answer:
        """The whole answer of a success; asks again while that may help."""
        while True:
            try:
                response = await self._http.request(method, path, content=content, **exchange.attempt())
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
        """A success whose body is still to come; asks again while that may help."""
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
    try:
        yield
    except httpx2.InvalidURL as error:
        raise ServerUnavailable(f"{base_url} is no URL: {error}") from error


def _whole(request: JudgeRequest) -> JudgeRequest:
    return request.model_copy(update={"stream": False})


def _streamed(request: JudgeRequest) -> str:
    return request.model_copy(update={"stream": True}).model_dump_json(exclude_unset=True)


def _batch(requests: Sequence[JudgeRequest]) -> JudgmentBatchRequest:
    return JudgmentBatchRequest(
        requests=[_whole(request).model_dump(mode="json", exclude_unset=True) for request in requests]
    )


def _judgments(answer: JudgmentBatchAnswer) -> list[Judgment | Problem]:
    found = [item.judgment or item.error for item in sorted(answer.data, key=lambda item: item.index)]
    return [each for each in found if each is not None]


def _record_path(judgment_id: str) -> str:
    return f"{JUDGMENTS_PATH}/{quote(judgment_id, safe='')}"
