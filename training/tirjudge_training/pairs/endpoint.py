"""Client for `/v1/chat/completions` endpoints that requests plain answers, without tools, log-probabilities or stop
strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tirjudge.engines.chat_endpoint import ChatEndpoint
from tirjudge.engines.chat_wire import Taken
from tirjudge.errors import ContentFiltered
from tirjudge.types import Sampling

_UNWANTED = ("logprobs", "top_logprobs", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAnswer:
    """One answer of a model."""

    text: str
    was_cut: bool
    """Whether the answer was cut by the token limit or by a content filter."""
    num_tokens: int
    """Number of tokens as reported by the endpoint. 0: not reported."""


class Endpoint:
    """A chat endpoint. It remembers which request fields each model supports.

    Args:
        url: URL up to `/v1`, or the complete URL. `/v1` is appended to a host without a path.
        api_key: API key, sent as a bearer token. None: no key.
        timeout_s: Timeout for one answer in seconds.
        max_attempts: Maximum number of attempts if the endpoint is busy, fails or cannot be reached.
        max_wait_s: Maximum pause between two attempts in seconds.

    Raises:
        EngineUnavailable: `url` is not a URL.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_attempts: int = 8,
        max_wait_s: float = 60.0,
    ) -> None:
        self._taken: dict[str, Taken] = {}
        self._endpoint = ChatEndpoint(
            url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
            max_wait_s=max_wait_s,
            awaits_first=False,  # if the first request fails, the address is probably wrong
        )
        self.url = self._endpoint.url

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._endpoint.aclose()

    async def answer(self, messages: Sequence[Mapping[str, str]], *, model: str, sampling: Sampling) -> SampledAnswer:
        """Sample one answer to a conversation.

        Raises:
            PromptTooLong: the endpoint reports that the prompt is too long.
            EngineRefused: the endpoint rejects the request: the key, the model or a field is invalid.
            EngineUnavailable: the endpoint cannot be reached, stayed busy, failed, or is not a chat endpoint.
        """
        taken = self._taken.setdefault(model, Taken(model))
        try:
            answer = await self._endpoint.ask(
                messages, taken=taken, sampling=sampling, max_tokens=sampling.max_tokens, without=_UNWANTED
            )
        except ContentFiltered:
            return SampledAnswer(text="", was_cut=True, num_tokens=0)
        choice = answer.choices[0]
        return SampledAnswer(
            text=choice.message.content or choice.message.refusal or "",
            was_cut=choice.finish_reason in ("length", "content_filter"),
            num_tokens=0 if answer.usage is None else answer.usage.completion_tokens or 0,
        )
