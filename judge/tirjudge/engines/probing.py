"""Find the tokens of a text, and the text of a token, for a tokenizer that can only encode and decode.

A token is found by encoding its text, so tokens that the tokenizer never produces are not found. Some tokenizers add a
space before a text. For these, an anchor is encoded before the text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tirjudge.concurrency import map_concurrently

ANCHORS = ("\n", "|")
"""Texts to encode before another text, so that the tokenizer adds no space to it. There are two, because a tokenizer may
join one of them with the text."""

NUM_AT_ONCE = 16
"""Maximum number of concurrent requests to the tokenizer."""

MAX_CACHED = 32_768
"""Maximum number of texts, and of tokens, that are cached. A full cache is cleared."""


class ProbingTokenizer:
    """Base class that implements `tokens_of` and `token_bytes` of a `Tokenizer` with `encode` and `decode`."""

    def __init__(self) -> None:
        self._anchors: tuple[str, ...] = ()
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._bytes: dict[int, bytes | None] = {}
        self._before: tuple[list[int], int] | None = None  # ids of the first anchor, and the length of their text

    async def encode(self, text: str) -> list[int]:
        """Encode a piece of text, without adding special tokens."""
        raise NotImplementedError

    async def decode(self, token_ids: Sequence[int]) -> str:
        """Decode ids to text, including special tokens."""
        raise NotImplementedError

    async def tokens_of(self, texts: Collection[str]) -> dict[str, tuple[int, ...]]:
        known = {text: self._tokens[text] for text in texts if text in self._tokens}
        unknown = [text for text in texts if text not in known]
        if not unknown:
            return known
        if not self._anchors:
            written = await self.token_bytes(await self.encode("A"))
            self._anchors = ("",) if written == [b"A"] else ANCHORS
        found = await map_concurrently(map(self._token_of, unknown), num_at_once=NUM_AT_ONCE)
        new = dict(zip(unknown, found, strict=True))
        if len(self._tokens) + len(new) > MAX_CACHED:
            self._tokens.clear()
        self._tokens |= new
        return known | new

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        known = {i: self._bytes[i] for i in token_ids if i in self._bytes}
        unknown = [i for i in dict.fromkeys(token_ids) if i not in known]
        if unknown:
            if self._before is None:
                ids = await self.encode(ANCHORS[0])
                self._before = ids, len(await self.decode(ids))
            before, start = self._before
            works = (self.decode([*before, i]) for i in unknown)
            texts = [text[start:] for text in await map_concurrently(works, num_at_once=NUM_AT_ONCE)]
            known |= {i: None if "\ufffd" in text else text.encode() for i, text in zip(unknown, texts, strict=True)}
            if len(self._bytes) + len(unknown) > MAX_CACHED:
                self._bytes.clear()
            self._bytes |= {i: known[i] for i in unknown}
        return [known[i] for i in token_ids]

    async def _token_of(self, text: str) -> tuple[int, ...]:
        """Return the id of the token with exactly this text; empty: no token has it."""
        for anchor in self._anchors:
            before = await self.encode(anchor) if anchor else []
            ids = await self.encode(anchor + text)
            if len(ids) == len(before) + 1 and ids[:-1] == before:
                return (ids[-1],) if await self.token_bytes(ids[-1:]) == [text.encode()] else ()
        return ()
