"""Probabilities of labels as text, summed over all token sequences that spell them.

A vocabulary may join the end of a verdict tag with a label: Qwen and Llama write `<preference>A` with the last token
`>A`. A model of these families never writes the token `A` after the token `>`, so the probability of `A` at that place
means nothing. Vocabularies are also uneven: `>A` may be a token and `>B` not.

The probability of a label is therefore the sum over all token sequences that spell it, from the last token boundary
that all these sequences share (`place_of_labels`). `read_labels` computes it with constrained requests of one token.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from tirjudge.types import Completion, Sampling

if TYPE_CHECKING:
    from tirjudge.engines.base import Tokenizer

CLOSING_CHARS = 2
"""Number of characters after a label that a token may join with it, such as the `</` of the closing tag."""

MAX_BETWEEN_CHARS = 8
"""Maximum length of the text between an opening tag and the label that spellings include. After a longer text, labels
are read at the label itself."""

NEGLIGIBLE = 2e-4
"""A token sequence is not continued if it can add at most this share to the probability of each label it can spell."""

SMALLEST = 1e-12
"""Lower bound of a probability that is computed as a difference, as a share of the minuend."""

SMALLEST_FLOAT = 1e-300
"""Lower bound of a probability before its logarithm is taken."""


class Generates(Protocol):
    """The part of an engine that `read_labels` needs."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion: ...


def tempered(logprobs: Mapping[str, float], *, temperature: float) -> dict[str, float]:
    """Return label -> log-probability after temperature scaling. The total probability of the labels stays the same.

    Source: Guo et al., "On Calibration of Modern Neural Networks" (arXiv 1706.04599), section 4.2.

    >>> softer = tempered({"A": math.log(0.72), "B": math.log(0.08)}, temperature=2)
    >>> {label: round(math.exp(logprob), 3) for label, logprob in softer.items()}
    {'A': 0.6, 'B': 0.2}
    """
    if temperature == 1 or not logprobs:
        return dict(logprobs)
    total = _log_sum(logprobs.values())
    scaled = {label: logprob / temperature for label, logprob in logprobs.items()}
    shift = total - _log_sum(scaled.values())
    return {label: logprob + shift for label, logprob in scaled.items()}


def mixed_with_even(logprobs: Mapping[str, float], *, weight: float) -> dict[str, float]:
    """Return label -> log-probability after mixing with equal probabilities. The total probability stays the same.

    Args:
        logprobs: label -> log-probability.
        weight: weight of these probabilities, from 0 to 1. The equal ones have the rest.

    >>> unsure = mixed_with_even({"A": math.log(0.8), "B": -math.inf}, weight=0.5)
    >>> {label: round(math.exp(logprob), 3) for label, logprob in unsure.items()}
    {'A': 0.6, 'B': 0.2}
    """
    if weight == 1 or not logprobs:
        return dict(logprobs)
    even = (1 - weight) * math.exp(_log_sum(logprobs.values())) / len(logprobs)
    mixed = {label: weight * math.exp(logprob) + even for label, logprob in logprobs.items()}
    return {label: math.log(each) if each else -math.inf for label, each in mixed.items()}


