"""Any `/v1/chat/completions` endpoint as an engine of the one loop: OpenAI, Gemini, Anthropic, Ollama, llama.cpp, vLLM.

The loop works on ids. Here an id is a character, and one more stands before and after each thing the model wrote; so a
sequence can be read back as the conversation that it is: the prompt as the user's message, then the model's texts as the
assistant's and the outputs of its programs as the user's. Every such API takes that, and none has to go on with a message
that is half written.

What a reader would trip over:

- The string that ended a turn is not in the answer. A verdict tag that is still open is closed here; a program at the end
  of a turn is run by the loop as it is. Where an endpoint does not stop at the strings, the text is cut here.
- What a model thinks apart from its answer (`reasoning_content`) is neither kept nor sent back.
- Budgets count characters, and the endpoint is told a quarter of them as tokens. What a judgment cost is what the endpoint
  says (`usage`).
- The labels cannot be read. Their probabilities come from `top_logprobs`; without those a judgment has none. A model that
  gives no verdict is asked for it once more, and may still give none.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal

import httpx2

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.engines.base import BaseEngine, EngineFacts
from tirjudge.engines.chat_endpoint import ChatEndpoint
from tirjudge.engines.chat_wire import (
    ChatChoice,
    ChatUsage,
    PromptDetails,
    Taken,
    Token,
)
from tirjudge.errors import EngineUnavailable
from tirjudge.formats.tirjudge_1 import OUTPUT_FENCE
from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.http.trace_context import trace_headers
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.profile import Profile
from tirjudge.types import Completion, Sampling, TokenAlternatives, TokenUsage

BORDER = 0x110000
"""The id before and after what the model wrote; those below it are characters."""

CHARS_PER_TOKEN = 4

ANSWER_TOKENS = 2048
"""Longest answer to the question for the verdict; models that think do so before it."""

OUTPUT_OF_PROGRAM = "Output of your program:\n"

ENDED: Mapping[str, Literal["stop", "length"]] = {"stop": "stop", "length": "length", "content_filter": "stop"}
"""How endpoints say that a turn ended; a filter ends one like the model itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What a model wrote, with the string that ended it."""

    text: str
    finish_reason: Literal["stop", "length"]
    stop: str | None = None
    num_appended: int = 0
    """Ids at the end that were not in the answer."""


class CharacterTokenizer:
    """One id a character."""

    async def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    async def encode_prompt(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    async def control_tokens(self) -> ControlTokens:
        """Nobody knows what stands behind an endpoint."""
        return FAMILIES

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids if i != BORDER)


class ChatEngine(BaseEngine):
    """One model behind one endpoint.

    Args:
        url: up to `/v1`, or whole; a host alone gets `/v1`.
        model: its name there.
        api_key: sent as a bearer token; None: nothing.
        timeout_s: longest wait for one answer.
        max_attempts: how often a request is sent at most while the endpoint is busy or fails.
        max_wait_s: longest pause between two attempts, whatever the endpoint asks for.
        connect_retry_s: seconds during which a refused connection is retried. 0: fail at the first refusal.
        transport: how requests travel; None: over the network.

    Raises:
        EngineUnavailable: `url` is no URL.
    """

    eos_token_ids: frozenset[int] = frozenset()

    facts = EngineFacts(constrains=False)

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_attempts: int = 8,
        max_wait_s: float = 60.0,
        connect_retry_s: float = CONNECT_RETRY_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.tokenizer = CharacterTokenizer()
        self._taken = Taken(model)
        self._endpoint = ChatEndpoint(
            url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
            max_wait_s=max_wait_s,
            connect_retry_s=connect_retry_s,
            transport=transport,
        )
        self.url = self._endpoint.url

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """One turn.

        Raises:
            PromptTooLong: the endpoint says so.
            RequestRefused: the endpoint does not answer such a request: the key, the model or a field is wrong.
            EngineUnavailable: it cannot be reached, stayed busy, or failed; or it is no chat endpoint.
        """
        return await self._complete(messages_of(token_ids), sampling=sampling, session=session)

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        """What the model says when it is asked for its verdict alone. Raises as `generate` does."""
        messages = [*messages_of(token_ids), {"role": "user", "content": question}]
        sampling = Sampling(max_tokens=ANSWER_TOKENS * CHARS_PER_TOKEN, stop=tuple(stop))
        return await self._complete(_merged(messages), sampling=sampling, session=session)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _complete(self, messages: Sequence[Mapping[str, str]], *, sampling: Sampling, session: str) -> Completion:
        answer = await self._endpoint.ask(
            messages,
            taken=self._taken,
            sampling=sampling,
            max_tokens=-(-sampling.max_tokens // CHARS_PER_TOKEN),
            headers={"x-session-id": session, **trace_headers()},
        )
        choice, usage = answer.choices[0], answer.usage or ChatUsage()
        written = self._written(choice, stop=sampling.stop)
        return Completion(
            text=written.text,
            token_ids=(BORDER, *map(ord, written.text), BORDER),
            logprobs=(),
            finish_reason=written.finish_reason,
            stop=written.stop,
            num_appended=written.num_appended,
            num_cached=(usage.prompt_tokens_details or PromptDetails()).cached_tokens or 0,
            places=places_of(choice),
            counted=TokenUsage(prompt=usage.prompt_tokens, completion=usage.completion_tokens),
        )

    def _written(self, choice: ChatChoice, *, stop: Sequence[str]) -> _Written:
        """What the model wrote, and how it ended."""
        text = choice.message.content or choice.message.refusal or ""
        finish_reason = ENDED.get(choice.finish_reason or "stop")
        if finish_reason is None:
            raise EngineUnavailable(f"{self.url}: generation ended with {choice.finish_reason!r}")
        end, matched = min(((text.index(each) + len(each), each) for each in stop if each in text), default=(0, None))
        if matched is not None:
            return _Written(text=text[:end], finish_reason="stop", stop=matched)
        if finish_reason == "stop" and (matched := _dropped_stop(choice, text=text, stop=stop)) is not None:
            return _Written(text=text + matched, finish_reason="stop", stop=matched, num_appended=len(matched) + 1)
        return _Written(text=text, finish_reason=finish_reason)


def messages_of(token_ids: Sequence[int]) -> list[dict[str, str]]:
    """The conversation that a sequence is. Messages without text are left out, which no API would take."""
    prompt, *rest = _parts(token_ids)
    messages = [{"role": "user", "content": prompt}]
    for text, observation in zip(rest[::2], rest[1::2], strict=True):
        written = text.removesuffix(OUTPUT_FENCE).rstrip() or text
        messages.append({"role": "assistant", "content": written})
        if observation:
            output = OUTPUT_FENCE + observation.removeprefix(f"\n{OUTPUT_FENCE}")
            messages.append({"role": "user", "content": OUTPUT_OF_PROGRAM + output.rstrip()})
    return _merged(messages)


def _parts(token_ids: Sequence[int]) -> list[str]:
    """The texts between the borders: the prompt, and then by turns what the model wrote and what followed it."""
    parts, begun = [], 0
    for place, token_id in enumerate(token_ids):
        if token_id == BORDER:
            parts.append("".join(map(chr, token_ids[begun:place])))
            begun = place + 1
    return [*parts, "".join(map(chr, token_ids[begun:]))]


def _merged(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The messages with text, those of one role that follow one another as one: many templates want them to alternate."""
    with_text = (message for message in messages if message["content"])
    return [
        {"role": role, "content": "\n\n".join(message["content"] for message in together)}
        for role, together in groupby(with_text, key=itemgetter("role"))
    ]


