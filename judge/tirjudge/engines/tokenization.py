"""Tokenizer for engines in this process, and matching of stop strings.

Decoding includes all tokens: added tokens such as "```output" decode to their text. Tokens are treated as bytes,
because the bytes of one character may be split over several tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer, decoders

from tirjudge.chat_template import CHATML, ChatTemplate, refuse_channels
from tirjudge.control_tokens import ControlTokens
from tirjudge.errors import CheckpointError
from tirjudge.prompt_messages import Prompt
from tirjudge.template_options import TemplateOptions
from tirjudge.types import Completion


class LocalTokenizer:
    """A byte-level tokenizer in this process.

    Args:
        tokenizer: tokenizer with a `ByteLevel` decoder, such as that of every Qwen3 model.
        template: chat template of the model. None: ChatML.

    Attributes:
        template: the chat template with its options.

    Raises:
        CheckpointError: the tokenizer is not byte-level, or the model writes in channels.
    """

    def __init__(self, tokenizer: Tokenizer, *, template: ChatTemplate | None = None) -> None:
        if not isinstance(tokenizer.decoder, decoders.ByteLevel):
            raise CheckpointError(f"tokenizer: its decoder is {tokenizer.decoder}; a byte-level tokenizer is required")
        self._tokenizer = tokenizer
        self.template = template or ChatTemplate(CHATML)
        if self.template.is_harmony:
            raise refuse_channels(origin="chat template")
        self.bytes_of = _bytes_of_tokens(tokenizer)
        added = tokenizer.get_added_tokens_decoder().values()
        special = [token.content for token in added if token.special]
        self._control_tokens = ControlTokens.of(special, tags=self.template.tags)
        self._ids_of: dict[bytes, list[int]] = {}
        """Bytes -> ids of the tokens with these bytes; filled when it is first needed."""

    @classmethod
    def load(cls, path: Path, *, chat_template_kwargs: TemplateOptions | None = None) -> LocalTokenizer:
        """Load the tokenizer and the chat template of a checkpoint folder.

        Args:
            path: checkpoint folder.
            chat_template_kwargs: options of the chat template. None: the default of `ChatTemplate`.

        Raises:
            CheckpointError: `tokenizer.json` does not exist, is broken, or is not byte-level, or the chat template
                cannot be used.
        """
        file = path / "tokenizer.json"
        if not file.exists():
            raise CheckpointError(f"{path}: no tokenizer.json")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise CheckpointError(f"{file}: not a tokenizer: {error}") from error
        return cls(tokenizer, template=ChatTemplate.load(path, kwargs=chat_template_kwargs))

    def encode_now(self, text: str) -> list[int]:
        """Encode text synchronously, without adding special tokens."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    async def encode(self, text: str) -> list[int]:
        return self.encode_now(text)

    async def encode_prompt(self, prompt: Prompt) -> list[int]:
        return self.encode_now(self.template.render_prompt(prompt))

    async def chat_template_kwargs(self) -> TemplateOptions:
        return self.template.kwargs

    async def control_tokens(self, texts: Sequence[str] = ()) -> ControlTokens:
        """Return the added tokens that are marked as special, and in `served` also the tags of the chat template. Other
        added tokens are ordinary text."""
        return self._control_tokens

    async def tokens_of(self, texts: Collection[str]) -> dict[str, Sequence[int]]:
        if not self._ids_of:
            for token_id, written in self.bytes_of.items():
                self._ids_of.setdefault(written, []).append(token_id)
        return {text: self._ids_of.get(text.encode(), ()) for text in texts}

    async def token_bytes(self, token_ids: Sequence[int]) -> list[bytes | None]:
        return [self.bytes_of.get(i, b"") for i in token_ids]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode ids. Invalid UTF-8 becomes U+FFFD. Ids without a token (a padded vocabulary) decode to nothing."""
        return b"".join(self.bytes_of.get(i, b"") for i in token_ids).decode(errors="replace")

    def fit_ids_to_text(self, completion: Completion) -> Completion:
        """Make the token ids of a completion decode to exactly its text, which ends with the stop string.

        A last token that also contains text after the stop string is dropped, together with earlier tokens that contain
        parts of the same character. The missing text is then encoded and appended. Other completions are returned
        unchanged.
        """
        if completion.stop is None:
            return completion
        kept = list(completion.token_ids)
        written = b"".join(self.bytes_of.get(i, b"") for i in kept)
        num_bytes = len(written) - len(self.bytes_of.get(kept[-1], b""))
        match = find_stop(written, stop=(completion.stop,), num_seen=num_bytes)
        if match is None or match.end == len(written):
            return completion
        kept.pop()
        while kept and (written[num_bytes] & 0xC0 == 0x80):
            num_bytes -= len(self.bytes_of.get(kept.pop(), b""))
        appended = self.encode_now(written[num_bytes : match.end].decode(errors="replace"))
        return replace(
            completion,
            token_ids=(*kept, *appended),
            logprobs=completion.logprobs and (*completion.logprobs[: len(kept)], *(0.0 for _ in appended)),
            num_appended=len(appended),
        )


def _bytes_of_tokens(tokenizer: Tokenizer) -> dict[int, bytes]:
    added = {i: token.content.encode() for i, token in tokenizer.get_added_tokens_decoder().items()}
    byte_of = _byte_of_character()
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    return {i: bytes(byte_of[c] for c in token) for token, i in vocab.items() if i not in added} | added


def _byte_of_character() -> dict[str, int]:
    """Return character -> byte of byte-level BPE. A printable Latin-1 byte is its own character; the other bytes are
    the characters from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMatch:
    """A stop string found in generated text."""

    text: str
    """The stop string."""
    end: int
    """Offset of its end in the generated text, in bytes."""


def find_stop(written: bytes | bytearray, *, stop: Sequence[str], num_seen: int) -> StopMatch | None:
    """Find the stop string that ends first.

    Args:
        written: generated text as UTF-8. A match in UTF-8 bytes never starts inside a character.
        stop: the stop strings.
        num_seen: number of leading bytes that were searched before. Matches that end within them are ignored.
    """
    matches = []
    for text in stop:
        start = written.find(text.encode(), max(0, num_seen - len(text.encode()) + 1))
        if start >= 0:
            matches.append(StopMatch(text=text, end=start + len(text.encode())))
    return min(matches, key=lambda match: match.end, default=None)
