"""A tokenizer with a given vocabulary, and a model with random probabilities and scripted texts over it."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

from tirjudge.control_tokens import NONE, ControlTokens
from tirjudge.engines.base import BaseEngine
from tirjudge.types import Completion, Sampling

PIECES = [chr(code) for code in range(32, 127)] + ["\n"]
"""One token per printable ASCII character."""


class TableTokenizer:
    """Tokenizer with a given vocabulary, which encodes to the longest tokens."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = list(tokens)
        self.longest = max(map(len, tokens))

    def now(self, text: str) -> list[int]:
        ids, at = [], 0
        while at < len(text):
            end = next(e for e in range(min(len(text), at + self.longest), at, -1) if text[at:e] in self.tokens)
            ids.append(self.tokens.index(text[at:end]))
            at = end
        return ids

    async def encode(self, text: str) -> list[int]:
        return self.now(text)

    async def encode_prompt(self, text: str) -> list[int]:
        return self.now(text)

    async def control_tokens(self) -> ControlTokens:
        return NONE

    async def tokens_of(self, texts: Collection[str]) -> dict[str, Sequence[int]]:
        return {text: [i for i, token in enumerate(self.tokens) if token == text] for text in texts}

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return [self.tokens[i].encode() for i in token_ids]


class RandomModel(BaseEngine):
    """Model whose log-probabilities are random numbers that depend on the whole sequence, raised for favored tokens.

    Turns are the given texts, one after the other.

    Attributes:
        num_reads: number of constrained reads so far.
        asked: the sequence as text and the sampling parameters of every turn.
    """

    eos_token_ids = frozenset()

    def __init__(self, tokenizer: TableTokenizer, *, favored: Collection[str], texts: Sequence[str] = ()) -> None:
        self.tokenizer = tokenizer
        self.favored = favored
        self.texts = iter(texts)
        self.num_reads = 0
        self.asked: list[tuple[str, Sampling]] = []

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        numbers = random.Random(repr(tuple(ids)))
        logits = [numbers.gauss(0, 1) + 4 * (token in self.favored) for token in self.tokenizer.tokens]
        total = math.log(math.fsum(map(math.exp, logits)))
        return [logit - total for logit in logits]

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        if sampling.allowed_token_ids is None:
            self.asked.append(("".join(self.tokenizer.tokens[i] for i in token_ids), sampling))
            text = next(self.texts)
            stop = next((each for each in sampling.stop if text.endswith(each)), None)
            ids = self.tokenizer.now(text)
            if len(ids) > sampling.max_tokens:
                ids = ids[: sampling.max_tokens]
                text = "".join(self.tokenizer.tokens[i] for i in ids)
                return Completion(text=text, token_ids=tuple(ids), logprobs=(), finish_reason="length")
            return Completion(text=text, token_ids=tuple(ids), logprobs=(), finish_reason="stop", stop=stop)
        self.num_reads += 1
        row = self.logprobs(token_ids)
        best = max(sampling.allowed_token_ids, key=row.__getitem__)
        return Completion(
            text=self.tokenizer.tokens[best],
            token_ids=(best,),
            logprobs=(),
            finish_reason="length",
            token_logprobs={i: row[i] for i in sampling.logprob_token_ids},
        )
