"""Probabilities of labels from alternative tokens. The expected values were computed manually."""

import math

import pytest

from tirjudge.alternatives import label_logprobs
from tirjudge.types import Completion, TokenAlternatives

SCORES = tuple(str(score) for score in range(1, 11))


def written(*tokens: tuple[str, dict[str, float]]) -> Completion:
    """Return a completion of these tokens, each with the probabilities of its alternatives."""
    places, start = [], 0
    for text, chances in tokens:
        places.append(
            TokenAlternatives(start=start, text=text, logprobs={name: math.log(p) for name, p in chances.items()})
        )
        start += len(text)
    text = "".join(token for token, _ in tokens)
    return Completion(text=text, token_ids=(), logprobs=(), finish_reason="stop", places=tuple(places))


def probabilities(completion: Completion, *, start: int, labels: tuple[str, ...]) -> dict[str, float]:
    return {
        label: math.exp(logprob) for label, logprob in label_logprobs(completion, start=start, labels=labels).items()
    }


def test_a_label_has_the_sum_of_its_tokens_with_and_without_a_space() -> None:
    completion = written(("<preference>", {"<preference>": 1.0}), (" A", {" A": 0.5, "A": 0.1, " B": 0.3, " C": 0.05}))
    assert probabilities(completion, start=13, labels=("A", "B")) == pytest.approx({"A": 0.6, "B": 0.3})


def test_a_token_that_also_contains_the_end_of_the_tag_is_parsed() -> None:
    completion = written(("<preference", {"<preference": 1.0}), (">B", {">B": 0.7, ">A": 0.2, ">": 0.1}))
    assert probabilities(completion, start=12, labels=("A", "B")) == pytest.approx({"A": 0.2, "B": 0.7})


def test_a_label_that_is_not_among_the_alternatives_has_probability_0() -> None:
    completion = written(("A", {"A": 0.9, "the": 0.1}))
    assert probabilities(completion, start=0, labels=("A", "B")) == pytest.approx({"A": 0.9, "B": 0.0})


def test_ten_in_two_tokens_gets_its_share_of_the_token_1() -> None:
    completion = written(("1", {"1": 0.8, "9": 0.2}), ("0", {"0": 0.75, "<": 0.25}))
    found = probabilities(completion, start=0, labels=SCORES)
    assert found["10"] == pytest.approx(0.6)
    assert found["1"] == pytest.approx(0.2)
    assert found["9"] == pytest.approx(0.2)


def test_label_1_keeps_the_probability_that_does_not_belong_to_10() -> None:
    completion = written(("1", {"1": 0.8, "9": 0.2}), ("</", {"</": 0.75, "0": 0.25}))
    found = probabilities(completion, start=0, labels=SCORES)
    assert found["1"] == pytest.approx(0.6)
    assert found["10"] == pytest.approx(0.2)


def test_ten_in_one_token_is_the_label_10() -> None:
    completion = written(("10", {"10": 0.7, "1": 0.1, "9": 0.2}), ("</", {"</": 1.0}))
    found = probabilities(completion, start=0, labels=SCORES)
    assert (found["10"], found["1"]) == (pytest.approx(0.7), pytest.approx(0.1))


@pytest.mark.parametrize(
    "completion",
    [
        Completion(text="A", token_ids=(), logprobs=(), finish_reason="stop"),
        written(("Hm", {"Hm": 1.0}), ("A", {"the": 1.0})),
    ],
    ids=["no alternatives", "no label among them"],
)
def test_without_a_label_among_the_alternatives_there_are_no_probabilities(completion: Completion) -> None:
    assert label_logprobs(completion, start=completion.text.index("A"), labels=("A", "B")) == {}
