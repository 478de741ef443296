"""The mini worker: the embedded engine behind the part of vLLM's HTTP interface that a judge uses.

It answers as vLLM 0.32 does: the same fields, defaults and errors, and `token_ids` that keep the whole last token where
the text is cut at a stop string. What the engine cannot do is refused by name, never ignored.
"""

from __future__ import annotations

import itertools
import time
import uuid
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.tokenization import render_chatml
from tirjudge.errors import EngineUnavailable, PromptTooLong
from tirjudge.http.protocol import shown
from tirjudge.types import MAX_NUMBER, ChatMessage, Completion, Sampling, Text
from tirjudge_server.repetition import RepetitionDetection, cut_at_repetition
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.body_budget import NUM_LARGEST, BodyBudget
from tirjudge_web.browser_check import AllowedHosts, BrowserCheck
from tirjudge_web.connection import HUNG_UP, while_connected
from tirjudge_web.errors import Refused
from tirjudge_web.keys import Keys
from tirjudge_web.openapi import BARE

MAX_BODY_BYTES = 64 * 1024 * 1024
"""The largest request that is read."""

TokenId = Annotated[int, Field(ge=0)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: Text | None = None
    """None: the one that is served."""


Body = TypeVar("Body", bound=_Body)


class WorkerCompletionRequest(_Body):
    """The fields of vLLM's that this worker honours; those of one possible value are here because clients send them."""

    prompt: Text | list[TokenId]
    max_tokens: int = Field(default=16, ge=1)
    temperature: float = Field(default=1.0, ge=0.0, le=MAX_NUMBER)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Text | list[Text] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    return_token_ids: bool = False
    logprobs: Literal[0] | None = None
    """0: the log-probability of each sampled token; alternatives are given by `logprob_token_ids` alone."""
    return_tokens_as_token_ids: bool = False
    allowed_token_ids: list[TokenId] | None = Field(default=None, min_length=1)
    logprob_token_ids: list[TokenId] | None = Field(default=None, min_length=1)
    session_id: Text | None = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=1024)] | None = None
    repetition_detection: RepetitionDetection | None = None
    priority: int = 0
    """Without effect, as in a vLLM that was not started with `--scheduling-policy priority`."""
    add_special_tokens: bool = True
    """Without effect: the models served here have none to add."""
    user: Text | None = None
    request_id: Text | None = None

    n: Literal[1] = 1
    stream: Literal[False] = False
    echo: Literal[False] = False
    top_k: Literal[0, -1] = 0
    min_p: Literal[0] = 0
    repetition_penalty: Literal[1] = 1
    presence_penalty: Literal[0] = 0
    frequency_penalty: Literal[0] = 0
    spaces_between_special_tokens: bool = True

    @model_validator(mode="after")
    def _label_logprobs_are_for_one_token(self) -> WorkerCompletionRequest:
        if self.logprob_token_ids and (self.logprobs is None or self.max_tokens != 1):
            raise ValueError("logprob_token_ids needs logprobs=0 and max_tokens=1")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class TokenizeRequest(_Body):
    """A piece of text, or a conversation that the chat template renders."""

    prompt: Text | None = None
    messages: list[ChatMessage] | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool = True
    """Without effect: the models served here have none to add."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either prompt or messages is needed")
        return self


class DetokenizeRequest(_Body):
    tokens: list[TokenId]


@dataclass(slots=True, kw_only=True)
class _Counters:
    """What `/metrics` counts since the start."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0

    def add(self, completion: Completion, *, num_prompt: int) -> None:
        self.prompt_tokens += num_prompt
        self.cached_tokens += completion.num_cached
        self.generated_tokens += len(completion.token_ids)


