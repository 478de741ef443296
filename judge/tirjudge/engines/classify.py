"""The engine `classify:URL`: a scalar reward model behind an HTTP server, which is found out at the start.

    server                       request                    who renders the chat template
    vLLM                         POST /classify             vLLM
    vLLM, scores of each token   POST /pooling              vLLM; the score of the last token counts
    SGLang                       POST /classify             tirjudge, with the files in the folder after `#`
    text-embeddings-inference    POST /predict              tirjudge, likewise

All of them return the raw output of the model. None of them shortens a text: a text beyond the context is an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tirjudge.control_tokens import ControlTokens
from tirjudge.engines.base import RawScore
from tirjudge.engines.scalar import MAX_CONCURRENCY, Conversation, ReadText, RewardTemplate, ScalarEngine, one_number
from tirjudge.engines.server_client import ServerClient, reading_answer
from tirjudge.engines.vllm import RemoteTokenizer
from tirjudge.errors import CheckpointError, PromptTooLong, RequestNotShown, TurnRefused
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.profile import Profile
from tirjudge.template_options import TemplateOptions

TIMEOUT_S = 600.0
"""Default maximum time to wait for one score, in seconds."""

PROBE: Conversation = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
"""Conversation that is scored at the start, so that an unsuitable model is found there."""


class RewardServer(Protocol):
    """A server with a scalar reward model. Each kind has its own requests."""

    async def control_tokens(self, texts: Sequence[str]) -> ControlTokens:
        """As in `ScalarEngine`."""
        ...

    async def read_text(self, messages: Conversation) -> ReadText | None:
        """As in `ScalarEngine`."""
        ...

    async def activated_score(self, messages: Conversation) -> float | None:
        """As in `ScalarEngine`."""
        ...

    async def score(self, messages: Conversation) -> RawScore:
        """As in `ScalarEngine.score_conversation`."""
        ...


class ClassifyEngine(ScalarEngine):
    """A scalar reward model behind a server.

    Args:
        wire: the requests of the server.
        max_concurrency: as in `ScalarEngine`.
    """

    def __init__(self, wire: RewardServer, *, max_concurrency: int = MAX_CONCURRENCY) -> None:
        super().__init__(max_concurrency=max_concurrency)
        self._wire = wire

    async def control_tokens(self, texts: Sequence[str]) -> ControlTokens:
        return await self._wire.control_tokens(texts)

    async def read_text(self, messages: Conversation) -> ReadText | None:
        return await self._wire.read_text(messages)

    async def activated_score(self, messages: Conversation) -> float | None:
        return await self._wire.activated_score(messages)

    async def score_conversation(self, messages: Conversation) -> RawScore:
        return await self._wire.score(messages)


class VLLM:
    """vLLM with `--runner pooling`.

    Args:
        server: the server.
        model: name of the model.
        kwargs: options of the chat template. None: its own defaults.
    """

    def __init__(self, server: ServerClient, *, model: str, kwargs: TemplateOptions | None) -> None:
        self._server = server
        self._tokenizer = RemoteTokenizer(server)
        self._body: dict[str, Any] = {"model": model, "use_activation": False, "add_special_tokens": False}
        self._body |= {"chat_template_kwargs": dict(kwargs)} if kwargs else {}
        self._route = "/classify"

    async def find_route(self) -> None:
        """Find the route of the served model, with a first score.

        Raises:
            CheckpointError: the server has no scalar reward model.
        """
        said = ""
        for self._route in ("/classify", "/pooling"):
            try:
                answer = await self._server.post(self._route, self._body | {"messages": PROBE})
            except CheckpointError as error:
                said = str(error)
            else:
                self._read(answer)
                return
        raise CheckpointError(
            f"{self._server.url}: neither /classify nor /pooling; start vLLM with --runner pooling and a reward model "
            f"({said})"
        )

    async def control_tokens(self, texts: Sequence[str]) -> ControlTokens:
        return (await self._tokenizer.control_tokens(texts)).served

    async def read_text(self, messages: Conversation) -> ReadText | None:
        url = f"{self._server.url}/tokenize"
        kwargs = self._body.get("chat_template_kwargs", {})
        chat = {"messages": messages, "add_generation_prompt": False, "chat_template_kwargs": kwargs}
        text, plain = {"prompt": "a"}, {"prompt": "a", "add_special_tokens": False}
        try:
            answers = [await self._server.post("/tokenize", body) for body in (chat, text, plain)]
        except (CheckpointError, TurnRefused):  # a gateway without /tokenize
            return None
        with reading_answer(url):
            ids, added, bare = (answer["tokens"] for answer in answers)
            return ReadText(token_ids=ids, bos_id=added[0] if added[:1] != bare[:1] else None)

    async def activated_score(self, messages: Conversation) -> float:
        body = self._body | {"messages": messages, "use_activation": True}
        return self._read(await self._server.post(self._route, body)).value

    async def score(self, messages: Conversation) -> RawScore:
        """
        Raises:
            RequestNotShown: the server refuses this conversation, but not `PROBE`.
        """
        try:
            answer = await self._server.post(self._route, self._body | {"messages": messages})
        except TurnRefused as error:
            await self._server.post(self._route, self._body | {"messages": PROBE})
            raise RequestNotShown(f"prompt: the chat template refuses the conversation: {error}") from error
        return self._read(answer)

    def _read(self, answer: Any) -> RawScore:
        url = f"{self._server.url}{self._route}"
        with reading_answer(url):
            data = answer["data"][0]
            values = data["probs"] if self._route == "/classify" else _of_last_token(data["data"])
            num_tokens = int(answer["usage"]["prompt_tokens"])
        return RawScore(value=one_number(values, origin=url), num_tokens=num_tokens)


def _of_last_token(values: list[Any]) -> list[Any]:
    """Return the outputs for the last token, of the outputs for each token or for the whole text."""
    return values[-1] if values and isinstance(values[-1], list) else values


class OwnTemplate:
    """Part of the servers that do not render chat templates.

    Args:
        server: the server.
        template: chat template and tokenizer of the model.
    """

    def __init__(self, server: ServerClient, *, template: RewardTemplate) -> None:
        self._server, self._template = server, template

    async def control_tokens(self, texts: Sequence[str]) -> ControlTokens:
        return self._template.control_tokens

    async def read_text(self, messages: Conversation) -> ReadText:
        return self._template.read_text(messages)

    async def activated_score(self, messages: Conversation) -> float | None:
        return None


class SGLang(OwnTemplate):
    """SGLang with `--is-embedding`.

    Args:
        server: the server.
        template: chat template and tokenizer of the model.
        max_tokens: maximum number of tokens of a text.
    """

    def __init__(self, server: ServerClient, *, template: RewardTemplate, max_tokens: int) -> None:
        super().__init__(server, template=template)
        self._max_tokens = max_tokens

    async def score(self, messages: Conversation) -> RawScore:
        url = f"{self._server.url}/classify"
        ids = self._template.ids(messages)
        if len(ids) > self._max_tokens:
            raise PromptTooLong(f"{url}: the text has {len(ids)} tokens; the model accepts {self._max_tokens}")
        answer = await self._server.post("/classify", {"input_ids": ids})
        with reading_answer(url, server="SGLang"):
            values = (answer[0] if isinstance(answer, list) else answer)["embedding"]
        return RawScore(value=one_number(values, origin=url), num_tokens=len(ids))


class TextEmbeddingsInference(OwnTemplate):
    """text-embeddings-inference."""

    async def score(self, messages: Conversation) -> RawScore:
        url = f"{self._server.url}/predict"
        body = {"inputs": self._template.text(messages), "raw_scores": True, "truncate": False}
        answer = await self._server.post("/predict", body)
        with reading_answer(url, server="text-embeddings-inference"):
            values = [label["score"] for label in answer]
        return RawScore(value=one_number(values, origin=url))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    """A server and its model."""

    wire: RewardServer
    model: str
    """Name of the model."""
    max_tokens: int
    """Maximum number of tokens of a text."""


async def find_server(server: ServerClient, *, name: str, kwargs: TemplateOptions | None) -> FoundServer:
    """Find out what runs at a URL, and score a first text.

    Args:
        server: the server.
        name: vLLM: name of the model; others: folder with the tokenizer and the chat template. Empty: not given.
        kwargs: options of the chat template. None: its own defaults.

    Raises:
        CheckpointError: the server has no scalar reward model, or the folder is missing.
        EngineUnavailable: the server does not answer.
    """
    try:
        models = await server.get("/v1/models")
    except CheckpointError:
        found = await _text_embeddings_inference(server, folder=name, kwargs=kwargs)
    else:
        with reading_answer(f"{server.url}/v1/models"):
            listed = models["data"]
            is_sglang = listed[0].get("owned_by") == "sglang"
            contexts = {model["id"]: model.get("max_model_len") for model in listed}
        if is_sglang:
            template = _template(server, name, kwargs=kwargs, software="SGLang")
            model, max_tokens = next(iter(contexts.items()))
            wire: RewardServer = SGLang(server, template=template, max_tokens=max_tokens or Profile().context_tokens)
            found = FoundServer(wire=wire, model=model, max_tokens=max_tokens or Profile().context_tokens)
        else:
            model = name or next(iter(contexts))
            if model not in contexts:
                raise CheckpointError(f"{server.url} serves {', '.join(contexts)}, not the requested {model!r}")
            vllm = VLLM(server, model=model, kwargs=kwargs)
            await vllm.find_route()
            return FoundServer(wire=vllm, model=model, max_tokens=contexts[model] or Profile().context_tokens)
    await found.wire.score(PROBE)
    return found


async def _text_embeddings_inference(
    server: ServerClient, *, folder: str, kwargs: TemplateOptions | None
) -> FoundServer:
    try:
        info = await server.get("/info")
    except CheckpointError as error:
        raise CheckpointError(
            f"{server.url}: neither /v1/models nor /info; expected vLLM, SGLang or text-embeddings-inference"
        ) from error
    with reading_answer(f"{server.url}/info", server="text-embeddings-inference"):
        model, kind, max_tokens = info["model_id"], info["model_type"], info["max_input_length"]
        if "embedding" in kind:
            raise CheckpointError(f"{server.url}: {model} is an embedding model; serve a sequence classifier")
    template = _template(server, folder, kwargs=kwargs, software="text-embeddings-inference")
    return FoundServer(
        wire=TextEmbeddingsInference(server, template=template), model=Path(model).name, max_tokens=max_tokens
    )


def _template(server: ServerClient, folder: str, *, kwargs: TemplateOptions | None, software: str) -> RewardTemplate:
    if not folder or not Path(folder).is_dir():
        given = f"{folder!r} is not a folder" if folder else "no folder given"
        raise CheckpointError(
            f"{server.url}: {software} does not render chat templates, and {given}; give the folder of the model: "
            f"classify:{server.url}#FOLDER"
        )
    return RewardTemplate.load(Path(folder), kwargs=kwargs)


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    url, _, name = address.partition("#")
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError(f"classify: {address!r} given; give a URL such as classify:http://gpu-1:8000")
    server = ServerClient(url, api_key=options.key, timeout_s=options.timeout_s or TIMEOUT_S, transport=None)
    try:
        found = await find_server(server, name=name, kwargs=options.chat_template_kwargs)
        kwargs = None if options.chat_template_kwargs is None else dict(options.chat_template_kwargs)
        yield Model(
            engine=ClassifyEngine(found.wire, max_concurrency=options.max_concurrency or MAX_CONCURRENCY),
            profile=Profile(name=found.model, context_tokens=found.max_tokens, chat_template_kwargs=kwargs),
        )
    finally:
        await server.aclose()


ENGINE = EngineKind(name="classify", address="URL[#MODEL or FOLDER]", open=_open)
