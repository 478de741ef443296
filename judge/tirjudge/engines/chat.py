"""Engine for any `/v1/chat/completions` endpoint: OpenAI, Gemini, Anthropic, Ollama, llama.cpp, vLLM.

The loop works on ids. In this engine each character is an id, and the id `BORDER` precedes and follows each text of the
model. A sequence can then be converted back to a conversation: the prompt is a user message, or messages whose roles
are between two ids `ROLE`; each text of the model is an assistant message, and each tool output is a user message. Every
such API supports this, and no API has to continue a partial message.

Notes:

- Endpoints remove the stop string from the answer. This engine closes an open verdict tag itself. The loop runs a
  program at the end of a turn even without a stop string. If an endpoint ignores the stop strings, this engine cuts the
  text.
- Thoughts, in a separate field or in tags at the start of the answer, are neither kept nor sent back. A thought that is
  not closed is no answer. If a stop string ended a thought, stop strings are not sent from then on.
- Budgets are in characters; a quarter of the number is sent as the token limit. Token counts and the price of a judgment
  come from the counts that the endpoint reports (`usage`).
- An endpoint that cuts prompts to its context without an error (Ollama) is noticed by its count of the prompt's tokens.
- Labels cannot be read. Their probabilities come from `top_logprobs`; without them a judgment has no probabilities. A
  model that gives no verdict is asked for it in another message, and may still give none.
"""

from __future__ import annotations

import codecs
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Literal

import httpx2

from tirjudge.control_tokens import FAMILIES, ControlTokens
from tirjudge.engines.base import BaseEngine, EngineFacts
from tirjudge.engines.chat_endpoint import MAX_CONCURRENCY, TIMEOUT_S, ChatEndpoint
from tirjudge.engines.chat_thoughts import unopened_thought, without_thought
from tirjudge.engines.chat_wire import (
    LEAST_LIMIT,
    ChatAnswer,
    ChatChoice,
    ChatUsage,
    PromptDetails,
    Taken,
    Token,
)
from tirjudge.errors import ContentFiltered, EngineNotListening, EngineUnavailable, PromptTooLong
from tirjudge.formats.blocks import OUTPUT_FENCE
from tirjudge.http.exchange import EngineRefused
from tirjudge.http.protocol import Problem
from tirjudge.http.retry_events import CONNECT_RETRY_S
from tirjudge.http.trace_context import trace_headers
from tirjudge.model import EngineKind, EngineOptions, Model, checkpoint_folder
from tirjudge.prices import Prices
from tirjudge.profile import Profile, load_profile
from tirjudge.prompt_messages import Prompt
from tirjudge.types import Completion, Sampling, TokenAlternatives, TokenUsage

logger = logging.getLogger(__name__)

BORDER = 0x110000
"""Id before and after each text of the model. Smaller ids are characters."""

ROLE = BORDER + 1
"""Id before and after the role of a message of the prompt."""

CHECK_ATTEMPTS = 3
"""Number of attempts of a check while the endpoint is busy or fails."""

CHARS_PER_TOKEN = 4
"""Number of characters assumed per token."""

CONTEXT_TOKENS = 100_000
"""Default context, in tokens."""

ROLLOUT_TOKENS = 16_384
"""Maximum number of tokens in one rollout."""

OBSERVATION_TOKENS = 1024
"""Maximum number of tokens in the output of one program."""

ANSWER_TOKENS = 2048
"""Token limit of the answer to the question for the verdict. It leaves room for reasoning before the verdict."""

OUTPUT_OF_PROGRAM = "Output of your program:\n"

FinishReason = Literal["stop", "length", "content_filter"]

ENDED: Mapping[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "safety", "refusal", "recitation", "prohibited_content"), "content_filter"),
}
"""Finish reason of the endpoint, in lower case and without details -> finish reason of the completion."""

QUESTION_OF_CHECK = "Reply with the word OK."
"""The request of a check. Its answer shows which parameters the endpoint supports and where the model thinks."""

STOP_OF_CHECK = "</verdict>"
"""Stop string of a check. It only shows whether stop strings are supported."""

FRESH_S = 10.0
"""Seconds for which an answer proves that the endpoint works. A check in this time sends nothing."""

MIN_WORDS = 1000
"""Minimum number of words of a conversation whose token count is checked. No endpoint cuts shorter ones."""

REMEDIES: Mapping[str, str] = {
    "authentication_error": "check --chat-api-key or TIRJUDGE_CHAT_API_KEY",
    "permission_error": "check --chat-url, --chat-model and the account of the API key",
}
"""Type of a problem -> how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Text of one turn, with the stop string that ended it."""

    text: str
    finish_reason: FinishReason
    stop: str | None = None
    num_appended: int = 0
    """Number of trailing ids that were added by this engine."""
    answer: str = ""
    """The content without its thought, before it was cut."""
    thought_was_cut: bool = False
    """Whether the answer ended inside a thought, at a stop string or at the end of the turn."""


