"""Asks any `/v1/chat/completions` endpoint for answers as they come: no tools, no log-probabilities, no stop
strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tirjudge.engines.chat_endpoint import ChatEndpoint
from tirjudge.engines.chat_wire import Taken
from tirjudge.types import Sampling

_UNWANTED = ("logprobs", "top_logprobs", "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAnswer:
    """One answer of a model."""

    text: str
    was_cut: bool
    """Whether it ran into the limit of tokens, or a filter."""
    num_tokens: int
    """As the endpoint counts them; 0: it does not say."""


class Endpoint:
    """One endpoint, and what its models are known to take.

    Args:
        url: up to `/v1`, or whole; a host alone gets `/v1`.
        api_key: sent as a bearer token; None: nothing.
        timeout_s: longest wait for one answer.
        max_attempts: how often a request is sent at most while the endpoint is busy, fails or cannot be reached.
        max_wait_s: longest pause between two attempts.

    Raises:
        EngineUnavailable: `url` is no URL.
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
            awaits_first=False,  # more likely another address than a moment of trouble
        )
        self.url = self._endpoint.url

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._endpoint.aclose()

    async def answer(self, messages: Sequence[Mapping[str, str]], *, model: str, sampling: Sampling) -> SampledAnswer:
        """One answer to a conversation.

        Raises:
            PromptTooLong: the endpoint says so.
            RequestRefused: the endpoint does not answer such a request: the key, the model or a field is wrong.
            EngineUnavailable: it cannot be reached, stayed busy, or failed; or it is no chat endpoint.
        """
        taken = self._taken.setdefault(model, Taken(model))
        answer = await self._endpoint.ask(
            messages, taken=taken, sampling=sampling, max_tokens=sampling.max_tokens, without=_UNWANTED
        )
        choice = answer.choices[0]
        return SampledAnswer(
            text=choice.message.content or choice.message.refusal or "",
            was_cut=choice.finish_reason in ("length", "content_filter"),
            num_tokens=0 if answer.usage is None else answer.usage.completion_tokens,
        )
