"""The mini worker: serves the embedded engine with the part of vLLM's HTTP API that a judge uses.

Responses match vLLM 0.32: fields, defaults and errors. Where a stop string cuts the text, `token_ids` keep the whole last
token. Parameters that the engine does not support are rejected by name, never ignored.
"""

from __future__ import annotations

import itertools
import time
import uuid
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.errors import EngineUnavailable, PromptTooLong
from tirjudge.http.protocol import shown
from tirjudge.types import MAX_NUMBER, Completion, Sampling, Text
from tirjudge_server.repetition import RepetitionDetection, cut_at_repetition
from tirjudge_web.body import parse_body, read_body
from tirjudge_web.body_budget import NUM_LARGEST, BodyBudget
from tirjudge_web.browser_check import AllowedHosts, BrowserCheck
from tirjudge_web.connection import HUNG_UP, while_connected
from tirjudge_web.errors import Refused
from tirjudge_web.keys import Keys
from tirjudge_web.openapi import BARE

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Maximum size of a request body."""

TokenId = Annotated[int, Field(ge=0)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: Text | None = None
    """Name of the model; None: the served model."""


Body = TypeVar("Body", bound=_Body)


class WorkerCompletionRequest(_Body):
    """A completion request: the fields of vLLM that this worker supports.

    Fields with one possible value are accepted because clients send them.
    """

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
    """0: return the log-probability of each sampled token. For alternative tokens, use `logprob_token_ids`."""
    return_tokens_as_token_ids: bool = False
    allowed_token_ids: list[TokenId] | None = Field(default=None, min_length=1)
    logprob_token_ids: list[TokenId] | None = Field(default=None, min_length=1)
    session_id: Text | None = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=1024)] | None = None
    repetition_detection: RepetitionDetection | None = None
    priority: int = 0
    """Without effect, as in a vLLM that was not started with `--scheduling-policy priority`."""
    add_special_tokens: bool = True
    """Without effect: the served models have no special tokens to add."""
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
    def sampling(self) -> Sampling:
        """The sampling parameters for the engine."""
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            allowed_token_ids=None if self.allowed_token_ids is None else tuple(self.allowed_token_ids),
            logprob_token_ids=tuple(self.logprob_token_ids or ()),
            logprobs=self.logprobs is not None,
        )


class TemplateMessage(BaseModel):
    """A message for the chat template, which decides what roles it has."""

    model_config = ConfigDict(extra="forbid")

    role: Text
    content: Text


class TokenizeRequest(_Body):
    """A tokenize request: a text, or a conversation for the chat template."""

    prompt: Text | None = None
    messages: list[TemplateMessage] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[Text, JsonValue] | None = None
    """Options of the chat template; None: no options."""
    add_special_tokens: bool = True
    """Without effect: the served models have no special tokens to add."""

    @model_validator(mode="after")
    def _has_prompt_or_messages(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either prompt or messages is needed")
        return self


class DetokenizeRequest(_Body):
    """A detokenize request."""

    tokens: list[TokenId]


def create_worker(
    engine: EmbeddedEngine,
    *,
    name: str,
    root: Path | None = None,
    api_key: str | None = None,
    hosts: AllowedHosts | None = None,
) -> FastAPI:
    """Create the worker's application. The caller closes the engine.

    Args:
        engine: generates the completions.
        name: name of the model, in requests and in `/v1/models`.
        root: folder of the weights, for `/v1/models`. Clients on this machine read the profile of the judge there.
        api_key: API key for all endpoints except `/health` and `/metrics`; None: no key is needed.
        hosts: host names by which callers may reach the worker; None: any.
    """
    app = FastAPI(title="tirjudge worker", openapi_url=None, **BARE)
    app.add_middleware(BodyBudget, max_bytes=NUM_LARGEST * MAX_BODY_BYTES)
    app.add_middleware(BrowserCheck, hosts=hosts, has_keys=lambda: api_key is not None)
    app.add_middleware(Keys, keys=() if api_key is None else (api_key,), open_paths=("/health", "/metrics"))
    for kind in (Refused, PromptTooLong, EngineUnavailable, ClientDisconnect, HTTPException):
        app.add_exception_handler(kind, _error_response)
    endpoints = WorkerEndpoints(engine, name=name, root=name if root is None else str(root))
    app.post("/v1/completions")(endpoints.completions)
    app.post("/tokenize")(endpoints.tokenize)
    app.post("/detokenize")(endpoints.detokenize)
    app.get("/tokenizer_info")(endpoints.tokenizer_info)
    app.get("/v1/models")(endpoints.models)
    app.api_route("/health", methods=["GET", "HEAD"])(endpoints.health)
    app.get("/metrics")(endpoints.metrics)
    return app


class WorkerEndpoints:
    """The endpoints of the worker.

    Args:
        engine: generates the completions.
        name: name of the model.
        root: name or folder of the weights.
    """

    def __init__(self, engine: EmbeddedEngine, *, name: str, root: str) -> None:
        self._engine = engine
        self._name = name
        self._root = root
        self._num_prompt_tokens = self._num_cached_tokens = self._num_generated_tokens = 0  # since the start

    async def completions(self, request: Request, x_session_id: Annotated[str | None, Header()] = None) -> Response:
        """Generate a completion. The generation is cancelled if the client disconnects."""
        body = await self._read(request, WorkerCompletionRequest)
        prompt_ids = self._engine.tokenizer.encode_now(body.prompt) if isinstance(body.prompt, str) else body.prompt
        self._check_ids(prompt_ids, body=body)
        request_id = body.request_id or uuid.uuid4().hex
        session = x_session_id or body.session_id or request_id
        work = self._engine.sample(prompt_ids, sampling=body.sampling, session=session, salt=body.cache_salt)
        completion = await while_connected(request.receive, work)
        if (detection := body.repetition_detection) is not None:
            completion = cut_at_repetition(completion, detection=detection, tokenizer=self._engine.tokenizer)
        self._num_prompt_tokens += len(prompt_ids)
        self._num_cached_tokens += completion.num_cached
        self._num_generated_tokens += len(completion.token_ids)
        answer = self._answer(completion, prompt_ids=prompt_ids, body=body)
        return JSONResponse({"id": f"cmpl-{request_id}", "model": self._name, **answer})

    async def tokenize(self, request: Request) -> dict[str, Any]:
        """Return the token ids of a text, or of messages rendered as ChatML."""
        body = await self._read(request, TokenizeRequest)
        text = body.prompt
        if text is None:
            text = self._rendered(body)
        ids = self._engine.tokenizer.encode_now(text)
        return {"count": len(ids), "max_model_len": self._engine.context_tokens, "tokens": ids, "token_strs": None}

    def _rendered(self, body: TokenizeRequest) -> str:
        """Render the messages of a request.

        Raises:
            HTTPException: 400, the template refuses the messages or the options.
        """
        messages = [message.model_dump() for message in body.messages or ()]
        try:
            template = self._engine.tokenizer.template.with_options(body.chat_template_kwargs or {})
            return template.render(messages, add_generation_prompt=body.add_generation_prompt)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error

    async def detokenize(self, request: Request) -> dict[str, Any]:
        """Return the text of token ids."""
        body = await self._read(request, DetokenizeRequest)
        return {"prompt": self._engine.tokenizer.decode(body.tokens)}

    async def tokenizer_info(self) -> dict[str, Any]:
        """Return the control tokens of the tokenizer, in vLLM's format."""
        tokenizer = self._engine.tokenizer
        tokens = sorted((await tokenizer.control_tokens()).tokens)
        added = {str(tokenizer.encode_now(token)[0]): {"content": token, "special": True} for token in tokens}
        return {
            "tokenizer_class": "tirjudge",
            "added_tokens_decoder": added,
            "chat_template": tokenizer.template.source,
        }

    async def models(self) -> dict[str, Any]:
        """Return the model and its context length, in vLLM's format."""
        model = {"id": self._name, "object": "model", "owned_by": "tirjudge", "root": self._root, "parent": None}
        return {"object": "list", "data": [{**model, "max_model_len": self._engine.context_tokens}]}

    async def health(self) -> Response:
        """Return 200, or 503 after the engine has ended."""
        return Response(status_code=200 if self._engine.ended is None else 503)

    async def metrics(self) -> PlainTextResponse:
        """The Prometheus series of a vLLM server that routers and dashboards read."""
        series = (
            ("num_requests_running", "gauge", self._engine.num_running),
            ("num_requests_waiting", "gauge", self._engine.num_waiting),
            ("prefix_cache_queries_total", "counter", self._num_prompt_tokens),
            ("prefix_cache_hits_total", "counter", self._num_cached_tokens),
            ("prompt_tokens_total", "counter", self._num_prompt_tokens),
            ("generation_tokens_total", "counter", self._num_generated_tokens),
            ("iteration_tokens_total_count", "counter", self._engine.num_steps),
        )
        lines = [
            f'# TYPE vllm:{name} {kind}\nvllm:{name}{{model_name="{self._name}"}} {value}\n'
            for name, kind, value in series
        ]
        return PlainTextResponse("".join(lines))

    async def _read(self, request: Request, kind: type[Body]) -> Body:
        """Read and parse the request body.

        Raises:
            Refused: the body is too large, not JSON, or invalid.
            HTTPException: 404, the request names a different model.
        """
        body = parse_body(await read_body(request, max_bytes=MAX_BODY_BYTES), kind)
        if body.model not in (None, self._name):
            message = f"The model {shown(body.model)} does not exist; this worker serves `{self._name}`."
            raise HTTPException(404, message)
        return body

    def _check_ids(self, prompt_ids: list[int], *, body: WorkerCompletionRequest) -> None:
        """Reject, like vLLM, a prompt that leaves less room than `max_tokens`, and ids outside the vocabulary.

        Raises:
            PromptTooLong: prompt and output do not fit the context.
            HTTPException: 400, the prompt is empty or an id is out of vocabulary.
        """
        context, vocab = self._engine.context_tokens, self._engine.model.config.vocab_size
        if len(prompt_ids) > context - body.max_tokens:
            raise PromptTooLong(
                f"You passed {len(prompt_ids)} input tokens and requested {body.max_tokens} output tokens. However, the "
                f"model's context length is only {context} tokens, resulting in a maximum input length of "
                f"{context - body.max_tokens} tokens. Please reduce the length of the input prompt."
            )
        if not prompt_ids:
            raise HTTPException(400, "The prompt is empty.")
        largest = max(*prompt_ids, *(body.allowed_token_ids or ()), *(body.logprob_token_ids or ()), 0)
        if largest >= vocab:
            raise HTTPException(400, f"Token id {largest} is out of vocabulary: the model has {vocab}.")

    def _answer(
        self, completion: Completion, *, prompt_ids: list[int], body: WorkerCompletionRequest
    ) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": self._visible_text(completion, body=body),
            "logprobs": None if body.logprobs is None else self._logprobs(completion, body=body),
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

    def _visible_text(self, completion: Completion, *, body: WorkerCompletionRequest) -> str:
        """The text as vLLM returns it. Options of the request decide whether it has the stop string and end-of-turn token."""
        if completion.stop is not None:
            return completion.text if body.include_stop_str_in_output else completion.text.removesuffix(completion.stop)
        last_id = completion.token_ids[-1]
        if last_id in self._engine.eos_token_ids and body.include_stop_str_in_output and not body.skip_special_tokens:
            return completion.text + self._engine.tokenizer.decode([last_id])
        return completion.text

    def _logprobs(self, completion: Completion, *, body: WorkerCompletionRequest) -> dict[str, Any]:
        def name_of(token_id: int) -> str:
            return (
                f"token_id:{token_id}" if body.return_tokens_as_token_ids else self._engine.tokenizer.decode([token_id])
            )

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


def _error_response(_request: Request, error: Exception) -> Response:
    """An error in vLLM's format: {"error": {"message", "type", "param", "code"}}."""
    status, message, param = 503, str(error), None
    match error:
        case ClientDisconnect():
            return Response(status_code=HUNG_UP)
        case Refused():
            status, message, param = error.status, error.problem.message, error.problem.param
        case PromptTooLong():
            status, param = 400, "input_tokens"
        case HTTPException():
            status, message = error.status_code, str(error.detail)
    kind = _ERROR_TYPES.get(status, HTTPStatus(status).phrase)
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


_ERROR_TYPES = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}