class CharacterTokenizer:
    """Tokenizer with one id per character."""

    async def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return [ord(character) for character in prompt]
        marked = ((ROLE, *map(ord, message.role), ROLE, *map(ord, message.content)) for message in prompt)
        return [token_id for message in marked for token_id in message]

    async def chat_template_kwargs(self) -> None:
        return None

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        """Return the control tokens of all known families, because the tokenizer of an endpoint is not known."""
        return FAMILIES

    async def tokens_of(self, texts: Collection[str]) -> dict[str, Sequence[int]]:
        return {text: (ord(text),) if len(text) == 1 else () for text in texts}

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return [b"" if i >= BORDER else chr(i).encode() for i in token_ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids if i < BORDER)


class ChatEngine(BaseEngine):
    """One model behind one chat endpoint.

    Args:
        url: URL up to `/v1`, or the complete URL. `/v1` is added to a URL without a path.
        model: name of the model at the endpoint.
        api_key: bearer token. None: no token is sent.
        timeout_s: maximum seconds from sending a request to the end of its answer.
        max_concurrency: maximum number of concurrent requests; further requests queue in order of arrival.
        prices: prices in US dollars. None: unknown.
        max_attempts: maximum number of attempts per request while the endpoint is busy or fails.
        max_wait_s: maximum pause between two attempts, in seconds, even if the endpoint asks for a longer one.
        connect_retry_s: time for which a refused connection is retried, in seconds. 0: fail at the first refusal.
        transport: httpx transport, for tests. None: the network.

    Raises:
        EngineUnavailable: `url` is not a URL.
    """

    eos_token_ids: frozenset[int] = frozenset()

    facts = EngineFacts(constrains=False, checks=True)

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        max_concurrency: int = MAX_CONCURRENCY,
        prices: Prices | None = None,
        max_attempts: int = 8,
        max_wait_s: float = 60.0,
        connect_retry_s: float = CONNECT_RETRY_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.tokenizer = CharacterTokenizer()
        self._model = model
        self._prices = prices or Prices()
        self._thought_ends_with: str | None = None
        self._answered_at: float | None = None
        self._connect_retry_s = connect_retry_s
        self._taken = Taken(model)
        self._endpoint = ChatEndpoint(
            url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_concurrency=max_concurrency,
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
            EngineRefused: the endpoint rejects the request because of its key, its model or one of its fields.
            EngineBusy: the endpoint limits the rate of requests.
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

    async def check(self, *, wait_s: float = 0.0) -> None:
        """Send one short request, unless an answer in the last seconds proves that the endpoint works.

        The answer also shows which parameters the endpoint supports, and whether the content begins with a thought that
        the template opened. Only this answer is trusted to show that, because no judged text is in its conversation.

        Args:
            wait_s: time for which a refused connection is retried, in seconds, if it is longer than usual.

        Raises:
            EngineRefused, EngineBusy, EngineUnavailable, PromptTooLong: as for `generate`. A message about the key or the
                model says how to fix it.
        """
        if self._answered_at is not None and monotonic() - self._answered_at < FRESH_S:
            return
        try:
            answer = await self._endpoint.ask(
                [{"role": "user", "content": QUESTION_OF_CHECK}],
                taken=self._taken,
                sampling=Sampling(max_tokens=LEAST_LIMIT, stop=(STOP_OF_CHECK,)),
                max_tokens=LEAST_LIMIT,
                headers=trace_headers(),
                max_attempts=CHECK_ATTEMPTS,
                connect_retry_s=max(self._connect_retry_s, wait_s),
            )
        except ContentFiltered as error:
            raise EngineUnavailable(f"{error}; no judged text was sent, so every request will be filtered") from error
        except EngineNotListening as error:
            raise EngineNotListening(f"{error} (--chat-url)") from error
        except EngineRefused as error:
            raise await self._with_remedy(error) from error
        self._answered_at = monotonic()
        self._thought_ends_with = unopened_thought(answer.choices[0].message.content or "")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._endpoint.aclose()

    async def _complete(self, messages: Sequence[Mapping[str, str]], *, sampling: Sampling, session: str) -> Completion:
        try:
            answer = await self._ask(messages, sampling=sampling, session=session)
            written = self._written(answer.choices[0], stop=sampling.stop)
            if written.thought_was_cut and self._taken.leave_out("stop"):
                logger.warning("%s thinks before it answers: stop strings are not sent from now on", self._model)
                answer = await self._ask(messages, sampling=sampling, session=session)
                written = self._written(answer.choices[0], stop=sampling.stop)
        except ContentFiltered:
            return FILTERED
        choice, usage = answer.choices[0], answer.usage or ChatUsage()
        self._check_whole(messages, usage)
        return Completion(
            text=written.text,
            token_ids=(BORDER, *map(ord, written.text), BORDER),
            logprobs=(),
            finish_reason=written.finish_reason,
            stop=written.stop,
            num_appended=written.num_appended,
            places=places_of(choice, text=written.answer),
            counted=self._counted(usage),
        )

    async def _ask(self, messages: Sequence[Mapping[str, str]], *, sampling: Sampling, session: str) -> ChatAnswer:
        try:
            answer = await self._endpoint.ask(
                messages,
                taken=self._taken,
                sampling=sampling,
                max_tokens=-(-sampling.max_tokens // CHARS_PER_TOKEN),
                headers={"x-session-id": session, **trace_headers()},
            )
        except EngineUnavailable:
            self._answered_at = None
            raise
        self._answered_at = monotonic()
        return answer

    def _counted(self, usage: ChatUsage) -> TokenUsage:
        cached = (usage.prompt_tokens_details or PromptDetails()).cached_tokens
        cost_usd = None
        if usage.prompt_tokens is not None and usage.completion_tokens is not None:
            cost_usd = self._prices.cost_of(
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.completion_tokens,
                cached_tokens=min(cached or 0, usage.prompt_tokens),
            )
        return TokenUsage(
            prompt=usage.prompt_tokens, completion=usage.completion_tokens, cached=cached, cost_usd=cost_usd
        )

    def _check_whole(self, messages: Sequence[Mapping[str, str]], usage: ChatUsage) -> None:
        """Check that the endpoint read the whole conversation: tokens of text do not reach over white space, so there are
        at least as many tokens as words. What the model wrote is not counted: some models have tokens of several words.

        Raises:
            PromptTooLong: the endpoint cut the conversation.
        """
        given = (message["content"] for message in messages if message["role"] != "assistant")
        words = (word for text in given for word in text.split())
        num_words = sum(word[0].isalpha() for word in words)
        if usage.prompt_tokens and num_words >= MIN_WORDS and usage.prompt_tokens < num_words:
            raise PromptTooLong(
                f"{self.url}: the endpoint read {usage.prompt_tokens} tokens of a prompt of {num_words} words, so it cut the "
                "prompt; give the model a longer context (Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx) or set "
                "--chat-context-tokens"
            )

    async def _with_remedy(self, error: EngineRefused) -> EngineRefused:
        """Return the error of a check with a remedy in its message, and with the names of the endpoint's models."""
        problem = error.problem
        if problem.type not in REMEDIES:
            return error
        names = await self._endpoint.model_names() if problem.type == "permission_error" else []
        known = f"; its models: {', '.join(names)}" if names else ""
        message = f"{problem.message} (model {self._model}); {REMEDIES[problem.type]}{known}"
        return EngineRefused(Problem(**{**problem.model_dump(), "message": message})).logged_as(error.logged or "")

    def _written(self, choice: ChatChoice, *, stop: Sequence[str]) -> _Written:
        """Return the text of a choice, cut after the first stop string or with its missing stop string restored."""
        message = choice.message
        finish_reason = ENDED.get((choice.finish_reason or "stop").lower().partition(":")[0])
        if finish_reason is None:
            raise EngineUnavailable(f"{self.url}: generation ended with {choice.finish_reason!r}")
        if finish_reason == "content_filter":
            return _Written(text="", finish_reason=finish_reason)
        text = without_thought(message.content or message.refusal or "", ends_with=self._thought_ends_with)
        has_thought = bool(message.reasoning_content or message.reasoning)
        if text is None or (has_thought and not text):
            return _Written(text="", finish_reason=finish_reason, thought_was_cut=finish_reason == "stop")
        return self._cut(choice, text=text, finish_reason=finish_reason, stop=stop)

    def _cut(self, choice: ChatChoice, *, text: str, finish_reason: FinishReason, stop: Sequence[str]) -> _Written:
        end, matched = min(((text.index(each) + len(each), each) for each in stop if each in text), default=(0, None))
        if matched is not None:
            return _Written(text=text[:end], finish_reason="stop", stop=matched, answer=text)
        if finish_reason == "stop" and (matched := _dropped_stop(choice, text=text, stop=stop)) is not None:
            num_appended = len(matched) + 1
            return _Written(
                text=text + matched, finish_reason="stop", stop=matched, num_appended=num_appended, answer=text
            )
        return _Written(text=text, finish_reason=finish_reason, answer=text)


FILTERED = Completion(
    text="",
    token_ids=(BORDER, BORDER),
    logprobs=(),
    finish_reason="content_filter",
    counted=TokenUsage(prompt=None, completion=None),
)
"""Completion of a conversation that a content filter rejected."""


def messages_of(token_ids: Sequence[int]) -> list[dict[str, str]]:
    """Convert a sequence to a conversation. Empty messages are omitted, because APIs reject them. Messages of a prompt with
    roles are kept as they are."""
    num_prompt = token_ids.index(BORDER) if BORDER in token_ids else len(token_ids)
    written = _written_messages(token_ids[num_prompt:])
    if token_ids[:1] and token_ids[0] == ROLE:
        _, *marked = _split(token_ids[:num_prompt], at=ROLE)
        prompt = zip(marked[::2], marked[1::2], strict=True)
        return [*({"role": role, "content": content} for role, content in prompt), *_merged(written)]
    (prompt_text,) = _split(token_ids[:num_prompt], at=BORDER)
    return _merged([{"role": "user", "content": prompt_text}, *written])


def _written_messages(token_ids: Sequence[int]) -> list[dict[str, str]]:
    """Return the texts of the model, and the texts that follow them, as messages."""
    messages: list[dict[str, str]] = []
    _, *rest = _split(token_ids, at=BORDER)
    for text, observation in zip(rest[::2], rest[1::2], strict=True):
        written = text.removesuffix(OUTPUT_FENCE).rstrip() or text
        messages.append({"role": "assistant", "content": written})
        if observation:
            output = OUTPUT_FENCE + observation.removeprefix(f"\n{OUTPUT_FENCE}")
            messages.append({"role": "user", "content": OUTPUT_OF_PROGRAM + output.rstrip()})
    return messages


def _split(token_ids: Sequence[int], *, at: int) -> list[str]:
    """Split a sequence at an id. After the first border follow alternately a text of the model and the text after it."""
    parts, start = [], 0
    for index, token_id in enumerate(token_ids):
        if token_id == at:
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


def places_of(choice: ChatChoice, *, text: str | None = None) -> tuple[TokenAlternatives, ...]:
    """Return the alternatives to each token of a text; empty if the endpoint returned none, or if its tokens do not
    contain the text.

    Args:
        choice: the choice with its tokens.
        text: the end of the content. None: the whole content.

    Tokens of reasoning may precede the content, and tokens of a stop string may follow.
    """
    tokens = (choice.logprobs and choice.logprobs.content) or []
    content = ((choice.message.content or "") if text is None else text).encode()
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


def chat_profile(model: str, *, context_tokens: int = CONTEXT_TOKENS) -> Profile:
    """Return the profile of a model behind a chat endpoint, with all sizes in characters.

    Args:
        model: name of the model.
        context_tokens: context of the model, in tokens. Texts are shortened to fit it, with room for the answer.
    """
    return Profile(
        name=model,
        context_tokens=context_tokens * CHARS_PER_TOKEN,
        rollout_tokens=min(ROLLOUT_TOKENS, context_tokens // 2) * CHARS_PER_TOKEN,
        observation_tokens=min(OBSERVATION_TOKENS, context_tokens // 8) * CHARS_PER_TOKEN,
    )


_AS_TRAINED = (
    "format",
    "format_sha256",
    "prompt_chars",
    "response_chars",
    "all_responses_chars",
    "group_size",
    "shows_functions",
    "label_temperature",
)
"""Fields of a checkpoint's profile that also hold if a chat endpoint serves it. The sizes in tokens are the endpoint's."""


def _as_trained(profile: Profile, checkpoint: Path) -> Profile:
    """Return the profile of a chat endpoint that serves this checkpoint: its prompts are those of the training."""
    own = load_profile(checkpoint_folder(checkpoint, option="--profile"))
    return profile.model_copy(update={name: getattr(own, name) for name in _AS_TRAINED})


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
    engine = ChatEngine(
        url,
        model=name,
        api_key=options.key,
        timeout_s=options.timeout_s or TIMEOUT_S,
        max_concurrency=options.max_concurrency or MAX_CONCURRENCY,
        prices=options.prices,
    )
    try:
        profile = chat_profile(name, context_tokens=options.context_tokens or CONTEXT_TOKENS)
        yield Model(
            engine=engine, profile=profile if options.profile is None else _as_trained(profile, options.profile)
        )
    finally:
        await engine.aclose()


ENGINE = EngineKind(name="chat", address="URL#MODEL", open=_open)