def create_worker(
    engine: EmbeddedEngine, *, name: str, api_key: str | None = None, hosts: AllowedHosts | None = None
) -> FastAPI:
    """The worker's application. Closing the engine is left to whoever made it.

    Args:
        engine: generates.
        name: of the model, in requests and in `/v1/models`.
        api_key: needed for everything but `/health` and `/metrics`; None: nothing is.
        hosts: names by which callers reach it; None: any.
    """
    app = FastAPI(title="tirjudge worker", openapi_url=None, **BARE)
    counters = _Counters()
    app.add_middleware(BodyBudget, max_bytes=NUM_LARGEST * MAX_BODY_BYTES)
    app.add_middleware(BrowserCheck, hosts=hosts, has_keys=lambda: api_key is not None)
    app.add_middleware(Keys, keys=() if api_key is None else (api_key,), open_paths=("/health", "/metrics"))
    _add_error_handlers(app)

    def check_model(given: str | None) -> None:
        if given not in (None, name):
            raise HTTPException(404, f"The model {shown(given)} does not exist; this worker serves `{name}`.")

    @app.post("/v1/completions")
    async def completions(request: Request, x_session_id: Annotated[str | None, Header()] = None) -> Response:
        body = await _read(request, WorkerCompletionRequest)
        check_model(body.model)
        prompt_ids = engine.tokenizer.encode_now(body.prompt) if isinstance(body.prompt, str) else body.prompt
        _check_ids(prompt_ids, body=body, engine=engine)
        request_id = body.request_id or uuid.uuid4().hex
        session = x_session_id or body.session_id or request_id
        work = engine.sample(prompt_ids, sampling=_sampling(body), session=session, salt=body.cache_salt)
        completion = await while_connected(request.receive, work)
        if body.repetition_detection is not None:
            completion = cut_at_repetition(completion, detection=body.repetition_detection, tokenizer=engine.tokenizer)
        counters.add(completion, num_prompt=len(prompt_ids))
        answer = _completion_answer(completion, prompt_ids=prompt_ids, body=body, engine=engine)
        return JSONResponse({"id": f"cmpl-{request_id}", "model": name, **answer})

    @app.post("/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        body = await _read(request, TokenizeRequest)
        check_model(body.model)
        text = body.prompt
        if text is None:
            messages = [message.model_dump() for message in body.messages or ()]
            text = render_chatml(messages, add_generation_prompt=body.add_generation_prompt)
        ids = engine.tokenizer.encode_now(text)
        return {"count": len(ids), "max_model_len": engine.context_tokens, "tokens": ids, "token_strs": None}

    @app.post("/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        body = await _read(request, DetokenizeRequest)
        check_model(body.model)
        return {"prompt": engine.tokenizer.decode(body.tokens)}

    @app.get("/tokenizer_info")
    async def tokenizer_info() -> dict[str, Any]:
        tokens = sorted((await engine.tokenizer.control_tokens()).tokens)
        added = {str(engine.tokenizer.encode_now(token)[0]): {"content": token, "special": True} for token in tokens}
        return {"tokenizer_class": "tirjudge", "added_tokens_decoder": added}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = {"id": name, "object": "model", "owned_by": "tirjudge", "root": name, "parent": None}
        return {"object": "list", "data": [{**model, "max_model_len": engine.context_tokens}]}

    @app.get("/health")
    @app.head("/health")
    async def health() -> Response:
        return Response(status_code=200 if engine.ended is None else 503)

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(_metrics_text(engine, counters=counters, name=name))

    return app


async def _read(request: Request, model: type[Body]) -> Body:
    """The request in a body.

    Raises:
        Refused: it is too large, not JSON, or not such a request.
    """
    return parse_body(await read_body(request, max_bytes=MAX_BODY_BYTES), model)


def _check_ids(prompt_ids: list[int], *, body: WorkerCompletionRequest, engine: EmbeddedEngine) -> None:
    """As vLLM, refuse a prompt that leaves less room than is asked for, and ids that the model does not have."""
    context, vocab = engine.context_tokens, engine.model.config.vocab_size
    if len(prompt_ids) > context - body.max_tokens:
        raise PromptTooLong(
            f"You passed {len(prompt_ids)} input tokens and requested {body.max_tokens} output tokens. However, the "
            f"model's context length is only {context} tokens, resulting in a maximum input length of "
            f"{context - body.max_tokens} tokens. Please reduce the length of the input prompt."
        )
    if not prompt_ids:
        raise HTTPException(400, "The prompt is empty.")
    for ids in (prompt_ids, body.allowed_token_ids or (), body.logprob_token_ids or ()):
        if max(ids, default=0) >= vocab:
            raise HTTPException(400, f"Token id {max(ids)} is out of vocabulary: the model has {vocab}.")


def _sampling(body: WorkerCompletionRequest) -> Sampling:
    return Sampling(
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        stop=body.stops,
        allowed_token_ids=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        logprob_token_ids=tuple(body.logprob_token_ids or ()),
        logprobs=body.logprobs is not None,
    )


def _completion_answer(
    completion: Completion, *, prompt_ids: list[int], body: WorkerCompletionRequest, engine: EmbeddedEngine
) -> dict[str, Any]:
    choice = {
        "index": 0,
        "text": _visible_text(completion, body=body, engine=engine),
        "logprobs": None if body.logprobs is None else _logprobs(completion, body=body, engine=engine),
        "finish_reason": completion.finish_reason,
        "stop_reason": "repetition_detected" if completion.finish_reason == "repetition" else completion.stop,
        "token_ids": list(completion.token_ids) if body.return_token_ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": prompt_ids if body.return_token_ids else None,
    }
    usage = {
        "prompt_tokens": len(prompt_ids),
        "completion_tokens": len(completion.token_ids),
        "total_tokens": len(prompt_ids) + len(completion.token_ids),
        "prompt_tokens_details": {"cached_tokens": completion.num_cached},
    }
    return {"object": "text_completion", "created": int(time.time()), "choices": [choice], "usage": usage}


def _visible_text(completion: Completion, *, body: WorkerCompletionRequest, engine: EmbeddedEngine) -> str:
    """The text as vLLM shows it: with the stop string or without, and with an end-of-turn token if nothing hides it."""
    if completion.stop is not None:
        return completion.text if body.include_stop_str_in_output else completion.text.removesuffix(completion.stop)
    last_id = completion.token_ids[-1]
    if last_id in engine.eos_token_ids and body.include_stop_str_in_output and not body.skip_special_tokens:
        return completion.text + engine.tokenizer.decode([last_id])
    return completion.text


def _logprobs(completion: Completion, *, body: WorkerCompletionRequest, engine: EmbeddedEngine) -> dict[str, Any]:
    def name_of(token_id: int) -> str:
        return f"token_id:{token_id}" if body.return_tokens_as_token_ids else engine.tokenizer.decode([token_id])

    tokens = [name_of(i) for i in completion.token_ids]
    sampled = [dict([pair]) for pair in zip(tokens, completion.logprobs, strict=True)]
    sampled[0] |= {name_of(i): logprob for i, logprob in completion.token_logprobs.items()}
    offsets = [0, *itertools.accumulate(len(token) for token in tokens)]
    return {
        "tokens": tokens,
        "token_logprobs": list(completion.logprobs),
        "top_logprobs": sampled,
        "text_offset": offsets[:-1],
    }


def _metrics_text(engine: EmbeddedEngine, *, counters: _Counters, name: str) -> str:
    """The Prometheus series that routers and dashboards read of a vLLM server."""
    series = (
        ("num_requests_running", "gauge", engine.num_running),
        ("num_requests_waiting", "gauge", engine.num_waiting),
        ("prefix_cache_queries_total", "counter", counters.prompt_tokens),
        ("prefix_cache_hits_total", "counter", counters.cached_tokens),
        ("prompt_tokens_total", "counter", counters.prompt_tokens),
        ("generation_tokens_total", "counter", counters.generated_tokens),
        ("iteration_tokens_total_count", "counter", engine.num_steps),
    )
    lines = [
        f'# TYPE vllm:{series_name} {kind}\nvllm:{series_name}{{model_name="{name}"}} {value}'
        for series_name, kind, value in series
    ]
    return "\n".join(lines) + "\n"


def _add_error_handlers(app: FastAPI) -> None:
    """Every error in vLLM's shape: {"error": {"message", "type", "param", "code"}}."""

    @app.exception_handler(Refused)
    async def malformed(_request: Request, error: Refused) -> JSONResponse:
        return _error(error.status, error.problem.message, param=error.problem.param)

    @app.exception_handler(PromptTooLong)
    async def too_long(_request: Request, error: PromptTooLong) -> JSONResponse:
        return _error(400, str(error), param="input_tokens")

    @app.exception_handler(EngineUnavailable)
    async def unavailable(_request: Request, error: EngineUnavailable) -> JSONResponse:
        return _error(503, str(error))

    @app.exception_handler(ClientDisconnect)
    async def hung_up(_request: Request, _error: ClientDisconnect) -> Response:
        return Response(status_code=HUNG_UP)

    @app.exception_handler(HTTPException)
    async def refused(_request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, str(error.detail))


_ERROR_TYPES = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}


def _error(status: int, message: str, *, param: str | None = None) -> JSONResponse:
    kind = _ERROR_TYPES.get(status, HTTPStatus(status).phrase)
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)