def _log_sum(logprobs: Collection[float]) -> float:
    top = max(logprobs)
    return top + math.log(math.fsum(math.exp(logprob - top) for logprob in logprobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlace:
    """The place in a sequence where the probabilities of labels are read."""

    num_ids: int
    """Number of ids before the place."""
    opening: str = ""
    """Text between the place and the label, such as `>`. Empty: no token joins a label with the text before it."""
    closing: str = ""
    """Text that follows the label."""


async def place_of_labels(
    ids: Sequence[int],
    text: str,
    *,
    opens: int,
    opened: int,
    start: int,
    labels: Sequence[str],
    closing: str,
    tokenizer: Tokenizer,
) -> LabelPlace | None:
    """Find the last token boundary, at or before the end of the opening tag, that every spelling of every label shares.

    Args:
        ids: ids of the text. They may end with a token that is not in the text, such as the end-of-turn token.
        text: text of the ids.
        opens: offset of the opening tag in the text, in characters.
        opened: offset of the end of the opening tag. Text between `opened` and `start`, such as a line break, belongs
            to every spelling.
        start: offset of the label.
        labels: the offered labels.
        closing: text that follows the label.
        tokenizer: tokenizer of the served model.

    Returns:
        None if the ids cannot be matched with the text.
    """
    closing = closing[:CLOSING_CHARS]
    if start - opened > MAX_BETWEEN_CHARS:
        opens = opened = start
    boundaries = await _boundaries(ids, text, opens=opens, opened=opened, start=start, tokenizer=tokenizer)
    if not boundaries:
        return None
    tails = [tail for _, tail in boundaries]
    joined = [
        {
            (tail + label + closing)[:end]
            for label in labels
            for end in range(len(tail) - len(following) + 1, len(tail + label + closing) + 1)
        }
        for tail, following in zip(tails, [*tails[1:], tails[-1]], strict=True)
    ]
    tokens = await tokenizer.tokens_of(frozenset().union(*joined))
    reach = 0  # characters after the first boundary that tokens from earlier boundaries can cover
    shared = boundaries[0]
    for boundary, spelled in zip(boundaries, joined, strict=True):
        at = len(tails[0]) - len(boundary[1])
        if reach <= at:
            shared = boundary
        reach = max([reach, *(at + len(each) for each in spelled if tokens[each])])
    return LabelPlace(num_ids=shared[0], opening=shared[1], closing=closing)


async def _boundaries(
    ids: Sequence[int], text: str, *, opens: int, opened: int, start: int, tokenizer: Tokenizer
) -> list[tuple[int, str]]:
    """Return the token boundaries within an opening tag, the first one at or before its start.

    Returns:
        Number of ids before each boundary, and the text from the boundary to the label. Empty: the ids and the text
        cannot be matched.
    """
    written = text.encode()
    end, label_at = len(written), len(text[:start].encode())
    first, last = len(text[:opens].encode()), len(text[:opened].encode())
    found: list[tuple[int, str]] = []
    for index in range(len(ids), -1, -1):
        if end <= last and not _splits_character(written, end):
            found.append((index, written[end:label_at].decode()))
        if end <= first and found:
            return found[::-1]
        if index == 0:
            break
        piece = (await tokenizer.token_bytes([ids[index - 1]]))[0]
        if piece is not None and written.endswith(piece, 0, end):
            end -= len(piece)
        elif index < len(ids):
            break
    return []


def _splits_character(written: bytes, offset: int) -> bool:
    return offset < len(written) and written[offset] & 0xC0 == 0x80


async def read_labels(
    prefix: Sequence[int],
    *,
    labels: Sequence[str],
    opening: str = "",
    closing: str = "",
    engine: Generates,
    session: str,
    turn: int = 0,
) -> dict[str, float]:
    """Return the log-probability of the text of each label after `prefix` and `opening`, over the full vocabulary.

    Each request generates one constrained token and discards it. A label ends where no longer label continues: P("10")
    = P("1") P("0" | "1"), and P("1") keeps the rest. Token sequences that cannot change a result are not followed
    (`NEGLIGIBLE`).

    Args:
        prefix: ids of the sequence before `opening`.
        labels: the labels.
        opening: text between the prefix and the label, as in `LabelPlace`.
        closing: text after the label, of which a token may join `CLOSING_CHARS` characters with the label.
        engine: generates the constrained tokens.
        session, turn: as in `Engine.read_labels`.
    """
    spellings = await _Spellings.of(
        labels, opening=opening, closing=closing[:CLOSING_CHARS], tokenizer=engine.tokenizer
    )
    found = dict.fromkeys(labels, 0.0)
    waiting: list[tuple[float, tuple[int, ...], str]] = [(-1.0, (), "")]
    while waiting:
        negative, path, spelled = heapq.heappop(waiting)
        probability, reached = -negative, spellings.labels_after(spelled)
        following = spellings.tokens_after(spelled)
        if not following or all(probability < NEGLIGIBLE * found[label] for label in reached):
            continue
        wanted = tuple(following)
        sampling = Sampling(max_tokens=1, allowed_token_ids=wanted, logprob_token_ids=wanted, logprobs=False, turn=turn)
        read = (await engine.generate([*prefix, *path], sampling=sampling, session=session)).token_logprobs
        shares = {token_id: probability * math.exp(read[token_id]) for token_id in wanted}
        for token_id, text in following.items():
            ended = spellings.label_ended_by(text)
            if ended is None:
                heapq.heappush(waiting, (-shares[token_id], (*path, token_id), text))
            else:
                found[ended] += shares[token_id]
        if spelled in spellings.labels:
            found[spellings.labels[spelled]] += max(probability - math.fsum(shares.values()), SMALLEST * probability)
    return {label: math.log(max(probability, SMALLEST_FLOAT)) for label, probability in found.items()}


_MAX_KEPT = 128

_kept: WeakKeyDictionary[Tokenizer, dict[tuple[tuple[str, ...], str, str], _Spellings]] = WeakKeyDictionary()
"""The last `_MAX_KEPT` spellings of each tokenizer, because most judgments read the same labels at the same place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spellings:
    """Token sequences that spell the labels after one place."""

    labels: Mapping[str, str]
    """Spelled text of each label, with the opening before it -> label."""
    closing: str
    tokens: Mapping[str, Sequence[int]]
    """Text -> ids of the tokens with exactly this text."""

    after: dict[str, Mapping[int, str]] = field(default_factory=dict)
    """Results of `tokens_after`."""

    @classmethod
    async def of(cls, labels: Sequence[str], *, opening: str, closing: str, tokenizer: Tokenizer) -> _Spellings:
        kept = _kept.setdefault(tokenizer, {})
        key = (tuple(labels), opening, closing)
        if key in kept:
            return kept[key]
        spelled = {opening + label: label for label in labels}
        parts = {
            (text + closing)[start:end]
            for text in spelled
            for start in range(len(text))
            for end in range(start + 1, len(text + closing) + 1)
        }
        found = cls(labels=spelled, closing=closing, tokens=await tokenizer.tokens_of(parts))
        if len(kept) >= _MAX_KEPT:
            del kept[next(iter(kept))]
        kept[key] = found
        return found

    def labels_after(self, spelled: str) -> list[str]:
        """Return the labels that can still be spelled after a text."""
        return [label for text, label in self.labels.items() if text.startswith(spelled)]

    def tokens_after(self, spelled: str) -> Mapping[int, str]:
        """Return the tokens that continue a text toward a label: id -> text with the token."""
        following: dict[int, str] = {}
        if spelled in self.after:
            return self.after[spelled]
        for text in self.labels:
            if text.startswith(spelled) and text != spelled:
                whole = text + self.closing
                for end in range(len(spelled) + 1, len(whole) + 1):
                    following |= dict.fromkeys(self.tokens[whole[len(spelled) : end]], whole[:end])
        self.after[spelled] = following
        return following

    def label_ended_by(self, spelled: str) -> str | None:
        """Return the label that a text spells to its end; None while a longer label can follow, or no label is
        spelled."""
        ended = [text for text in self.labels if (text + self.closing).startswith(spelled) and spelled.startswith(text)]
        if not ended or (spelled in self.labels and len(self.labels_after(spelled)) > 1):
            return None
        return self.labels[ended[0]]
