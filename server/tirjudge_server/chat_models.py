"""Chat endpoints that answer for models besides the judge: they write samples for evals, and grade."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tirjudge.engines.chat_endpoint import ChatEndpoint
from tirjudge.engines.chat_wire import Taken
from tirjudge.http.protocol import invalid, shown
from tirjudge.types import Sampling, encodable
from tirjudge_server.settings import OptionsClash
from tirjudge_web.errors import Refused

_UNUSED = ("logprobs", "top_logprobs")
"""Fields that the client of chat endpoints sends for verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """The answer of a model."""

    text: str
    finish_reason: str
    """Why the answer ended, such as `stop`."""
    input_tokens: int | None
    """Number of tokens of the messages. None, as in the other counts: the endpoint does not report it."""
    cached_tokens: int | None
    """Number of these that the endpoint read from its cache."""
    output_tokens: int | None
    """Number of tokens of the answer."""


class ChatModels:
    """The models behind chat endpoints, by name.

    Args:
        endpoints: Name of a model -> the endpoint that has it.
    """

    def __init__(self, endpoints: Mapping[str, ChatEndpoint]) -> None:
        self._endpoints = dict(endpoints)
        self._taken = {name: Taken(name) for name in endpoints}

    def fresh(self) -> ChatModels:
        """Return the same models, for one run or request. What an endpoint rejects is remembered for this run only, so that
        a parameter of one caller does not change the requests of others."""
        return ChatModels(self._endpoints)

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return sorted(self._endpoints)

    def check(self, name: str, *, param: str, others: Sequence[str] = ()) -> None:
        """Check that a model exists.

        Args:
            name: The name as given.
            param: The field of the request that has the name.
            others: Names that are valid too.

        Raises:
            Refused: 404, the model is unknown. The message names the models.
        """
        if name in self._endpoints or name in others:
            return
        known = ", ".join([*others, *self.names]) or "none"
        message = (
            f"{param}: {shown(name)} given; models of this server: {known}; the operator adds others: --sample-url"
        )
        raise Refused(invalid(message, param=param, code="model_not_found"), status=404)

    async def ask(
        self,
        name: str,
        messages: Sequence[Mapping[str, str]],
        *,
        sampling: Sampling,
        extra: Mapping[str, Any] | None = None,
    ) -> ModelAnswer:
        """Send messages to a model and return its answer.

        Args:
            name: The model, which exists.
            messages: The conversation.
            sampling: Sampling parameters and the token limit.
            extra: Further fields of the request, such as `response_format`.

        Raises:
            PromptTooLong, ContentFiltered, EngineRefused, EngineBusy, EngineUnavailable: see `ChatEndpoint.ask`.
        """
        found = await self._endpoints[name].ask(
            [{key: encodable(text) for key, text in message.items()} for message in messages],
            taken=self._taken[name],
            sampling=sampling,
            max_tokens=sampling.max_tokens,
            without=_UNUSED,
            extra=extra,
        )
        choice, usage = found.choices[0], found.usage
        details = None if usage is None else usage.prompt_tokens_details
        return ModelAnswer(
            text=choice.message.content or choice.message.refusal or "",
            finish_reason=choice.finish_reason or "stop",
            input_tokens=None if usage is None else usage.prompt_tokens,
            cached_tokens=None if details is None else details.cached_tokens,
            output_tokens=None if usage is None else usage.completion_tokens,
        )


NO_MODELS = ChatModels({})
"""No model besides the judge."""


@asynccontextmanager
async def open_chat_models(
    urls: Sequence[str], *, keys: Sequence[str] = (), timeout_s: float | None = None, max_concurrency: int | None = None
) -> AsyncIterator[ChatModels]:
    """Open the endpoints, and close their connections at the end of the block.

    Args:
        urls: `NAME=URL` of each model.
        keys: `NAME=KEY`, the API keys of models.
        timeout_s: Maximum seconds of one answer. None: the default of `ChatEndpoint`.
        max_concurrency: Maximum number of concurrent requests to a model. None: the default of `ChatEndpoint`.

    Raises:
        OptionsClash: An entry has no name, a name is given twice, or a key belongs to no model.
        EngineUnavailable: An address is not a URL.
    """
    addresses = _by_name(urls, option="--sample-url", value="URL")
    secrets = _by_name(keys, option="--sample-key", value="KEY")
    if unknown := sorted(secrets.keys() - addresses.keys()):
        raise OptionsClash(f"--sample-key: {unknown[0]!r} is not the NAME of a --sample-url")
    limits = {"timeout_s": timeout_s, "max_concurrency": max_concurrency}
    given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    endpoints = {name: ChatEndpoint(url, api_key=secrets.get(name), **given) for name, url in addresses.items()}
    try:
        yield ChatModels(endpoints)
    finally:
        for endpoint in endpoints.values():
            await endpoint.aclose()


def _by_name(entries: Sequence[str], *, option: str, value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        name, separator, rest = entry.partition("=")
        if not name or not separator or not rest:
            raise OptionsClash(f"{option}: an entry without a name given; expected: NAME={value}")
        if name in found:
            raise OptionsClash(f"{option}: {name!r} given twice; expected: one entry per model")
        found[name] = rest
    return found
