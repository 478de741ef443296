"""The byte-level BPE of the bundled judge. Fences, verdict tags, chat tokens and digits are single tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

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
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(whole),
        special_tokens=list(CHAT_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in whole])
    return tokenizer


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
