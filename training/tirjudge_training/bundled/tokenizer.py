"""The bundled judge's own byte-level BPE: fences, verdict tags and chat tokens are single tokens, digits stand alone."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tirjudge.types import label_of

END_OF_TURN = "<|im_end|>"
CHAT_TOKENS = ("<|endoftext|>", "<|im_start|>", END_OF_TURN)
TAGS = (
    *("```python", "```output", "```"),
    *("<preference>", "</preference>", "<score>", "</score>"),
    *("<prompt>", "</prompt>", "<response>", "</response>"),
    *(f"<{slash}response_{label_of(i).lower()}>" for i in range(26) for slash in ("", "/")),
)
"""Ordinary text to whoever reads it, one token to the model."""


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """A byte-level BPE of `vocab_size` tokens, tags and chat tokens included. Any text can be encoded and decoded back."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TAGS),
        special_tokens=list(CHAT_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return tokenizer


def chat(text: str) -> str:
    """One user message up to where the answer begins, as the embedded engine encodes it."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
