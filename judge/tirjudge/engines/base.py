"""What the loop asks of an engine, and what engines have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from tirjudge.control_tokens import ControlTokens
from tirjudge.errors import CheckpointError
from tirjudge.http.workers import Worker
from tirjudge.types import Completion, Sampling


class Tokenizer(Protocol):
    """Text to ids, as the served model reads it. Asynchronous because it may sit behind HTTP."""

    async def encode(self, text: str) -> list[int]:
        """Ids of a piece of text in the middle of a sequence; nothing is added."""
        ...

    async def encode_prompt(self, text: str) -> list[int]:
        """Ids of one user message in the model's chat template, up to where the answer begins."""
        ...

    async def control_tokens(self) -> ControlTokens:
        """What it reads as control tokens wherever a text spells them; `FAMILIES` if it cannot know."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine can do. The loop and the server ask for these, never for its class."""

    constrains: bool = True
    """Whether the next token can be limited to given ids, whose log-probabilities come back. Only then can labels be read
    and verdicts forced. An engine that cannot, such as a chat endpoint, is asked for its verdict in words (`ask_verdict`),
    and `Completion.places` is all that is known of the probabilities."""
    reloads: bool = False
    """Whether it can exchange its weights (`reload`)."""


class Engine(Protocol):
    """Generates tokens from tokens. `BaseEngine` has all of it but `tokenizer`, `eos_token_ids` and `generate`."""

    @property
    def facts(self) -> EngineFacts: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a turn; empty if the engine cannot know."""
        ...

    @property
    def ended(self) -> str | None:
        """Why the engine will never work again; None while it may."""
        ...

    @property
    def workers(self) -> Sequence[Worker]:
        """The servers behind it; none if it is one, or runs in this process."""
        ...

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        """One turn.

        Args:
            token_ids: the whole sequence so far.
            sampling: how to sample, when to stop.
            session: the same for all turns of one rollout, so that its cache is found again.

        Raises:
            EngineUnavailable: it cannot be reached, or failed.
        """
        ...

    async def read_labels(
        self, prefix: Sequence[int], *, labels: Sequence[str], session: str, turn: int = 0
    ) -> dict[str, float] | None:
        """Log-probability of each label right after `prefix`, over the full vocabulary; None: it cannot be read.

        Raises:
            EngineUnavailable: it cannot be reached, or failed.
        """
        ...

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        """One answer that may hold the verdict, from an engine that cannot be constrained.

        Args:
            token_ids: the whole sequence so far.
            question: asks for the verdict.
            stop: strings that end the answer.
            session: as in `generate`.

        Raises:
            EngineUnavailable: it cannot be reached, or failed.
        """
        ...

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        """Go on with the weights of that folder, of the same model.

        Raises:
            CheckpointError: nothing has changed.
            EngineUnavailable: it is not known which weights it has now.
        """
        ...


class BaseEngine:
    """What an engine has unless it says otherwise: it can be constrained, and reads labels by generating."""

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
        self, prefix: Sequence[int], *, labels: Sequence[str], session: str, turn: int = 0
    ) -> dict[str, float] | None:
        return await read_labels(prefix, labels=labels, engine=cast(Generates, self), session=session, turn=turn)

    async def ask_verdict(
        self, token_ids: Sequence[int], *, question: str, stop: Sequence[str], session: str
    ) -> Completion:
        raise NotImplementedError("only engines that cannot be constrained are asked for a verdict in words")

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        raise CheckpointError("this engine cannot exchange its weights")


class Generates(Protocol):
    """The part of an engine that `read_labels` needs."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion: ...


async def read_labels(
    prefix: Sequence[int], *, labels: Sequence[str], engine: Generates, session: str, turn: int = 0
) -> dict[str, float]:
    """Log-probability of each label right after `prefix`, over the full vocabulary.

    One token is generated under a constraint and thrown away. A label of several tokens (with most tokenizers "10" is
    "1", "0") takes one more read for each first token that it shares: P("10") = P("1") P("0" | "1"), and P("1") keeps
    the rest.
    """
    encoded = {label: tuple(await engine.tokenizer.encode(label)) for label in labels}
    found: dict[str, float] = {}

    async def descend(path: tuple[int, ...], logprob: float) -> None:
        here = {label: ids for label, ids in encoded.items() if ids[: len(path)] == path}
        next_ids = sorted({ids[len(path)] for ids in here.values() if len(ids) > len(path)})
        ended = next((label for label, ids in here.items() if ids == path), None)
        rest = 1.0
        if next_ids:
            wanted = tuple(next_ids)
            sampling = Sampling(
                max_tokens=1, allowed_token_ids=wanted, logprob_token_ids=wanted, logprobs=False, turn=turn
            )
            read = (await engine.generate([*prefix, *path], sampling=sampling, session=session)).token_logprobs
            for token_id in next_ids:
                rest -= math.exp(read[token_id])
                await descend((*path, token_id), logprob + read[token_id])
        if ended is not None:
            found[ended] = logprob + math.log(max(rest, 1e-12))

    await descend((), 0.0)
    return {label: found[label] for label in labels}
