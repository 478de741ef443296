"""The byte-level BPE of the bundled judge. Fences, verdict tags, chat tokens and digits are single tokens."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tirjudge.chat_template import CHATML
from tirjudge.types import label_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
CHAT_TOKENS = (PADDING, "<|im_start|>", END_OF_TURN)
TAGS = (
    *("```python", "```output", "```"),
    *("<preference>", "</preference>", "<score>", "</score>"),
    *("<prompt>", "</prompt>", "<response>", "</response>"),
    *(f"<{slash}response_{label_of(i).lower()}>" for i in range(26) for slash in ("", "/")),
)
"""Texts that are one token each. They are not special tokens: decoding keeps them."""


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, whole: Sequence[str] = TAGS) -> Tokenizer:
    """Train a byte-level BPE. Any text can be encoded losslessly.

    Args:
        texts: texts to train on.
        vocab_size: number of tokens, including chat tokens and `whole`.
        whole: texts that are one token each.
    """
    tokenizer = _bpe(texts, vocab_size=vocab_size - len(whole))
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in whole])
    return tokenizer


BLANK = "\u0120"
"""How a byte-level tokenizer writes a blank."""

SHARE_OF_PIECES = 0.57
"""Share of the vocabulary for pieces of words, if blanks are joined last. The others are pieces with a blank before them."""


def train_copying_tokenizer(texts: Iterable[str], *, vocab_size: int, whole: Sequence[str] = TAGS) -> Tokenizer:
    """Train a byte-level BPE that divides a word in the same way with and without a blank before it.

    A judge copies words of the prompt between quotation marks, where no blank precedes them. Usual tokenizers often divide
    a word differently there. This one divides words without their blank, and joins the blank with the first piece last.

    Args:
        texts: texts to train on.
        vocab_size: number of tokens, including chat tokens and `whole`.
        whole: texts that are one token each.
    """
    texts, size = list(texts), vocab_size - len(whole)
    apart = pre_tokenizers.Split(Regex(r" (?=\S)"), behavior="isolated")
    trained = _bpe(texts, vocab_size=int(SHARE_OF_PIECES * size), before=[apart])
    firsts: Counter[str] = Counter()
    for encoding in trained.encode_batch(texts):
        firsts.update(after for before, after in pairwise(encoding.tokens) if before == BLANK and after[0] != BLANK)
    model = json.loads(trained.to_str())
    vocabulary, merges = model["model"]["vocab"], model["model"]["merges"]
    for piece, _ in sorted(firsts.items(), key=lambda each: (-each[1], each[0]))[: size - len(vocabulary)]:
        vocabulary[BLANK + piece] = len(vocabulary)
        merges.append([BLANK, piece])
    tokenizer = Tokenizer.from_str(json.dumps(model))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in whole])
    return tokenizer


def with_whole(tokenizer: Tokenizer, whole: Sequence[str]) -> tuple[Tokenizer, list[int]]:
    """Return a tokenizer of the same size in which some more texts are one token each, and the ids of these tokens.

    They replace tokens of texts that `whole` does not have, and then the pieces of words that were joined last, which are
    the rarest. The new text of a function keeps the id of the old one, which is not among the returned ids.

    Args:
        tokenizer: result of `train_copying_tokenizer`.
        whole: all texts that are one token each.
    """
    model = json.loads(tokenizer.to_str())
    added, vocabulary, merges = model["added_tokens"], model["model"]["vocab"], model["model"]["merges"]
    kept, known = set(whole), {token["content"] for token in added}
    new = [text for text in whole if text not in known]
    stale = [token for token in added if not token["special"] and token["content"] not in kept]
    changed: list[int] = []
    for token in stale:
        renewed = next((text for text in new if _defined(text) and _defined(text) == _defined(token["content"])), None)
        if renewed is not None:
            token["content"] = renewed
            new.remove(renewed)
        elif new:
            token["content"] = new.pop()
            changed.append(token["id"])
    last = sorted(vocabulary, key=vocabulary.__getitem__)[len(vocabulary) - len(new) :]
    for piece, text in zip(last, new, strict=True):
        token_id = vocabulary.pop(piece)
        template = next(token for token in added if not token["special"])
        added.append(template | {"content": text, "id": token_id})
        changed.append(token_id)
    del merges[len(merges) - len(new) :]
    added.sort(key=lambda token: token["id"])
    return Tokenizer.from_str(json.dumps(model)), sorted(changed)


def _defined(text: str) -> str | None:
    """Return what a text defines: the end of programs in a mode, else the last function."""
    names = re.findall(r"(?m)^def (\w+)\(", text)
    ends = re.findall(r'(?m)^print\("CHECK", json\.dumps\((?:\{"(score)")?', text)
    return f"CHECK {ends[0]}" if ends else names[-1] if names else None


def _bpe(texts: Iterable[str], *, vocab_size: int, before: Sequence[pre_tokenizers.PreTokenizer] = ()) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(before)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(CHAT_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text in texts), trainer)
    return tokenizer


def _pre_tokenizer(before: Sequence[pre_tokenizers.PreTokenizer] = ()) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            *before,
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def with_template(tokenizer: Tokenizer, *, template: str = CHATML) -> PreTrainedTokenizerFast:
    """Return the tokenizer for transformers and vLLM, with a chat template."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
