"""Engine for any `/v1/chat/completions` endpoint: OpenAI, Gemini, Anthropic, Ollama, llama.cpp, vLLM.

The loop works on ids. In this engine each character is an id, and the id `BORDER` precedes and follows each text of the
model. A sequence can then be converted back to a conversation: the prompt is a user message, each text of the model
is an assistant message, and each tool output is a user message. Every such API supports this, and no API has to
continue a partial message.

Notes:

- Endpoints remove the stop string from the answer. This engine closes an open verdict tag itself. The loop runs a
  program at the end of a turn even without a stop string. If an endpoint ignores the stop strings, this engine cuts the
  text.
- Separate reasoning (`reasoning_content`) is neither kept nor sent back.
- Budgets are in characters; a quarter of the number is sent as the token limit. Token counts of a judgment are those
  that the endpoint reports (`usage`).
- Labels cannot be read. Their probabilities come from `top_logprobs`; without them a judgment has no probabilities. A
  model that gives no verdict is asked for it in another message, and may still give none.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
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
from tirjudge.formats.blocks import OUTPUT_FENCE
from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.http.trace_context import trace_headers
from tirjudge.model import EngineKind, EngineOptions, Model
from tirjudge.profile import Profile
from tirjudge.types import Completion, Sampling, TokenAlternatives, TokenUsage

BORDER = 0x110000
"""Id before and after each text of the model. Smaller ids are characters."""

CHARS_PER_TOKEN = 4
"""Number of characters assumed per token."""

ANSWER_TOKENS = 2048
"""Token limit of the answer to the question for the verdict. It leaves room for reasoning before the verdict."""

OUTPUT_OF_PROGRAM = "Output of your program:\n"

ENDED: Mapping[str, Literal["stop", "length"]] = {"stop": "stop", "length": "length", "content_filter": "stop"}
"""Finish reason of the endpoint -> finish reason of the completion. A content filter counts as a normal end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Text of one turn, with the stop string that ended it."""

    text: str
    finish_reason: Literal["stop", "length"]
    stop: str | None = None
    num_appended: int = 0
    """Number of trailing ids that were added by this engine."""


class CharacterTokenizer:
    """Tokenizer with one id per character."""

    async def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    async def encode_prompt(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    async def chat_template_kwargs(self) -> None:
        return None

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        """Return the control tokens of all known families, because the tokenizer of an endpoint is not known."""
        return FAMILIES

    async def tokens_of(self, texts: Collection[str]) -> dict[str, Sequence[int]]:
        return {text: (ord(text),) if len(text) == 1 else () for text in texts}

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return [b"" if i == BORDER else chr(i).encode() for i in token_ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids if i != BORDER)


class ChatEngine(BaseEngine):
    """One model behind one chat endpoint.

    Args:
        url: URL up to `/v1`, or the complete URL. `/v1` is added to a URL without a path.
        model: name of the model at the endpoint.
        api_key: bearer token. None: no token is sent.
        timeout_s: maximum time to wait for one answer, in seconds.
        max_attempts: maximum number of attempts per request while the endpoint is busy or fails.
        max_wait_s: maximum pause between two attempts, in seconds, even if the endpoint asks for a longer one.
        connect_retry_s: time for which a refused connection is retried, in seconds. 0: fail at the first refusal.
        transport: httpx transport, for tests. None: the network.

    Raises:
        EngineUnavailable: `url` is not a URL.
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
        """Generate one turn.

        Raises:
            PromptTooLong: the conversation does not fit the context of the model.
            RequestRefused: the endpoint rejects the request because of its key, its model or one of its fields.
            EngineUnavailable: the endpoint cannot be reached, stayed busy, failed, or is not a chat endpoint.
        """
        return await self._complete(messages_of(token_ids), sampling=sampling, session=session)

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        """Ask the model for its verdict only. Raises the same errors as `generate`."""
        messages = [*messages_of(token_ids), {"role": "user", "content": question}]
        sampling = Sampling(max_tokens=ANSWER_TOKENS * CHARS_PER_TOKEN, stop=tuple(stop))
        return await self._complete(_merged(messages), sampling=sampling, session=session)

    async def aclose(self) -> None:
        """Close all connections."""
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
        """Return the text of a choice, cut after the first stop string or with its missing stop string restored."""
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
    """Convert a sequence to a conversation. Empty messages are omitted, because APIs reject them."""
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
    """Split a sequence at the borders: the prompt, then alternately a text of the model and the text that follows
    it."""
    parts, start = [], 0
    for index, token_id in enumerate(token_ids):
        if token_id == BORDER:
            parts.append("".join(map(chr, token_ids[start:index])))
            start = index + 1
    return [*parts, "".join(map(chr, token_ids[start:]))]


def _merged(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Drop empty messages and merge consecutive messages of one role, because many templates require alternating
    roles."""
    with_text = (message for message in messages if message["content"])
    return [
        {"role": role, "content": "\n\n".join(message["content"] for message in same_role)}
        for role, same_role in groupby(with_text, key=itemgetter("role"))
    ]


def _dropped_stop(choice: ChatChoice, *, text: str, stop: Sequence[str]) -> str | None:
    """Return the stop string that the endpoint removed: the reported one, or the end of a tag that is still open. A tag
    followed by a program does not count as open, because the model only mentioned it."""
    if choice.stop_reason in stop:
        return str(choice.stop_reason)
    return next(
        (each for each in stop if each.startswith("</") and _is_open(each.replace("/", "", 1), text=text)), None
    )


def _is_open(tag: str, *, text: str) -> bool:
    """Whether a text ends inside a tag that contains neither another tag nor code."""
    _, found, inside = text.rpartition(tag)
    return bool(found) and "<" not in inside and "`" not in inside


def places_of(choice: ChatChoice) -> tuple[TokenAlternatives, ...]:
    """Return the alternatives to each token of the content; empty if the endpoint returned none, or if its tokens do
    not contain the content.

    Tokens of reasoning may precede the content, and tokens of a stop string may follow.
    """
    tokens = (choice.logprobs and choice.logprobs.content) or []
    content = (choice.message.content or "").encode()
    written = b"".join(token.raw for token in tokens)
    # Find the last occurrence by searching the reversed bytes: `rfind` is quadratic in the worst case, `find` is linear.
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
    """Return the profile of a model behind a chat endpoint, with all sizes in characters."""
    return Profile(
        name=model,
        context_tokens=100_000 * CHARS_PER_TOKEN,
        rollout_tokens=16_384 * CHARS_PER_TOKEN,
        observation_tokens=1024 * CHARS_PER_TOKEN,
    )


@asynccontextmanager
async def _open(address: str, options: EngineOptions) -> AsyncIterator[Model]:
    """Open the address `URL#MODEL`. The endpoint is not contacted before the first request."""
    url, _, name = address.rpartition("#")
    if not url or not name:
        raise ValueError(f"chat:{address} given; URL#MODEL is needed, such as chat:https://api.openai.com/v1#gpt-5")
    if options.chat_template_kwargs:
        raise ValueError(
            "--chat-template-kwargs: given for a chat endpoint, which applies its own chat template; remove it, and set the "
            "options where the endpoint is started (vLLM: --default-chat-template-kwargs)"
        )
    engine = ChatEngine(url, model=name, api_key=options.key)
    try:
        yield Model(engine=engine, profile=chat_profile(name))
    finally:
        await engine.aclose()


ENGINE = EngineKind(name="chat", address="URL#MODEL", open=_open)
