"""Engine for vLLM in this process: uses vLLM's `AsyncLLM` without an HTTP server.

Notes, in addition to those of `vllm_answer`:

- vLLM runs the model in a child process, which ends with the engine.
- vLLM comes with the extra `tirjudge[vllm]`. It pins versions of torch and transformers that other extras do not allow.
- It is imported when an engine is opened.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import shlex
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, redirect_stderr
from dataclasses import fields
from pathlib import Path
from typing import Any

from tirjudge.chat_template import ChatTemplate, refuse_channels, writes_channels
from tirjudge.control_tokens import ControlTokens, tag_literals
from tirjudge.engines.base import BaseEngine, EngineFacts
from tirjudge.engines.probing import ProbingTokenizer
from tirjudge.engines.vllm import ServedModel
from tirjudge.engines.vllm_answer import Reader, VLLMAnswer, check_reload, sampling_fields
from tirjudge.engines.vllm_version import TESTED, is_tested
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong, TurnRefused
from tirjudge.extras import check_extra
from tirjudge.http.trace_context import trace_headers
from tirjudge.model import EngineKind, EngineOptions, Model, bundled_checkpoint, fingerprint, identity_of
from tirjudge.profile import Profile, load_profile
from tirjudge.prompt_messages import Prompt, chat_of
from tirjudge.request_context import origin
from tirjudge.template_options import PROBE_TEXT, TemplateOptions
from tirjudge.types import Completion, Sampling
from tirjudge.weights_lock import WeightsLock

DEFAULTS: Mapping[str, Any] = {
    "scheduling_policy": "priority",
    "logprobs_mode": "raw_logprobs",
    "disable_log_stats": True,
}
"""Defaults for `AsyncEngineArgs`."""


@asynccontextmanager
async def open_in_process(
    model: str | Path, *, chat_template_kwargs: TemplateOptions | None = None, **options: Any
) -> AsyncIterator[AsyncVLLMEngine]:
    """Start vLLM with a model and shut it down at the end of the block. Loading blocks the event loop.

    Args:
        model: checkpoint folder with a chat template, or the name of a model on the Hugging Face hub.
        chat_template_kwargs: options of the chat template. None: the default of `ChatTemplate`.
        options: options of vLLM's `AsyncEngineArgs`, such as `max_model_len` and `tensor_parallel_size`.

    Raises:
        EngineUnavailable: vLLM is not installed, has a version that was not tested, or does not start.
        CheckpointError: vLLM rejects the model or the options, or the chat template cannot be used.
    """
    with _importing():
        import vllm
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    check_vllm(vllm.__version__)
    try:
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=str(model), **{**DEFAULTS, **options}))
    except (ValueError, TypeError, OSError) as error:
        raise CheckpointError(f"{model}: rejected by vLLM: {error}") from error
    except RuntimeError as error:
        raise EngineUnavailable(f"{model}: vLLM does not start: {error}") from error
    try:
        yield AsyncVLLMEngine(llm, chat_template_kwargs=chat_template_kwargs)
    finally:
        llm.shutdown()


def options_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse arguments of `vllm serve` into options of `AsyncEngineArgs`.

    Raises:
        EngineUnavailable: vLLM is not installed.
        CheckpointError: an argument is unknown or invalid.
    """
    with _importing():
        from vllm import AsyncEngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    for action in parser._actions:
        action.default = argparse.SUPPRESS  # return only the arguments that were given
    stderr = io.StringIO()
    try:
        with redirect_stderr(stderr):
            given = vars(parser.parse_args(list(arguments)))
    except SystemExit as error:
        last = (stderr.getvalue().strip().splitlines() or ["no reason"])[-1]
        raise CheckpointError(f"vLLM arguments {shlex.join(arguments)!r}: {last}") from error
    names = {field.name for field in fields(AsyncEngineArgs)}
    return {name: value for name, value in given.items() if name in names}


def check_vllm(version: str) -> None:
    """Check the version of vLLM and the versions of packages that it needs.

    Raises:
        EngineUnavailable: a version was not tested, or another extra replaced a package.
    """
    if not is_tested(version):
        raise EngineUnavailable(
            f"vLLM in this process: vLLM {version} is installed, but {TESTED} is needed; run: pip install 'tirjudge[vllm]' "
            "in a separate environment"
        )
    try:
        check_extra("vllm")
    except ValueError as error:
        raise EngineUnavailable(f"vLLM in this process: {error}") from error


