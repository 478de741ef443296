"""The part of a tokenizer's vocabulary that a training computes with.

A small judge writes few of the 150,000 tokens of a large vocabulary, and the output layer over all of them takes most of
the time. So the training keeps a table of the tokens that its data contain. Row 0 of the table stands for all other
tokens. Its embedding is zero and stays zero: it is the embedding of the other tokens in the complete table, where each
of them has the logit 0. The loss counts them all, so it is the loss over the complete vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.template_options import TemplateOptions

OTHER = 0
"""Row of the tokens without a row of their own, if the table is not complete."""


@dataclass(frozen=True, kw_only=True)
class TrainedVocabulary:
    """A tokenizer with its chat template, and the tokens that have a row in the trained table."""

    tokenizer_json: str
    """Content of tokenizer.json."""
    template: str = CHATML
    """Chat template."""
    template_kwargs: TemplateOptions | None = None
    """Options of the template. None: as `ChatTemplate` chooses them."""
    num_ids: int
    """Number of rows of the complete table."""
    kept: tuple[int, ...] | None = None
    """Ids with a row of their own, in ascending order. None: all ids, and row i belongs to id i."""
    held: tuple[int, ...] = ()
    """Rows that stay as they are."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: the compiled template cannot be sent to another process."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_str(self.tokenizer_json)

    @cached_property
    def chat(self) -> ChatTemplate:
        return ChatTemplate(self.template, kwargs=self.template_kwargs)

    @cached_property
    def _row_of(self) -> Mapping[int, int]:
        return {token_id: row for row, token_id in enumerate(self.kept or (), start=OTHER + 1)}

    @property
    def num_rows(self) -> int:
        """Number of rows of the trained table."""
        return self.num_ids if self.kept is None else len(self.kept) + 1

    @property
    def num_others(self) -> int:
        """Number of ids without a row of their own."""
        return 0 if self.kept is None else self.num_ids - len(self.kept)

    def encode(self, text: str) -> list[int]:
        """Return the rows of a text's tokens."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids if self.kept is None else [self._row_of.get(token_id, OTHER) for token_id in ids]

    def row(self, token: str) -> int:
        """Return the row of one token.

        Raises:
            KeyError: the tokenizer does not have the token, or the token has no row.
        """
        token_id = self.tokenizer.token_to_id(token)
        if token_id is None:
            raise KeyError(token)
        return token_id if self.kept is None else self._row_of[token_id]

    def count_others(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits (K, num_rows) in which `OTHER` has the probability of all ids without a row."""
        if not self.num_others:
            return logits
        return F.pad(logits[:, OTHER + 1 :], (OTHER + 1, 0), value=math.log(self.num_others))

    def complete(self, table: torch.Tensor) -> torch.Tensor:
        """Return the complete table (num_ids, D) of a trained one (num_rows, D)."""
        if self.kept is None:
            return table
        whole = table.new_zeros(self.num_ids, table.shape[1])
        whole[list(self.kept)] = table[OTHER + 1 :]
        return whole


def frequent_ids(texts: Iterable[tuple[str, bool]], *, tokenizer: Tokenizer, at_least: int) -> tuple[int, ...]:
    """Return the ids that occur in texts, in ascending order.

    Args:
        texts: each with whether the model writes it.
        tokenizer: encodes the texts.
        at_least: minimum number of occurrences in other texts. Ids in the model's own texts need only one.
    """
    written, read = set[int](), Counter[int]()
    for text, by_model in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        (written if by_model else read).update(ids)
    return tuple(sorted(written | {token_id for token_id, num in read.items() if num >= at_least}))


def mean_of_pieces(target: TrainedVocabulary, *, source: Tokenizer, table: torch.Tensor) -> torch.Tensor:
    """Return the table of a vocabulary (num_rows, D), made from the table of another tokenizer.

    The embedding of a token is the mean of the embeddings of its text's tokens. A token that is no text of its own, such
    as a part of a character, gets the mean over its bytes.

    Args:
        target: the vocabulary.
        source: the other tokenizer.
        table: (ids of `source`, D) its embeddings.
    """
    assert target.kept is not None
    made = table.new_zeros(target.num_rows, table.shape[1])
    for row, token_id in enumerate(target.kept, start=OTHER + 1):
        text = target.tokenizer.decode([token_id], skip_special_tokens=False)
        pieces = source.encode(text, add_special_tokens=False).ids
        if pieces:
            made[row] = table[pieces].mean(dim=0)
    return made
