"""Engine for vLLM over HTTP: one `/v1/completions` request per turn, with token ids in and out.

This engine is recommended in production. It is also the client of the mini worker. Notes, in addition to those of
`vllm_answer`:

- Priorities of turns need a server started with `--scheduling-policy priority`. Other servers ignore them.
- Replacing weights needs a server started with VLLM_SERVER_DEV_MODE=1. Its development endpoints give full control over
  the server, so only this process may be able to reach it.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import JsonValue

from tirjudge.chat_template import refuse_channels, writes_channels
from tirjudge.concurrency import gather_fail_fast
from tirjudge.control_tokens import FAMILIES, ControlTokens, tag_literals, tags_in
from tirjudge.engines.base import BaseEngine, EngineFacts
from tirjudge.engines.probing import ProbingTokenizer
from tirjudge.engines.server_client import ServerClient, reading_answer
from tirjudge.engines.vllm_answer import Reader, VLLMAnswer, check_reload, sampling_fields
from tirjudge.engines.vllm_version import TESTED, is_tested
from tirjudge.errors import (
    CheckpointError,
    EngineUnavailable,
    PromptTooLong,
    TemplateFailed,
    TirjudgeError,
    TurnRefused,
    logged,
)
from tirjudge.model import EngineKind, EngineOptions, Model, checkpoint_folder, identity_of
from tirjudge.profile import Profile, load_profile
from tirjudge.prompt_messages import Prompt, chat_of
from tirjudge.request_context import origin
from tirjudge.template_options import NO_THINKING, PROBE_TEXT, TemplateOptions, shown_options
from tirjudge.types import Completion, Sampling

if TYPE_CHECKING:
    from tirjudge.engines.fleet import FleetEngine

logger = logging.getLogger(__name__)

CACHED_CHARS = 64
"""Maximum length of a text whose encoding is cached, in characters. It covers labels, tags and fences."""

CACHED_TEXTS = 4096
"""Maximum number of cached encodings."""

MAX_ASKED = 64
"""Maximum number of strings of one prompt or output that the server is asked about, if it does not list its control
tokens."""

_PROGRESS = re.compile(r"^vllm:(?:iteration_tokens_total_count|kv_cache_usage_perc)\b.*$", re.MULTILINE)
"""Metrics that change while the engine works: the count of steps that generated a token, and the cache usage, which
grows while a long prompt is prefilled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model listed at `/v1/models`."""

    name: str
    """Name of the model in requests."""
    context_tokens: int
    """`max_model_len`: maximum length of prompt and completion together."""
    root: str | None = None
    """Name or folder of the weights, as the server was started with. None: not known."""

    @property
    def folder(self) -> Path | None:
        """The folder of the weights, if it is a checkpoint of a judge on this machine."""
        folder = None if self.root is None else Path(self.root)
        return folder if folder is not None and folder.is_absolute() and (folder / "judge.json").is_file() else None


class VLLMEngine(BaseEngine):
    """One vLLM server, or one mini worker.

    Args:
        base_url: URL such as `http://host:8000`, without `/v1`.
        model: name of the model on the server. None: the first listed model.
        api_key: the server's `--api-key`. None: no key is sent.
        chat_template_kwargs: options of the chat template. None: `enable_thinking` is false if the template of the
            server has this option.
        timeout_s: maximum time to wait for one turn, in seconds.
        transport: httpx transport, for tests. None: the network.
    """

    facts = EngineFacts(reloads=True)

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        chat_template_kwargs: TemplateOptions | None = None,
        timeout_s: float = 600.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._server = ServerClient(base_url, api_key=api_key, timeout_s=timeout_s, transport=transport)
        self._model = model
        self._served: ServedModel | None = None
        self._version_checked = False
        self.tokenizer = RemoteTokenizer(self._server, chat_template_kwargs=chat_template_kwargs)
        self._reader = Reader(self.tokenizer, source=f"{self._server.url}/v1/completions")

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End-of-turn ids observed so far. The server does not report them in advance."""
        return self._reader.eos_token_ids

    async def ready(self) -> ServedModel:
        """Check that the server is healthy and return the model to use.

        Raises:
            EngineUnavailable: the server cannot be reached or is not healthy.
            CheckpointError: the server does not serve the requested model.
        """
        await self._server.get("/health")
        if not self._version_checked:
            await self._check_version()
        return await self._find_model()

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn. Cancelling the caller closes the connection, and the server aborts the request.

        Raises:
            PromptTooLong: the ids leave no room in the server's context.
            EngineUnavailable: the server cannot be reached, failed, or did not return a completion.
            CheckpointError: the server does not serve the requested model.
        """
        served = self._served or await self._find_model()
        room = served.context_tokens - len(token_ids)
        if room <= 0:
            raise PromptTooLong(
                f"the sequence has {len(token_ids)} tokens; {served.name} accepts at most {served.context_tokens - 1}"
            )
        body = _completion_body(token_ids, sampling=sampling, session=session, model=served.name, room=room)
        answer = await self._server.post("/v1/completions", body, headers={"X-Session-ID": session})
        with reading_answer(f"{self._server.url}/v1/completions"):
            return await self._reader.read(_answer_of(answer, sampling=sampling))

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Replace the server's weights: drain running requests, hold new ones, load the weights, clear the prefix
        cache.

        Args:
            checkpoint: absolute path of the checkpoint folder. The server must see it under the same path.
            version: not sent to the server, because its API has no such field.

        Raises:
            CheckpointError: the server was not started with VLLM_SERVER_DEV_MODE=1, or cannot load these weights
                completely. The old weights are still in use.
            EngineUnavailable: the server failed. It is not known which weights it has, and it may still hold requests.
        """
        try:
            device = await self._device()
        except CheckpointError as error:
            raise CheckpointError(
                f"{self._server.url}/server_info: not found; to replace weights, start the server with "
                "VLLM_SERVER_DEV_MODE=1"
            ) from error
        check_reload(checkpoint, device=device)
        try:
            await self._send_dev("/pause?mode=wait", {})
            kwargs = {"weights_path": str(checkpoint)}
            await self._send_dev("/collective_rpc", {"method": "reload_weights", "kwargs": kwargs})
            await self._send_dev("/reset_prefix_cache", {})
        finally:
            await self._send_dev("/resume", {})

    async def _device(self) -> str:
        """Return the device of the server, such as `cuda`."""
        info = await self._server.get("/server_info?config_format=json")
        with reading_answer(f"{self._server.url}/server_info"):
            return str(info["vllm_config"]["device_config"]["device"])

    async def _send_dev(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a request to a development endpoint. Every error means that the server failed."""
        try:
            await self._server.post(path, body)
        except (CheckpointError, PromptTooLong) as error:
            raise EngineUnavailable(str(error)) from error

    async def progress(self) -> str | None:
        """Return a text from the server's metrics that changes with every step of the engine; None: no metrics."""
        try:
            lines = _PROGRESS.findall(await self._server.get_text("/metrics"))
        except TirjudgeError:
            return None
        return "\n".join(lines) or None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._server.aclose()

    async def _check_version(self) -> None:
        """Log a warning if the server runs a version of vLLM that was not tested. The mini worker tells no version."""
        try:
            found = (await self._server.get("/version")).get("version")
        except TirjudgeError:
            found = None
        self._version_checked = True
        if isinstance(found, str) and not is_tested(found):
            logger.warning("%s runs vLLM %.40s; tirjudge was tested with vLLM %s", self._server.url, found, TESTED)

    async def _find_model(self) -> ServedModel:
        answer = await self._server.get("/v1/models")
        with reading_answer(f"{self._server.url}/v1/models"):
            served = [
                ServedModel(name=model["id"], context_tokens=model["max_model_len"], root=_text_of(model.get("root")))
                for model in answer["data"]
                if model["max_model_len"] is not None  # None: an adapter, not a model
            ]
        self._served = next((model for model in served if self._model in (None, model.name)), None)
        if self._served is None:
            names = ", ".join(model.name for model in served) or "nothing"
            raise CheckpointError(f"{self._server.url} serves {names}, not the requested {self._model or 'model'!r}")
        return self._served


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _completion_body(
    token_ids: Sequence[int], *, sampling: Sampling, session: str, model: str, room: int
) -> dict[str, Any]:
    context = origin()
    body = {
        **sampling_fields(sampling, room=room),
        "model": model,
        "prompt": list(token_ids),
        "session_id": session,
        "priority": context.priority(turn=sampling.turn),
        "return_token_ids": True,
    }
    if context.cache_salt is not None:
        body["cache_salt"] = context.cache_salt
    if sampling.logprob_token_ids:
        body["return_tokens_as_token_ids"] = True
    return body


def _answer_of(body: Mapping[str, Any], *, sampling: Sampling) -> VLLMAnswer:
    choice = body["choices"][0]
    top = choice["logprobs"]["top_logprobs"][0] if sampling.logprob_token_ids else {}
    details = (body.get("usage") or {}).get("prompt_tokens_details") or {}
    return VLLMAnswer(
        text=choice["text"],
        token_ids=choice["token_ids"],
        logprobs=choice["logprobs"]["token_logprobs"] if sampling.logprobs else (),
        finish_reason=choice["finish_reason"],
        stop_reason=choice["stop_reason"],
        token_logprobs={i: top[f"token_id:{i}"] for i in sampling.logprob_token_ids},
        num_cached=details.get("cached_tokens") or 0,
    )


class RemoteTokenizer(ProbingTokenizer):
    """Tokenizer and chat template of the server, over `/tokenize` and `/detokenize`."""

    def __init__(self, server: ServerClient, *, chat_template_kwargs: TemplateOptions | None = None) -> None:
        super().__init__()
        self._server = server
        self._given_options = chat_template_kwargs
        self._options: dict[str, JsonValue] | None = None
        self._encoded: OrderedDict[str, list[int]] = OrderedDict()
        self._control_tokens: ControlTokens | None = None

    async def encode(self, text: str) -> list[int]:
        if text in self._encoded:
            self._encoded.move_to_end(text)
            return list(self._encoded[text])
        ids = await self._tokenize({"prompt": text, "add_special_tokens": False})
        if len(text) <= CACHED_CHARS:
            self._encoded[text] = list(ids)
            if len(self._encoded) > CACHED_TEXTS:
                self._encoded.popitem(last=False)
        return ids

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        """
        Raises:
            TemplateFailed: the server refuses this conversation, but not a single user message.
        """
        kwargs = await self.chat_template_kwargs()
        try:
            return await self._encode_chat(prompt, kwargs=kwargs)
        except TurnRefused as error:
            if isinstance(prompt, str):
                raise
            await self._encode_chat(PROBE_TEXT, kwargs=kwargs)  # if it is refused, too, the server does not work
            raise TemplateFailed(str(error)).logged_as(logged(error)) from error

    async def chat_template_kwargs(self) -> TemplateOptions:
        """Return the options of the chat template in every prompt. The first call asks the server.

        Raises:
            CheckpointError: the server refuses the given options, or the model writes in channels.
            EngineUnavailable: the server does not answer.
        """
        if self._options is None:
            self._options = await self._find_options()
        return self._options

    async def _find_options(self) -> dict[str, JsonValue]:
        """Return the given options. If none are given: `enable_thinking` is false if this changes the ids of a
        prompt."""
        plain = await self._encode_chat(PROBE_TEXT, kwargs={})
        await self._refuse_channels(plain)
        options = NO_THINKING if self._given_options is None else self._given_options
        if not options:
            return {}
        try:
            ids = await self._encode_chat(PROBE_TEXT, kwargs=options)
        except (CheckpointError, TurnRefused) as error:
            if self._given_options is None:  # a server that knows no options
                return {}
            given = shown_options(options)
            raise CheckpointError(f"{self._server.url}: refuses chat_template_kwargs {given}: {error}") from error
        return {} if self._given_options is None and ids == plain else dict(options)

    async def _refuse_channels(self, prompt_ids: Sequence[int]) -> None:
        try:
            prompt = await self.decode(prompt_ids)
        except (CheckpointError, TurnRefused):  # a server without /detokenize
            return
        if writes_channels(prompt):
            raise refuse_channels(origin=self._server.url)

    async def _encode_chat(self, prompt: Prompt, *, kwargs: TemplateOptions) -> list[int]:
        body: dict[str, Any] = {"messages": chat_of(prompt), "add_generation_prompt": True}
        return await self._tokenize({**body, "chat_template_kwargs": kwargs} if kwargs else body)

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        """Return the special tokens from `/tokenizer_info`, and in `served` also the tags of the chat template.

        If the server was not started with `--enable-tokenizer-info-endpoint`: those of all known families, and in
        `served` the strings in `texts` that look like a control token and that the server encodes to one id.
        """
        if self._control_tokens is None:
            try:
                info = await self._server.get("/tokenizer_info")
            except (CheckpointError, TurnRefused):  # the server does not have this endpoint
                info = {}
            except EngineUnavailable:  # a gateway may block the endpoint; if the server is down, the next request fails
                return FAMILIES
            self._control_tokens = _control_tokens_in(info) or FAMILIES
        if self._control_tokens is FAMILIES and texts:
            return FAMILIES.serving(ControlTokens(await self._single_ids_in(texts)))
        return self._control_tokens

    async def _single_ids_in(self, texts: Sequence[str]) -> list[str]:
        """Return the strings in the texts that look like a control token and are encoded to one id. At most `MAX_ASKED`
        strings are encoded, those of known families first; the others are returned as well."""
        known = {token for text in texts for token in FAMILIES.found_in(text)}
        others = {tag: None for text in texts for tag in tags_in(text) if tag not in known}  # keeps their order
        candidates = [*sorted(known), *others]
        asked = candidates[:MAX_ASKED]
        encoded = await gather_fail_fast([self.encode(tag) for tag in asked])
        return [
            *(tag for tag, ids in zip(asked, encoded, strict=True) if len(ids) == 1),
            *candidates[MAX_ASKED:],
        ]

    async def decode(self, token_ids: Sequence[int]) -> str:
        """Decode ids to text, including special tokens."""
        answer = await self._server.post("/detokenize", {"tokens": list(token_ids)})
        with reading_answer(f"{self._server.url}/detokenize"):
            return answer["prompt"]

    async def _tokenize(self, body: Mapping[str, Any]) -> list[int]:
        answer = await self._server.post("/tokenize", body)
        with reading_answer(f"{self._server.url}/tokenize"):
            return answer["tokens"]


def _control_tokens_in(info: Any) -> ControlTokens | None:
    """Return the special tokens in a tokenizer's configuration; None if it lists no added tokens.

    vLLM lists added tokens without their `special` flag. Of these, the tokens in `FAMILIES` count as special, and in
    `served` all that look like a control token.
    """
    added = info.get("added_tokens_decoder") if isinstance(info, Mapping) else None
    if not isinstance(added, Mapping) or not added:
        return None
    named = [info.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")]
    for name in ("additional_special_tokens", "extra_special_tokens"):
        listed = info.get(name)
        named += listed.values() if isinstance(listed, Mapping) else listed if isinstance(listed, list) else []
    flagged = [token.get("content") for token in added.values() if isinstance(token, Mapping) and token.get("special")]
    known = [token for token in added.values() if isinstance(token, str) and FAMILIES.are_in(token)]
    special = [token for token in (*named, *flagged, *known) if isinstance(token, str)]
    template = info.get("chat_template")
    tags = tag_literals(template) if isinstance(template, str) else frozenset[str]()
    unflagged = {tag for token in added.values() if isinstance(token, str) for tag in tags_in(token) if tag == token}
    return ControlTokens.of(special, tags=tags | unflagged)


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    """Open one server or several servers of the same model: `URL[,URL]`, or the URLs from `options.urls`.

    Without a given profile, it is that of the checkpoint folder that the servers name, if this machine has the folder.
    """
    folder = options.profile
    engine = _connected(address, options, kwargs=_kwargs_in(folder, options))
    try:
        served = await engine.ready()
        if folder is None and served.folder is not None:
            folder = served.folder
            await engine.aclose()
            engine = _connected(address, options, kwargs=_kwargs_in(folder, options))
            served = await engine.ready()
        wanted = Profile(name=served.name) if folder is None else _profile_in(folder, options)
        profile = await wanted.resolved_by(engine.tokenizer)
        context_tokens = min(served.context_tokens, profile.context_tokens)
        # A folder without a tokenizer has only the profile and does not identify the model.
        identity = {} if folder is None or not (folder / "tokenizer.json").exists() else identity_of(folder)
        yield Model(engine=engine, profile=profile.model_copy(update={"context_tokens": context_tokens}), **identity)
    finally:
        await engine.aclose()


def _profile_in(folder: Path, options: EngineOptions) -> Profile:
    return load_profile(checkpoint_folder(folder)).rendered_with(options.chat_template_kwargs)


def _kwargs_in(folder: Path | None, options: EngineOptions) -> TemplateOptions | None:
    """Return the options of the chat template. None: those that the servers need."""
    return options.chat_template_kwargs if folder is None else _profile_in(folder, options).chat_template_kwargs


def _connected(address: str, options: EngineOptions, *, kwargs: TemplateOptions | None) -> VLLMEngine | FleetEngine:
    from tirjudge.engines.fleet import FleetEngine

    connect = partial(VLLMEngine, api_key=options.key, chat_template_kwargs=kwargs)
    urls = [url for url in address.split(",") if url]
    if options.urls is not None:
        return FleetEngine(options.urls, connect=connect, on_hung=options.on_hung, wait_s=options.wait_s)
    if len(urls) > 1:
        return FleetEngine(lambda: urls, connect=connect)
    if urls:  # no fleet for one server: without a replacement, excluding it would only fail more requests
        return connect(urls[0])
    raise ValueError("vllm: given without an address; give one such as vllm:http://gpu-1:8000")


ENGINE = EngineKind(name="vllm", address="URL[,URL]", open=_open)
