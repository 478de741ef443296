"""Tokenizer files of a checkpoint, built from a `Vocabulary`.

The files are those that checkpoints of the family contain: byte-level BPE, the added tokens with their ids and `special`
flags, and the post-processor that adds BOS when a text is encoded with special tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.families.vocabularies import Vocabulary


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return the tokenizer of a vocabulary, as the checkpoints of its family have it."""
    spelled = _spelling()
    ids = {spelled(token): rank + vocabulary.first_id for token, rank in vocabulary.ranks.items()}
    split = _every_split if vocabulary.whole_pieces else _canonical_split
    merges = [(spelled(left), spelled(right)) for left, right in split(vocabulary.ranks)]
    if vocabulary.first_id:  # the library gives an added token the id that the vocabulary has for it
        ids |= vocabulary.added
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=vocabulary.whole_pieces))
    if vocabulary.nfc:
        tokenizer.normalizer = normalizers.NFC()  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(vocabulary.pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    tokenizer.add_tokens(
        [AddedToken(token, special=token in vocabulary.special, normalized=False) for token in vocabulary.added]
    )
    if vocabulary.bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
            single=f"{vocabulary.bos} $A",
            pair=f"{vocabulary.bos} $A {vocabulary.bos} $B",
            special_tokens=[(vocabulary.bos, vocabulary.special[vocabulary.bos])],
        )
    for token, token_id in vocabulary.added.items():
        assert tokenizer.token_to_id(token) == token_id, token
    return tokenizer


def _spelling() -> Callable[[bytes], str]:
    """Return the function that spells bytes as the characters of byte-level BPE."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    characters = bytes_to_unicode()
    return lambda token: "".join(characters[byte] for byte in token)


def _every_split(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Return all pairs of tokens that form a token, by its rank."""
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        halves = ((token[:i], token[i:]) for i in range(1, len(token)))
        pairs = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
        yield from sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def _canonical_split(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Return the last merge of each token: what the merges of lower rank leave of its bytes are two tokens."""
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
        if len(pairs) > 1:
            left, right = _merged(token, ranks=ranks, below=rank)
            pairs = [(left, right)]
        yield from pairs


def _merged(token: bytes, *, ranks: Mapping[bytes, int], below: int) -> list[bytes]:
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 1:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], below), i) for i in range(len(parts) - 1))
        if rank >= below:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def write_tokenizer(vocabulary: Vocabulary, folder: Path, *, chat_template: str) -> None:
    """Write the tokenizer files of a checkpoint folder: `tokenizer.json`, `tokenizer_config.json`,
    `chat_template.jinja`."""
    build_tokenizer(vocabulary).save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": vocabulary.bos,
        "eos_token": vocabulary.eos,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