@contextmanager
def _importing() -> Iterator[None]:
    """Convert an ImportError of vLLM.

    Raises:
        EngineUnavailable: vLLM is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise EngineUnavailable(f"vLLM in this process: {error}; run: pip install 'tirjudge[vllm]'") from error


class AsyncVLLMEngine(BaseEngine):
    """Engine around an `AsyncLLM` of vLLM.

    Args:
        llm: a `vllm.v1.engine.async_llm.AsyncLLM`. The caller shuts it down.
        chat_template_kwargs: as in `TemplateTokenizer`.

    Attributes:
        served: name and context of the model.

    Raises:
        CheckpointError: as in `TemplateTokenizer`.
    """

    facts = EngineFacts(reloads=True)

    def __init__(self, llm: Any, *, chat_template_kwargs: TemplateOptions | None = None) -> None:
        self._llm = llm
        config = llm.model_config
        self.served = ServedModel(name=_name_of(config), context_tokens=config.max_model_len)
        self.tokenizer = TemplateTokenizer(llm.get_tokenizer(), chat_template_kwargs=chat_template_kwargs)
        self._reader = Reader(self.tokenizer, source="vLLM in this process")

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End-of-turn ids observed so far."""
        return self._reader.eos_token_ids

    @property
    def ended(self) -> str | None:
        """Why vLLM has ended. None: it works."""
        return f"vLLM in this process: {self._llm.dead_error}" if self._llm.errored else None

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn. If the caller is cancelled, vLLM aborts the request.

        Raises:
            PromptTooLong: the ids leave no room in the model's context.
            TurnRefused: vLLM rejects the request.
            EngineUnavailable: vLLM failed.
        """
        room = self.served.context_tokens - len(token_ids)
        if room <= 0:
            limit = self.served.context_tokens - 1
            raise PromptTooLong(f"the sequence has {len(token_ids)} tokens; {self.served.name} accepts at most {limit}")
        output = await self._run(token_ids, sampling=sampling, session=session, room=room)
        try:
            return await self._reader.read(_answer_of(output, sampling=sampling))
        except (KeyError, IndexError, TypeError) as error:
            failure = EngineUnavailable(f"vLLM in this process: invalid completion: {error!r}")
            raise failure.logged_as(f"vLLM in this process: invalid completion: {type(error).__name__}") from error

    async def _run(self, token_ids: Sequence[int], *, sampling: Sampling, session: str, room: int) -> Any:
        """Run a request and return its only output, a `RequestOutput`."""
        from vllm.exceptions import VLLMClientError, VLLMServerError

        context = origin()
        prompt: dict[str, Any] = {"prompt_token_ids": list(token_ids)}
        if context.cache_salt is not None:
            prompt["cache_salt"] = context.cache_salt
        try:
            outputs = self._llm.generate(
                prompt,
                _params_of(sampling, room=room),
                f"{session}-{uuid.uuid4().hex[:8]}",
                priority=context.priority(turn=sampling.turn),
                session_id=session,
                trace_headers=trace_headers() or None,
            )
            async with aclosing(outputs):
                return [output async for output in outputs][-1]
        except (VLLMClientError, ValueError) as error:
            failure = TurnRefused(f"vLLM in this process: {error}")
            raise failure.logged_as(f"vLLM in this process: {type(error).__name__}") from error
        except (VLLMServerError, RuntimeError) as error:
            failure = EngineUnavailable(f"vLLM in this process: {type(error).__name__}: {error}")
            raise failure.logged_as(f"vLLM in this process: {type(error).__name__}") from error

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Replace the weights: drain running requests, hold new ones, load the weights, clear the prefix cache.

        Args:
            checkpoint: absolute path of the checkpoint folder.
            version: not passed to vLLM, because its API has no such field.

        Raises:
            CheckpointError: vLLM cannot load these weights completely. The old weights are still in use.
            EngineUnavailable: vLLM failed. It is not known which weights it has.
        """
        check_reload(checkpoint, device=str(self._llm.vllm_config.device_config.device))
        try:
            try:
                await self._llm.pause_generation(mode="wait", clear_cache=True)
                await self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(checkpoint)})
                await self._llm.reset_prefix_cache()
            finally:
                await self._llm.resume_generation()
        except Exception as error:  # vLLM re-raises any exception of its workers
            failure = EngineUnavailable(f"vLLM in this process: {type(error).__name__}: {error}")
            raise failure.logged_as(f"vLLM in this process: {type(error).__name__}") from error


