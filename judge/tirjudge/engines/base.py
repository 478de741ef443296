"""Protocols of an engine and a tokenizer, and a base class with the defaults of an engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from tirjudge.control_tokens import ControlTokens
from tirjudge.errors import CheckpointError
from tirjudge.http.workers import Worker
from tirjudge.labels import Generates, read_labels
from tirjudge.prompt_messages import Prompt
from tirjudge.template_options import TemplateOptions
from tirjudge.types import ChatMessage, Completion, Sampling


class Tokenizer(Protocol):
    """Converts text to token ids as the served model does. The methods are asynchronous, because the tokenizer may be
    behind HTTP."""

    async def encode(self, text: str) -> list[int]:
        """Encode a piece of text in the middle of a sequence, without adding special tokens."""
        ...

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        """Encode a prompt in the model's chat template, up to the start of the answer. The template writes all special
        tokens; encoding adds none.

        Raises:
            CheckpointError: the template refuses the messages, such as a role that it does not have.
        """
        ...

    async def chat_template_kwargs(self) -> TemplateOptions | None:
        """Return the options of the chat template in every prompt; None: not known.

        Raises:
            CheckpointError: the model or its server does not support them.
            EngineUnavailable: the server does not answer.
        """
        ...

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        """Return the strings that the tokenizer reads as control tokens; `FAMILIES` if not known.

        Args:
            texts: untrusted texts. If the server does not list its control tokens, it is asked about the strings in
                these texts that look like one, and `served` of the result has those that are one.
        """
        ...

    async def tokens_of(self, texts: Collection[str]) -> Mapping[str, Sequence[int]]:
        """Return for each text the ids of all tokens that have exactly this text in the middle of a sequence."""
        ...

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        """Return the bytes of each token in the middle of a sequence; None if they are not known because the token has
        a part of a character."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Capabilities of an engine. The loop and the server check these, never the class of the engine."""

    generates: bool = True
    """Whether the engine writes text. Without it, the judge decides by raw scores or by its checks."""
    scores: bool = False
    """Whether the engine is a scalar reward model (`score`), which gives one number and writes no text."""
    constrains: bool = True
    """Whether the engine can constrain the next token to given ids and return their log-probabilities. Reading labels
    and forcing verdicts need this. Without it, such as with a chat endpoint, the model is asked for its verdict
    as text (`ask_verdict`), and probabilities come from `Completion.places`."""
    checks: bool = False
    """Whether `check` sends a short request instead of a whole judgment, because requests cost money or count towards a
    rate limit."""
    reloads: bool = False
    """Whether the engine can replace its weights (`reload`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawScore:
    """Score of a response by a scalar reward model."""

    value: float
    """Output of the model, a finite number: the higher the better. Its zero and its unit have no meaning."""
    num_tokens: int | None = None
    """Number of tokens of the prompt and the response. None: not reported."""


class Engine(Protocol):
    """Generates tokens from tokens. `BaseEngine` implements all members except `tokenizer`, `eos_token_ids` and
    `generate`."""

    @property
    def facts(self) -> EngineFacts:
        """Capabilities of the engine."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the served model."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a turn. Empty: not known."""
        ...

    @property
    def ended(self) -> str | None:
        """Why the engine has failed permanently. None: it works or may recover."""
        ...

    @property
    def workers(self) -> Sequence[Worker]:
        """The servers behind a fleet. Empty: a single server, or an engine in this process."""
        ...

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """Generate one turn.

        Args:
            token_ids: ids of the whole sequence so far.
            sampling: sampling parameters and stop strings.
            session: id that is the same for all turns of one rollout, for prefix caching.

        Raises:
            EngineUnavailable: the engine cannot be reached, or failed.
        """
        ...

    async def read_labels(
        self,
        prefix: Sequence[int],
        *,
        labels: Sequence[str],
        opening: str = "",
        closing: str = "",
        session: str,
        turn: int = 0,
    ) -> dict[str, float] | None:
        """Return the log-probability of the text of each label after `prefix` and `opening`, over the full vocabulary;
        None: not supported.

        Args:
            prefix: ids of the sequence before `opening`.
            labels: the labels.
            opening: text between the prefix and the label, which a token may join with the label, such as `>`.
            closing: text after the label, of which a token may join the first characters with the label.
            session: as in `generate`.
            turn: index of the turn, for the priority of the request.

        Raises:
            EngineUnavailable: the engine cannot be reached, or failed.
        """
        ...

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        """Ask for the verdict as text. This is called only for engines that cannot be constrained.

        Args:
            token_ids: ids of the whole sequence so far.
            question: question that asks for the verdict.
            stop: strings that end the answer.
            session: as in `generate`.

        Raises:
            EngineUnavailable: the engine cannot be reached, or failed.
        """
        ...

    async def score(self, prompt: str | Sequence[ChatMessage], response: str) -> RawScore:
        """Score a response to a prompt. This is called only for engines whose facts say `scores`.

        Args:
            prompt: the question: a text or a conversation.
            response: the response.

        Raises:
            PromptTooLong: the prompt and the response exceed the context. Texts are never shortened.
            EngineUnavailable: the engine cannot be reached, or failed.
        """
        ...

    async def check(self, *, wait_s: float = 0.0) -> None:
        """Send one short request to the model. This is called only for engines whose facts say `checks`.

        Args:
            wait_s: maximum time to wait until the server of the model accepts connections, in seconds.

        Raises:
            EngineUnavailable: the engine cannot be reached, or failed.
        """
        ...

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Replace the weights with those of another checkpoint of the same model.

        Args:
            checkpoint: checkpoint folder.
            version: version of the new weights.

        Raises:
            CheckpointError: the checkpoint cannot be used. The old weights are still in use.
            EngineUnavailable: the engine failed. It is not known which weights it has.
        """
        ...


class BaseEngine:
    """Defaults of an engine: it can be constrained, reads labels by constrained generation, and cannot reload."""

    facts: EngineFacts = EngineFacts()

    @property
    def ended(self) -> str | None:
        return None

    @property
    def workers(self) -> Sequence[Worker]:
        return ()

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        raise NotImplementedError

    async def read_labels(
        self,
        prefix: Sequence[int],
        *,
        labels: Sequence[str],
        opening: str = "",
        closing: str = "",
        session: str,
        turn: int = 0,
    ) -> dict[str, float] | None:
        return await read_labels(
            prefix,
            labels=labels,
            opening=opening,
            closing=closing,
            engine=cast(Generates, self),
            session=session,
            turn=turn,
        )

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        raise NotImplementedError("ask_verdict is only for engines that cannot be constrained")

    async def score(self, prompt: str | Sequence[ChatMessage], response: str) -> RawScore:
        raise NotImplementedError("score is only for engines whose facts say so")

    async def check(self, *, wait_s: float = 0.0) -> None:
        raise NotImplementedError("check is only for engines whose facts say so")

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        raise CheckpointError("this engine cannot replace its weights; restart it with the new checkpoint")
