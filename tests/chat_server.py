"""A chat endpoint on a real socket, with a scripted model. Its responses and errors match those of real endpoints."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.servers import serve_in_thread
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.types import Completion, Sampling

MODEL = "gpt-scripted"

Refuses = Callable[[Mapping[str, Any]], tuple[int, Any] | None]
"""Returns the status and body of the error for a request; None: the request is accepted."""


class ChatServer:
    """A running endpoint.

    Args:
        script: what the model writes, as for `ScriptedEngine`.
        busy: responses to the first requests: status, headers, body (JSON, or bytes that are sent as they are).
        refuses: returns the error for a request.
        chances: token -> probability, returned as `top_logprobs` where one of these tokens is written; None: the endpoint
            ignores requests for log-probabilities.
        extra: additional fields of every message, such as `reasoning_content`.
        choice: additional fields of every choice.
        names_stop: whether `stop_reason` is the stop string, as in vLLM.
        honors_stop: whether stop strings end a completion.
        usage: token counts of every response; None: responses have none.
        models: names in `GET /v1/models`; None: the endpoint does not have it.
        latency_s: seconds that every response takes.

    Attributes:
        url: URL of the endpoint, up to `/v1`.
        num_running: number of requests that are being answered.
        most_running: the highest number of requests that were answered at the same time.
        bodies: bodies of all requests, including refused ones.
        headers: headers of all requests.
    """

    def __init__(
        self,
        script: Iterable[str] | Callable[[str], str],
        *,
        busy: Iterable[tuple[int, Mapping[str, str], Any]] = (),
        refuses: Refuses = lambda body: None,
        chances: Mapping[str, float] | None = None,
        extra: Mapping[str, Any] | None = None,
        choice: Mapping[str, Any] | None = None,
        names_stop: bool = False,
        honors_stop: bool = True,
        usage: Mapping[str, Any] | None = None,
        models: Iterable[str] | None = None,
        latency_s: float = 0.0,
    ) -> None:
        self.url = ""
        self.num_running = self.most_running = 0
        self._models = None if models is None else list(models)
        self._latency_s = latency_s
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self._engine = ScriptedEngine(script)
        self.busy = list(busy)
        self._refuses = refuses
        self._chances = chances
        self._extra = extra or {}
        self._choice = choice or {}
        self._names_stop = names_stop
        self._honors_stop = honors_stop
        self._usage = usage

    async def list_models(self, request: Request) -> Response:
        if self._models is None:
            return JSONResponse({"detail": "Not Found"}, status_code=404)
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self._models]})

    async def complete(self, request: Request) -> Response:
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            await asyncio.sleep(self._latency_s)
            return await self._complete(request)
        finally:
            self.num_running -= 1

    async def _complete(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        if self.busy:
            status, headers, body = self.busy.pop(0)
            if isinstance(body, bytes):
                return Response(body, status_code=status, headers=dict(headers))
            return JSONResponse(body, status_code=status, headers=dict(headers))
        body = await request.json()
        self.bodies.append(body)
        refused = self._refuses(body)
        if refused is not None:
            return JSONResponse(refused[1], status_code=refused[0])
        completion = await self._generate(body)
        text = completion.text.removesuffix(completion.stop or "")
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, **self._extra},
            "finish_reason": completion.finish_reason,
            "logprobs": self._logprobs(text) if body.get("logprobs") and self._chances is not None else None,
            **({"stop_reason": completion.stop} if self._names_stop else {}),
            **self._choice,
        }
        answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
        return JSONResponse(answer if self._usage is None else {**answer, "usage": self._usage})

    async def _generate(self, body: Mapping[str, Any]) -> Completion:
        conversation = "\n".join(f"{message['role']}: {message['content']}" for message in body["messages"])
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 1000
        sampling = Sampling(max_tokens=4 * limit, stop=tuple(body.get("stop", ())) if self._honors_stop else ())
        return await self._engine.generate(list(conversation.encode()), sampling=sampling, session="chat")

    def _logprobs(self, text: str) -> dict[str, Any]:
        chances = self._chances or {}
        content = []
        for token in re.findall(r"\w+|\W", text):
            likely = chances if token in chances else {token: 1.0}
            top = [_logprob(each, p) for each, p in likely.items()]
            content.append({**_logprob(token, likely[token]), "top_logprobs": top})
        return {"content": content, "refusal": None}


def _logprob(token: str, p: float) -> dict[str, Any]:
    return {"token": token, "logprob": math.log(p), "bytes": list(token.encode())}


@contextmanager
def serving_chat(script: Iterable[str] | Callable[[str], str], **options: Any) -> Iterator[ChatServer]:
    """Run a `ChatServer` in a thread; the arguments are those of `ChatServer`."""
    chat = ChatServer(script, **options)
    routes = [
        Route("/v1/chat/completions", chat.complete, methods=["POST"]),
        Route("/v1/models", chat.list_models, methods=["GET"]),
    ]
    app = Starlette(routes=routes)
    with serve_in_thread(app) as url:
        chat.url = f"{url}/v1"
        yield chat
