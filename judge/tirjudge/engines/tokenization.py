"""Text to ids and back, for the engines that hold their own tokenizer.

Everything here is ordinary text: added tokens such as "```output" are decoded as they are written, nothing is skipped,
and a token is its bytes, since the bytes of one character may lie in several tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import Tokenizer, decoders

from tirjudge.control_tokens import ControlTokens
from tirjudge.errors import CheckpointError
from tirjudge.types import Completion


def render_chatml(messages: Iterable[Mapping[str, str]], *, add_generation_prompt: bool = True) -> str:
    """A conversation as the embedded engine's models read it, up to where the answer begins.

    >>> render_chatml([{"role": "user", "content": "Hi"}])
    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
    """
    turns = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
    return turns + ("<|im_start|>assistant\n" if add_generation_prompt else "")


class LocalTokenizer:
    """A byte-level `tokenizer.json`, in this process.

    Args:
        tokenizer: its decoder has to be `ByteLevel`, as with every Qwen3 model.

    Raises:
        CheckpointError: it is not a byte-level tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not isinstance(tokenizer.decoder, decoders.ByteLevel):
            raise CheckpointError(f"tokenizer: a byte-level one is needed, its decoder is {tokenizer.decoder}")
        self._tokenizer = tokenizer
        self.bytes_of = _bytes_of_tokens(tokenizer)
        added = tokenizer.get_added_tokens_decoder().values()
        self._control_tokens = ControlTokens(token.content for token in added if token.special)

    @classmethod
    def load(cls, path: Path) -> LocalTokenizer:
        """The tokenizer of a checkpoint folder.

        Raises:
            CheckpointError: there is none, it is broken, or as in the constructor.
        """
        file = path / "tokenizer.json"
        if not file.exists():
            raise CheckpointError(f"{path}: no tokenizer.json")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more special
            raise CheckpointError(f"{file}: no tokenizer: {error}") from error
        return cls(tokenizer)

    def encode_now(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    async def encode(self, text: str) -> list[int]:
        return self.encode_now(text)

    async def encode_prompt(self, text: str) -> list[int]:
        """One user message in ChatML, whatever template the checkpoint names: its models are trained on this one."""
        return self.encode_now(render_chatml([{"role": "user", "content": text}]))

    async def control_tokens(self) -> ControlTokens:
        """The added tokens that are marked as special; others are words of the vocabulary, such as line breaks and tags."""
        return self._control_tokens

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD. An id without a token (a padded vocabulary) is empty."""
        return b"".join(self.bytes_of.get(i, b"") for i in token_ids).decode(errors="replace")

    def fit_ids_to_text(self, completion: Completion) -> Completion:
        """The completion with `decode(token_ids) == text`, where the last token spilled past the stop string.

        That token is dropped, with those that a character it completes began in, and the text that is then missing is
        encoded anew.
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
    """Byte-level BPE writes each byte as one printable character: itself if it is printable Latin-1, else U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMatch:
    text: str
    """The stop string."""
    end: int
    """Where it ends, in bytes of what was written."""


def find_stop(written: bytes | bytearray, *, stop: Sequence[str], num_seen: int) -> StopMatch | None:
    """The stop string that ends first and beyond the `num_seen` bytes that were looked at before.

    In bytes, since a match of UTF-8 in UTF-8 cannot begin within a character.
    """
    matches = []
    for text in stop:
        start = written.find(text.encode(), max(0, num_seen - len(text.encode()) + 1))
        if start >= 0:
            matches.append(StopMatch(text=text, end=start + len(text.encode())))
    return min(matches, key=lambda match: match.end, default=None)
