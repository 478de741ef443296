"""Probabilities of labels over real vocabularies, compared with a sum over all token sequences that spell them."""

from __future__ import annotations

import math
import string
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache

import numpy as np
import pytest

from tests.families.models import CONTEXT_TOKENS, BiasedModel, Families, each_family
from tirjudge.engines.checkpoint import Qwen3Config
from tirjudge.engines.embedded import EmbeddedEngine, KVCache, Span, log_softmax
from tirjudge.formats.blocks import SCORES
from tirjudge.labels import LabelPlace, place_of_labels

LETTERS = tuple(string.ascii_uppercase)
BIAS = 24.0
"""Added to the logits of tokens that spell a label, so that labels have most of the probability."""

CASES = pytest.mark.parametrize(
    ("tag", "labels"),
    [("preference", ("A", "B")), ("preference", LETTERS), ("score", SCORES)],
    ids=["AB", "A-Z", "1-10"],
)


EngineOf = Callable[[str], EmbeddedEngine]


@pytest.fixture(scope="module")
def engine_of(families: Families) -> Iterator[EngineOf]:
    """Function that returns the engine of a family, with a random model. A test sets the biases that it needs."""
    with ExitStack() as opened:

        @cache
        def open_engine(family: str) -> EmbeddedEngine:
            engine = EmbeddedEngine(
                BiasedModel(Qwen3Config.parse(families.config(family))),
                tokenizer=families.tokenizer(family),
                eos_token_ids=families.eos_token_ids(family),
                max_batch=4,
                cache_tokens=4 * CONTEXT_TOKENS,
            )
            opened.callback(engine.close)
            return engine

        yield open_engine


Lexicon = Mapping[bytes, Sequence[int]]
"""Bytes -> ids of all tokens with these bytes."""

LexiconOf = Callable[[str], Lexicon]


@pytest.fixture(scope="module")
def lexicon_of(families: Families) -> LexiconOf:
    """Function that returns the lexicon of a family. A vocabulary has more than 100,000 tokens, so each is read once."""

    @cache
    def read(family: str) -> Lexicon:
        found = defaultdict(list)
        for token_id, token in families.tokenizer(family).bytes_of.items():
            found[token].append(token_id)
        return dict(found)

    return read


