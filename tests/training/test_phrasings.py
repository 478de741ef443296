"""Choices and opposites: training sentences are complete, distinct between kinds, and never held out."""

import re
from random import Random

import pytest

from tirjudge_training.synthetic.instructions import KINDS, OPS, InstructionKind, Params, phrasing
from tirjudge_training.synthetic.phrasings import (
    COUNTS,
    INSTRUCTIONS,
    NUMERIC,
    OPPOSITES,
    RELATIONS,
    Phrasings,
    normalized,
    resolved,
)

TABLES = {"instruction": INSTRUCTIONS, "count": COUNTS, "relation": RELATIONS, "numeric": NUMERIC}
ALL_PHRASINGS = [(f"{table} {name}", phrasings) for table, group in TABLES.items() for name, phrasings in group.items()]
SLOTS = {"rel", "n", "noun", "q", "qs", "name"}


def draws(phrasings: Phrasings, *, num: int = 200) -> list[str]:
    rng = Random(1)
    return [phrasings.pick(rng=rng, held_out=False) for _ in range(num)]


def test_one_option_of_each_choice_is_drawn_and_other_parentheses_are_kept() -> None:
    sentences = {resolved("(Use|Write) gcd(1, 2)( (now|soon)|) (like this).", rng=Random(seed)) for seed in range(100)}
    assert sentences == {f"{a} gcd(1, 2){b} (like this)." for a in ("Use", "Write") for b in (" now", " soon", "")}


@pytest.mark.parametrize("phrasings", [p for _, p in ALL_PHRASINGS], ids=[name for name, _ in ALL_PHRASINGS])
def test_every_choice_is_resolved_completely(phrasings: Phrasings) -> None:
    rng = Random(1)
    for template in phrasings.training:
        for _ in range(60):
            sentence = resolved(template, rng=rng)
            assert "|" not in sentence
            assert sentence.count("(") == sentence.count(")")
            assert not re.search(r"\s\s|^\s|\s[.,]|\s$", sentence), sentence
            slots = set(re.findall(r"\{(.*?)\}", sentence))
            assert all(slot in SLOTS or slot.isdigit() for slot in slots), sentence
            assert re.sub(r"\{\w+\}", "", sentence).count("{") == 0


@pytest.mark.parametrize("phrasings", [p for _, p in ALL_PHRASINGS], ids=[name for name, _ in ALL_PHRASINGS])
def test_drawn_sentences_are_not_held_out(phrasings: Phrasings) -> None:
    assert not {normalized(s) for s in draws(phrasings)} & {normalized(s) for s in phrasings.held_out}


def test_held_out_sentence_is_drawn_again() -> None:
    sentences = Phrasings(training=("(Use|Avoid) {q}.",), held_out=("avoid {q}",))
    assert set(draws(sentences)) == {"Use {q}."}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_training_sentences_never_equal_held_out_sentences_of_any_kind(kind: InstructionKind) -> None:
    apart = {
        normalized(s)
        for name, p in ALL_PHRASINGS
        if name.startswith("instruction")
        for s in p.held_out
        if "{rel}" not in s
    }
    rng = Random(1)
    for i in range(200):
        params = Params(number=3, op=list(OPS)[i % len(OPS)])
        assert normalized(phrasing(kind, params, rng=rng, held_out=False)) not in apart


@pytest.mark.parametrize("kinds", OPPOSITES, ids="/".join)
def test_opposites_share_templates_but_no_sentences(kinds: tuple[str, ...]) -> None:
    one, other = (set(INSTRUCTIONS[kind].training) for kind in kinds)
    assert not one & other
    drawn = [set(map(normalized, draws(INSTRUCTIONS[kind], num=2000))) for kind in kinds]
    assert not drawn[0] & drawn[1]
    assert all(len(sentences) > 400 for sentences in drawn)


def test_most_easily_confused_kinds_are_opposites() -> None:
    assert {"all capitals", "keywords", "no commas", "start"} <= {kinds[0] for kinds in OPPOSITES}
