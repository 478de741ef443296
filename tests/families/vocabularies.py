"""Vocabularies of model families, read from packages of the registry, so that no model hub is needed.

`qwen-agent` contains the tokens of Qwen 1 to 3, `llama-models` those of Llama 3 and 4, and `mistral-common` those of
Tekken, the tokenizer of Mistral's models. All are in tiktoken's form: bytes and ranks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import tiktoken

from tests.clients.wheels import Wheel, definitions

QWEN, LLAMA, MISTRAL = "qwen-agent==0.0.34", "llama-models==0.3.0", "mistral-common==1.13.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The tokens of a family, and how its tokenizer splits text."""

    ranks: Mapping[bytes, int]
    """Bytes of an ordinary token -> rank."""
    pattern: str
    """Regular expression that splits text into the pieces to merge."""
    special: Mapping[str, int]
    """Added tokens that are marked as special -> id."""
    plain: Mapping[str, int] = field(default_factory=dict)
    """Added tokens that are not marked as special -> id."""
    num_ids: int
    """Number of rows in the output layer of the family's checkpoints. Rows after the last token are padding."""
    first_id: int = 0
    """Id of the ordinary token with rank 0."""
    bos: str | None = None
    """Token at the beginning of a sequence. None: the family has none."""
    eos: str
    """Token that ends a turn."""
    nfc: bool = False
    """Whether text is normalized to NFC before it is encoded."""
    whole_pieces: bool = True
    """Whether a piece that is a token is never merged from its parts, and every split of a token is a merge. As in
    tiktoken. False: a token has one merge, from the two parts that the merges of lower rank leave."""

    @property
    def added(self) -> dict[str, int]:
        """All added tokens -> id, in the order of their ids."""
        return dict(sorted({**self.special, **self.plain}.items(), key=lambda item: item[1]))

    @property
    def num_tokens(self) -> int:
        """Number of tokens, including the added ones."""
        return len(self.ranks) + len(self.special) + len(self.plain)

    def independent(self) -> tiktoken.Encoding:
        """Return the same vocabulary in tiktoken, which wrote the files. Its ids are ranks. It knows no added tokens."""
        return tiktoken.Encoding("family", pat_str=self.pattern, mergeable_ranks=dict(self.ranks), special_tokens={})


# --------------------------------------------------------------------------------------------------------- the families

_QWEN3_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_QWEN3_PLAIN = (
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Added tokens of Qwen3, from id 151643 on. The package has those of the first Qwen."""


def _qwen3(wheel: Wheel) -> Vocabulary:
    folder = wheel(QWEN) / "qwen_agent" / "utils"
    ranks = _read_ranks(folder / "qwen.tiktoken")
    ids = {token: len(ranks) + n for n, token in enumerate([*_QWEN3_SPECIAL, *_QWEN3_PLAIN])}
    return Vocabulary(
        ranks=ranks,
        pattern=definitions(folder / "tokenization_qwen.py", "PAT_STR", given={}).PAT_STR,
        special={token: ids[token] for token in _QWEN3_SPECIAL},
        plain={token: ids[token] for token in _QWEN3_PLAIN},
        num_ids=151_936,
        eos="<|im_end|>",
        nfc=True,
        whole_pieces=False,
    )


def _llama3(wheel: Wheel) -> Vocabulary:
    return _llama(wheel, folder="llama3", pattern="pat_str", eos="<|eot_id|>")


def _llama4(wheel: Wheel) -> Vocabulary:
    return _llama(wheel, folder="llama4", pattern="O200K_PATTERN", eos="<|eot|>")


def _llama(wheel: Wheel, *, folder: str, pattern: str, eos: str) -> Vocabulary:
    package = wheel(LLAMA) / "llama_models"
    given = {"tiktoken": tiktoken, "load_bpe_file": _read_ranks}
    names = ["Tokenizer"]
    if folder == "llama4":
        kinds = ("BASIC", "LLAMA4_TEXT_POST_TRAIN", "LLAMA4_VISION", "LLAMA4_REASONING", "LLAMA4")
        names = ["get_reserved_special_tokens", *(f"{kind}_SPECIAL_TOKENS" for kind in kinds), *names]
    read = definitions(package / folder / "tokenizer.py", *names, given=given).Tokenizer
    path = package / folder / "tokenizer.model"
    ranks, special = _read_ranks(path), read(path).special_tokens
    return Vocabulary(
        ranks=ranks,
        pattern=getattr(read, pattern),
        special=special,
        num_ids=len(ranks) + len(special),
        bos="<|begin_of_text|>",
        eos=eos,
    )


def _tekken(wheel: Wheel) -> Vocabulary:
    package = wheel(MISTRAL) / "mistral_common"
    read = json.loads((package / "data" / "tekken_240911.json").read_text(encoding="utf-8"))
    config = read["config"]
    num_special = config["default_num_special_tokens"]
    num_ordinary = config["default_vocab_size"] - num_special
    ordinary = (base64.b64decode(token["token_bytes"]) for token in read["vocab"][:num_ordinary])
    named = _tekken_special(package)
    names = [named.get(i, f"<SPECIAL_{i}>") for i in range(num_special)]
    return Vocabulary(
        ranks={token: rank for rank, token in enumerate(ordinary)},
        pattern=config["pattern"],
        special={name: i for i, name in enumerate(names)},
        num_ids=config["default_vocab_size"],
        first_id=num_special,
        bos="<s>",
        eos="</s>",
    )


def _tekken_special(package: Path) -> dict[int, str]:
    """Return id -> text of the special tokens that have a name."""
    folder = package / "tokens" / "tokenizers"
    names = definitions(folder / "base.py", "SpecialTokens", given={"StrEnum": StrEnum}).SpecialTokens
    tokens = definitions(
        folder / "tekken.py",
        "Tekkenizer.DEPRECATED_SPECIAL_TOKENS",
        given={"SpecialTokens": names, "SpecialTokenInfo": dict},
    ).DEPRECATED_SPECIAL_TOKENS
    return {token["rank"]: token["token_str"].value for token in tokens}


def _read_ranks(path: Path) -> dict[bytes, int]:
    """Read a tiktoken file: a token in base64 and its rank per line."""
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


VOCABULARIES: Mapping[str, Callable[[Wheel], Vocabulary]] = {
    "qwen3": _qwen3,
    "llama3": _llama3,
    "llama4": _llama4,
    "tekken": _tekken,
}
"""Name of a family -> function that reads its vocabulary."""
