"""Synthetic items: the ground truth, the program and the generated response must agree."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from random import Random

import pytest

from tirjudge.formats.blocks import bindings, labels
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.types import MODEL_MODES, Mode, label_of
from tirjudge_training.synthetic import phrasings
from tirjudge_training.synthetic.examples import Mixture, SyntheticExample, draw_examples, segments
from tirjudge_training.synthetic.instructions import KINDS
from tirjudge_training.synthetic.numeric import NUMERIC
from tirjudge_training.synthetic.phrasings import COUNTS, HARM, INSTRUCTIONS, PLAIN, RELATIONS
from tirjudge_training.synthetic.programs import Places, run_trusted
from tirjudge_training.synthetic.vocabulary import HELD_OUT, TRAINING

NUM_EXAMPLES = 500


def parse_verdict(texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> str | None:
    """Return the label of the verdict, or None."""
    found = FORMAT.find_verdict(texts, mode=mode, labels=labels)
    return None if found is None else found.label


def draw(
    mode: Mode, *, held_out: bool = False, seed: int = 1, num: int = NUM_EXAMPLES, **shares: float
) -> list[SyntheticExample]:
    mixture = Mixture(**shares)  # type: ignore[arg-type]
    return list(islice(draw_examples(mode, rng=Random(seed), held_out=held_out, mixture=mixture), num))


def printed(example: SyntheticExample) -> str:
    assert example.code is not None
    return run_trusted(
        example.code, bindings=bindings(example.mode, prompt=example.prompt, responses=example.responses)
    )


@pytest.mark.parametrize("num", [NUM_EXAMPLES, pytest.param(3 * NUM_EXAMPLES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("held_out", [False, True], ids=["training", "held out"])
def test_every_program_finds_the_best_response(held_out: bool, num: int) -> None:
    seen: Counter[str] = Counter()
    for example in draw(Mode.PAIRWISE, held_out=held_out, num=num, conduct=0.0, toolless=0.0):
        top = [label_of(i) for i, share in enumerate(example.met) if share == max(example.met)]
        assert printed(example).splitlines()[-1] == f"best {' '.join(top)}", example
        seen.update(name.split(" <")[0].split(" >")[0].split(" ==")[0] for name in example.plan[10:-1].split(", "))
    assert {kind.name for kind in KINDS} | {kind.name for kind in NUMERIC} <= set(seen)


def test_every_score_is_the_share_of_followed_instructions() -> None:
    for example in draw(Mode.POINTWISE, conduct=0.0, toolless=0.0):
        assert printed(example).splitlines()[-1] == f"score {1 + int(9 * example.met[0] + 1e-9)}"


def test_lists_have_2_to_26_responses_and_one_best_response() -> None:
    examples = draw(Mode.LISTWISE, conduct=0.0, toolless=0.0, ties=0.0, long_lists=0.3, num=200)
    sizes = {len(example.responses) for example in examples}
    assert min(sizes) == 2
    assert max(sizes) > 20
    assert all(sum(share == max(e.met) for share in e.met) == 1 for e in examples)
    places = Counter(example.label for example in examples if len(example.responses) == 4)
    assert set(places) == {0, 1, 2, 3}


def test_loop_parses_the_learned_judgments() -> None:
    for mode in MODEL_MODES:
        for example in draw(mode, num=100):
            parts = segments(example)
            written = [part.text for part in parts if part.by_model]
            assert parse_verdict(written, mode=mode, labels=labels(mode, len(example.responses))) is not None
            blocks = FORMAT.blocks(written[0], names=("python",))
            assert (blocks[-1].source if blocks else None) == example.code
            assert [part.by_model for part in parts] == ([True] if example.code is None else [True, False, True])


def test_items_without_tools_or_computation_have_no_program() -> None:
    for example in draw(Mode.PAIRWISE, conduct=0.5, toolless=0.5, num=200):
        assert (example.code is None) == (not example.tools or not example.verifiable)


def test_verdict_without_tools_is_a_guess() -> None:
    guesses = draw(Mode.PAIRWISE, toolless=1.0, conduct=0.0, ties=0.0)
    right = sum(example.met[example.label] == max(example.met) for example in guesses)
    assert 0.4 < right / len(guesses) < 0.6


def test_held_out_words_and_phrasings_are_not_in_training() -> None:
    for part in ("nouns", "adjectives", "verbs", "topics", "names"):
        assert not set(getattr(TRAINING, part)) & set(getattr(HELD_OUT, part)), part
    tables = [*INSTRUCTIONS.values(), *COUNTS.values(), *phrasings.NUMERIC.values(), HARM, PLAIN]
    for phrasing in (*tables, *RELATIONS.values()):
        assert not {normalized(s) for s in phrasing.training} & {normalized(s) for s in phrasing.held_out}
    assert {kind.name for kind in KINDS} == set(INSTRUCTIONS)
    assert {kind.name for kind in NUMERIC} == set(phrasings.NUMERIC)


def normalized(sentence: str) -> str:
    """Return the sentence in lower case without punctuation."""
    return " ".join(re.findall(r"\w+|[{}+%-]", sentence.lower()))


def test_same_seed_draws_the_same_items() -> None:
    assert draw(Mode.LISTWISE, num=50) == draw(Mode.LISTWISE, num=50)
    assert draw(Mode.LISTWISE, num=50) != draw(Mode.LISTWISE, num=50, seed=2)


def test_programs_find_numbers_quotations_and_named_words() -> None:
    prompt = "Don't use the word boat twice. Say 'it's late' and “so long” in three or 12 lines."
    places = Places.of(prompt)
    assert [prompt[i:].split()[0] for i in places.numbers] == ["three", "12"]
    assert [prompt[i : i + 2] for i in places.quotations] == ["it", "so"]
    assert [prompt[i : i + 4] for i in places.named_words] == ["boat"]
    resolved = places.resolve(
        "r.count(q0) {op} n0", op=">=", number_at=places.numbers[1], quotes_at=[places.quotations[0]], quoted=True
    )
    assert resolved == "r.count(q[0]) >= n[1]"
    with pytest.raises(ValueError):
        places.resolve("r.count(q0)", op="==", number_at=None, quotes_at=[3], quoted=True)