class Sums:
    """Sums over all token sequences of a model, token by token, without the code under test."""

    def __init__(self, engine: EmbeddedEngine, *, lexicon: Lexicon) -> None:
        self.model = engine.model
        self._lexicon = lexicon
        self._rows: dict[tuple[int, ...], np.ndarray] = {}

    def row(self, ids: tuple[int, ...]) -> np.ndarray:
        """Return the log-probability of every token after a sequence."""
        if ids not in self._rows:
            cache = KVCache(self.model, num_slots=1, context_tokens=1024)
            span = Span(slot=0, start=0, token_ids=ids)
            self._rows[ids] = log_softmax(self.model.forward([span], cache=cache).astype(np.float64))[0]
        return self._rows[ids]

    def continuing(self, rest: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield every token that begins the text `rest`, or reaches beyond it into the closing tag."""
        text = rest + b"</"
        for token in (text[:end] for end in range(1, len(text) + 1)):
            for token_id in self._lexicon.get(token, ()):
                yield token_id, token

    def probability(self, ids: tuple[int, ...], rest: bytes, *, longer: Sequence[bytes]) -> float:
        """Return the probability of the text `rest` after a sequence, without the texts in which one of `longer`
        follows."""
        row = self.row(ids) if rest or longer else np.zeros(1)
        if not rest:
            spelled = {token_id for more in longer for token_id, _ in self.continuing(more)}
            return 1.0 - math.fsum(math.exp(row[token_id]) for token_id in spelled)
        return math.fsum(
            math.exp(row[token_id])
            * (
                self.probability((*ids, token_id), rest[len(token) :], longer=longer)
                if len(token) <= len(rest)
                else 1.0
            )
            for token_id, token in self.continuing(rest)
        )


async def place_in(text: str, *, tag: str, between: str, labels: Sequence[str], engine: EmbeddedEngine) -> LabelPlace:
    opens = text.index(f"<{tag}>")
    opened = opens + len(f"<{tag}>")
    found = await place_of_labels(
        engine.tokenizer.encode_now(text),
        text,
        opens=opens,
        opened=opened,
        start=opened + len(between),
        labels=labels,
        closing=f"</{tag}>",
        tokenizer=engine.tokenizer,
    )
    assert found is not None
    return found


def favor_labels(
    engine: EmbeddedEngine, place: LabelPlace, *, num_ids: int, labels: Sequence[str], lexicon: Lexicon
) -> None:
    """Give the tokens that spell a label most of the probability, at each of the next positions."""
    assert isinstance(engine.model, BiasedModel)
    texts = [(place.opening + label).encode() for label in labels]
    parts = {text[start:end] for text in texts for start in range(len(text)) for end in range(start + 1, len(text) + 1)}
    whole = {label.encode() for label in labels} | {place.opening.encode()}

    def favored(pieces: set[bytes]) -> dict[int, float]:
        ends = tuple(whole - {b""})
        biases = {piece: BIAS if piece.endswith(ends) else BIAS - 8 for piece in pieces}
        return {lexicon[piece][-1]: bias for piece, bias in biases.items() if piece in lexicon}

    first = {text[:end] for text in texts for end in range(1, len(text) + 1)}
    later = parts - first - {b"0"} if place.opening else {b"0"}
    engine.model.bias_after = {num_ids: favored(first), num_ids + 1: favored(later), num_ids + 2: favored(parts)}


@CASES
@pytest.mark.parametrize(
    "between", ["", pytest.param("\n", marks=pytest.mark.slow)], ids=["directly", "after a line break"]
)
@each_family
async def test_label_probabilities_equal_the_sum_over_all_token_sequences(
    family: str, between: str, tag: str, labels: tuple[str, ...], engine_of: EngineOf, lexicon_of: LexiconOf
) -> None:
    engine, lexicon = engine_of(family), lexicon_of(family)
    text = f"The second one counts wrong.\n<{tag}>{between}{labels[0]}</{tag}>"
    place = await place_in(text, tag=tag, between=between, labels=labels, engine=engine)
    prefix = tuple(engine.tokenizer.encode_now(text)[: place.num_ids])
    favor_labels(engine, place, num_ids=len(prefix), labels=labels, lexicon=lexicon)
    read = await engine.read_labels(prefix, labels=labels, opening=place.opening, closing=place.closing, session="s")
    assert read is not None
    assert math.fsum(map(math.exp, read.values())) >= 0.5
    sums = Sums(engine, lexicon=lexicon)
    for label in labels:
        longer = [other[len(label) :].encode() for other in labels if other != label and other.startswith(label)]
        expected = sums.probability(prefix, (place.opening + label).encode(), longer=longer)
        assert read[label] == pytest.approx(math.log(expected), abs=1e-3)


@each_family
async def test_a_letter_that_is_joined_with_the_tag_has_no_advantage(
    family: str, engine_of: EngineOf, lexicon_of: LexiconOf
) -> None:
    """In Tekken only `>A` is a token. A model that gives `A` and `B` the same probability, however spelled, is undecided."""
    engine, lexicon = engine_of(family), lexicon_of(family)
    text = "So: <preference>A</preference>"
    place = await place_in(text, tag="preference", between="", labels=("A", "B"), engine=engine)
    assert place.opening == ">"
    prefix = engine.tokenizer.encode_now(text)[: place.num_ids]
    ids_of = {piece: lexicon[piece][-1] for piece in (b">", b"A", b"B", b">A", b">B") if piece in lexicon}
    joined = [ids_of[piece] for piece in (b">A", b">B") if piece in ids_of]
    assert isinstance(engine.model, BiasedModel)
    engine.model.bias_after = {
        len(prefix): {ids_of[b">"]: 200.0, **dict.fromkeys(joined, 100.0)},
        len(prefix) + 1: {ids_of[b"A"]: 200.0, ids_of[b"B"]: 200.0},
    }
    read = await engine.read_labels(prefix, labels=("A", "B"), opening=">", closing="</", session="s")
    assert read is not None
    row = Sums(engine, lexicon=lexicon).row((*prefix, ids_of[b">"]))
    assert read["A"] - read["B"] == pytest.approx(row[ids_of[b"A"]] - row[ids_of[b"B"]], abs=1e-3)


@pytest.mark.parametrize(
    ("family", "joined"),
    [
        pytest.param(family, joined, marks=marks)
        for family, joined, marks in (
            ("qwen3", set(LETTERS) - {*"QUWY"}, ()),
            ("llama3", set(LETTERS) - {*"QUWY"}, (pytest.mark.slow,)),
            ("llama4", set(LETTERS) - {*"QUXYZ"}, (pytest.mark.slow,)),
            ("tekken", {"A"}, (pytest.mark.slow,)),
        )
    ],
)
async def test_vocabularies_join_some_letters_with_the_end_of_a_tag(
    family: str, joined: set[str], families: Families
) -> None:
    tokens = await families.tokenizer(family).tokens_of([f">{letter}" for letter in LETTERS])
    assert {text[1:] for text, ids in tokens.items() if ids} == joined
