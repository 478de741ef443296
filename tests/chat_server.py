"""A chat endpoint on a real socket, with a scripted model. Its responses and errors match those of real endpoints."""

from __future__ import annotations

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
        busy: responses to the first requests: status, headers, body.
        refuses: returns the error for a request.
        chances: token -> probability, returned as `top_logprobs` where one of these tokens is written; None: the endpoint
            ignores requests for log-probabilities.
        extra: additional fields of every message, such as `reasoning_content`.
        choice: additional fields of every choice.
        names_stop: whether `stop_reason` is the stop string, as in vLLM.
        honors_stop: whether stop strings end a completion.
        usage: token counts of every response; None: responses have none.

    Attributes:
        url: URL of the endpoint, up to `/v1`.
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
    ) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self._engine = ScriptedEngine(script)
        self._busy = list(busy)
        self._refuses = refuses
        self._chances = chances
        self._extra = extra or {}
        self._choice = choice or {}
        self._names_stop = names_stop
        self._honors_stop = honors_stop
        self._usage = usage

    async def complete(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        if self._busy:
            status, headers, body = self._busy.pop(0)
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
    app = Starlette(routes=[Route("/v1/chat/completions", chat.complete, methods=["POST"])])
    with serve_in_thread(app) as url:
        chat.url = f"{url}/v1"
        yield chat