def _dropped_stop(choice: ChatChoice, *, text: str, stop: Sequence[str]) -> str | None:
    """The string that ended the turn and is not in the answer: the one that the endpoint names, or the end of a tag that is
    still open. A tag that a program follows was only spoken of."""
    if choice.stop_reason in stop:
        return str(choice.stop_reason)
    return next(
        (each for each in stop if each.startswith("</") and _is_open(each.replace("/", "", 1), text=text)), None
    )


def _is_open(tag: str, *, text: str) -> bool:
    """Whether a text ends inside a tag, with neither another tag nor code in it."""
    _, found, inside = text.rpartition(tag)
    return bool(found) and "<" not in inside and "`" not in inside


def places_of(choice: ChatChoice) -> tuple[TokenAlternatives, ...]:
    """The alternatives to each token of the content; none if the endpoint gave none, or others than those of the content.

    Tokens of thoughts may come before, and those of a stop string after.
    """
    tokens = (choice.logprobs and choice.logprobs.content) or []
    content = (choice.message.content or "").encode()
    written = b"".join(token.raw for token in tokens)
    # The last one, searched backwards: `rfind` takes the product of both lengths, and `find` their sum.
    found = written[::-1].find(content[::-1])
    if not content or found < 0:
        return ()
    begins = len(written) - found - len(content)
    places, at, start = [], 0, 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        at += len(token.raw)
        if at <= begins:
            continue
        text = decoder.decode(token.raw[begins - at :] if at - len(token.raw) < begins else token.raw)
        places.append(TokenAlternatives(start=start, text=text, logprobs=_logprobs(token)))
        start += len(text)
    return tuple(places)


def _logprobs(token: Token) -> dict[str, float]:
    return {each.raw.decode(errors="replace"): each.logprob for each in (*token.top_logprobs, token)}


def chat_profile(model: str) -> Profile:
    """Sizes for a model whose tokens are out of sight: all in characters."""
    return Profile(
        name=model,
        context_tokens=100_000 * CHARS_PER_TOKEN,
        rollout_tokens=16_384 * CHARS_PER_TOKEN,
        observation_tokens=1024 * CHARS_PER_TOKEN,
    )


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    """`URL#MODEL`. Nothing is asked of the endpoint yet."""
    url, _, name = address.rpartition("#")
    if not url or not name:
        raise ValueError(f"chat:{address} given; URL#MODEL is needed, such as chat:https://api.openai.com/v1#gpt-5")
    engine = ChatEngine(url, model=name, api_key=options.key)
    try:
        yield Model(engine=engine, profile=chat_profile(name))
    finally:
        await engine.aclose()


ENGINE = EngineKind(name="chat", address="URL#MODEL", open=_open)
