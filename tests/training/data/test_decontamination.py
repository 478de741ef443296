"""Decontamination: items that share eight words in a row with a benchmark are found, with some exceptions."""

import subprocess
import sys

import numpy as np
import pytest

from tirjudge.types import Mode
from tirjudge_training.data.decontamination import GramMaker, contaminated, index_of
from tirjudge_training.items import TrainingItem

NOTHING = np.zeros(0, dtype=np.uint64)
LEAKED = "a train leaves the town of Ulm at nine and meets another one"  # 13 words, so six 8-grams


def item(
    prompt: str, *, number: int = 0, responses: tuple[str, str] = ("yes", "no"), source: str = "ours"
) -> TrainingItem:
    return TrainingItem(
        id=f"{source}/{number}", mode=Mode.PAIRWISE, prompt=prompt, responses=responses, best=0, task="math",
        source=source, verifiable=True, order=(0, 1),
    )  # fmt: skip


def test_number_of_8_grams_matches_manual_values() -> None:
    maker = GramMaker()
    assert len(maker.grams(LEAKED)) == 13 - 8 + 1
    assert len(maker.grams("one two three four five six seven eight")) == 1
    assert len(maker.grams("too short")) == 1
    assert len(maker.grams("?!")) == 0
    assert len(maker.grams("a a a a a a a a a a a a")) == 1  # the same 8-gram five times


def test_8_grams_ignore_case_and_punctuation_but_not_order() -> None:
    maker = GramMaker()
    first = maker.grams("one two three four five six seven eight")
    assert (maker.grams("ONE, two; (three) four\nfive six - seven eight!") == first).all()
    assert (maker.grams("two one three four five six seven eight") != first).all()


def test_eight_words_in_a_row_are_contamination_and_seven_are_not() -> None:
    index = index_of({"bench": [LEAKED]})
    words = LEAKED.split()
    seven, eight = " ".join(words[2:9]), " ".join(words[2:10])
    assert index.found_in([f"it is said that {seven} pigeons fly by at noon today"], exempt=NOTHING) is None
    assert index.found_in([f"it is said that {eight} pigeons fly by at noon today"], exempt=NOTHING) == "bench"


def test_short_prompts_are_found_if_they_are_equal() -> None:
    index = index_of({"bench": ["Name three rivers."]})
    assert index.found_in(["name three rivers"], exempt=NOTHING) == "bench"
    assert index.found_in(["name three rivers of Spain"], exempt=NOTHING) is None
    assert index.found_in(["name three"], exempt=NOTHING) is None


def test_first_benchmark_by_name_is_reported() -> None:
    index = index_of({"b": [LEAKED], "a": [LEAKED], "c": ["nothing of the kind"]})
    assert index.found_in([LEAKED], exempt=NOTHING) == "a"
    assert index.num_prompts == {"a": 1, "b": 1, "c": 1}


def test_without_benchmarks_nothing_is_found() -> None:
    assert index_of({}).found_in([LEAKED], exempt=NOTHING) is None


def test_only_planted_items_are_found() -> None:
    items = [
        item(f"Question {n} on {n * 7} apples, {n * 11} pears, and {n * 13} plums in a bowl", number=n)
        for n in range(50)
    ]
    planted = {7, 21, 49}
    items = [
        item(f"Given that {LEAKED}, answer {n}.", number=n) if n in planted else one for n, one in enumerate(items)
    ]
    index = index_of({"bench": [LEAKED, "some other prompt that is not among them at all, nowhere"]})
    assert contaminated(items, index=index) == {f"ours/{n}": "bench" for n in planted}


def test_responses_are_compared_only_on_request() -> None:
    items = [item("Who wrote it?", responses=(f"I recall: {LEAKED}", "no"))]
    index = index_of({"bench": [LEAKED]})
    assert contaminated(items, index=index) == {}
    assert contaminated(items, index=index, with_responses=True) == {"ours/0": "bench"}


def test_template_of_a_data_set_is_ignored() -> None:
    template = "Solve the following problem and put your final answer in a box"  # 12 words, so five 8-grams
    items = [item(f"{template}: {n} plus {n * 3} plus {n * 5}", number=n) for n in range(30)]
    items[4] = item(f"{template}: {LEAKED}", number=4)
    index = index_of({"bench": [f"{template}: {LEAKED}"]})
    assert contaminated(items, index=index) == {"ours/4": "bench"}


def test_boilerplate_is_ignored() -> None:
    index = index_of({"bench": [LEAKED]})
    assert contaminated([item(LEAKED)], index=index, exempt=index.grams_of([LEAKED])) == {}
    # The first 8-gram is exempt, the other five are not.
    first = " ".join(LEAKED.split()[:8])
    assert contaminated([item(LEAKED)], index=index, exempt=index.grams_of([first])) == {"ours/0": "bench"}


@pytest.mark.slow
def test_hashes_are_equal_in_every_process() -> None:
    code = (
        "from tirjudge_training.data.decontamination import index_of\n"
        "print(index_of({'b': ['one two three']}).fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "1"}
    )
    assert other.stdout == f"{index_of({'b': ['one two three']}).fingerprint}\n"


@pytest.mark.parametrize("text", ["", "   ", "…"])
def test_prompt_without_words_is_not_a_match(text: str) -> None:
    assert index_of({"bench": [LEAKED, ""]}).found_in([text], exempt=NOTHING) is None