class TemplateTokenizer(ProbingTokenizer):
    """Tokenizer from transformers, with its chat template.

    Args:
        tokenizer: tokenizer of transformers, or one of Mistral's, which has no template in Jinja's language.
        chat_template_kwargs: options of the chat template. None: the default of `ChatTemplate`.

    Raises:
        CheckpointError: the tokenizer has no chat template or a broken one, or the model writes in channels.
    """

    def __init__(self, tokenizer: Any, *, chat_template_kwargs: TemplateOptions | None = None) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._template = ChatTemplate.of_tokenizer(tokenizer, kwargs=chat_template_kwargs)
        self._kwargs = dict(chat_template_kwargs or {}) if self._template is None else self._template.kwargs
        if writes_channels(self._rendered(PROBE_TEXT)):
            raise refuse_channels(origin="vLLM in this process")

    async def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        return await self.encode(self._rendered(prompt))

    async def chat_template_kwargs(self) -> TemplateOptions:
        return self._kwargs

    def _rendered(self, prompt: Prompt) -> str:
        if self._template is not None:
            return self._template.render_prompt(prompt)
        try:
            return self._tokenizer.apply_chat_template(
                chat_of(prompt), add_generation_prompt=True, tokenize=False, **self._kwargs
            )
        except ValueError as error:
            raise CheckpointError(f"the tokenizer has no chat template: {error}") from error

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        added = getattr(self._tokenizer, "added_tokens_decoder", {})  # missing in Mistral's tokenizer class
        special = [token.content for token in added.values() if token.special]
        template = getattr(self._tokenizer, "chat_template", None)
        tags = tag_literals(template) if isinstance(template, str) else frozenset[str]()
        return ControlTokens.of([*special, *self._tokenizer.all_special_tokens], tags=tags)

    async def decode(self, token_ids: Sequence[int]) -> str:
        """Decode ids to text, including special tokens."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _name_of(config: Any) -> str:
    """Return the name of the served model; the first one if there are several."""
    served = config.served_model_name
    return served if isinstance(served, str) else (served or [config.model])[0]


def _params_of(sampling: Sampling, *, room: int) -> Any:
    """Convert to a `vllm.SamplingParams`."""
    from vllm import SamplingParams
    from vllm.sampling_params import (
        RepetitionDetectionParams,
        RequestOutputKind,
    )

    fields = sampling_fields(sampling, room=room)
    fields["repetition_detection"] = RepetitionDetectionParams(**fields["repetition_detection"])
    if sampling.logprob_token_ids:
        fields["logprobs"] = None  # a number would truncate the list of requested ids
    return SamplingParams(**fields, output_kind=RequestOutputKind.FINAL_ONLY)


def _answer_of(output: Any, *, sampling: Sampling) -> VLLMAnswer:
    completion = output.outputs[0]
    ids = [int(i) for i in completion.token_ids]
    at = zip(completion.logprobs, ids, strict=True) if sampling.logprobs else ()
    first = completion.logprobs[0] if sampling.logprob_token_ids else {}
    return VLLMAnswer(
        text=completion.text,
        token_ids=ids,
        logprobs=[places[i].logprob for places, i in at],
        finish_reason=completion.finish_reason,
        stop_reason=completion.stop_reason,
        token_logprobs={i: first[i].logprob for i in sampling.logprob_token_ids},
        num_cached=output.num_cached_tokens or 0,
    )


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    """Open a checkpoint folder or the name of a model on the hub. Empty address: the bundled judge."""
    checkpoint = Path(address) if address else bundled_checkpoint()
    folder = checkpoint if checkpoint.is_dir() else None
    profile = Profile(name=str(checkpoint)) if folder is None else load_profile(folder)
    profile = profile.rendered_with(options.chat_template_kwargs)
    identity = {} if folder is None or not (folder / "tokenizer.json").exists() else identity_of(folder)
    version = None if folder is None else await asyncio.to_thread(fingerprint, folder)
    arguments = {"max_model_len": profile.context_tokens, **options_of(options.vllm_arguments)}
    kwargs = profile.chat_template_kwargs
    async with open_in_process(checkpoint, chat_template_kwargs=kwargs, **arguments) as engine:
        profile = await profile.resolved_by(engine.tokenizer)
        context_tokens = min(engine.served.context_tokens, profile.context_tokens)
        yield Model(
            engine=engine,
            profile=profile.model_copy(update={"context_tokens": context_tokens}),
            weights=WeightsLock(version=version),
            **identity,
        )


ENGINE = EngineKind(name="vllm-inprocess", address="PATH or hub name", open=_open)
