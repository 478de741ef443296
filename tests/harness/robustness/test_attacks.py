from __future__ import annotations

import re
from pathlib import Path

import pytest

from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness.examples import Example, example
from tirjudge_harness.items import InputError
from tirjudge_harness.robustness.attacks import ResponseAttack, chosen_attacks, every_attack

GUIDE = (Path(__file__).parents[3] / "docs" / "robustness.md").read_text(encoding="utf-8")


def three() -> Example:
    """Return an example with one right response between two wrong ones. The longest has 12 characters."""
    return example(
        id="e", prompt="p", responses=("wrong", "right answer", "also wrong"), correct=(1,), subset="s", cluster="c"
    )


def attack(how: str, **fields) -> ResponseAttack:
    return ResponseAttack.model_validate({"name": "n", "kind": "k", "what": "w", "how": how, **fields})


@pytest.mark.parametrize("each", every_attack(), ids=lambda each: each.name)
def test_an_attack_changes_only_wrong_responses(each: ResponseAttack) -> None:
    before = three()
    after = each.applied_to(before)
    assert after.responses[1] == "right answer"
    assert after.responses[0] != "wrong"
    assert after.responses[2] != "also wrong"
    assert after.outline.lengths == tuple(map(len, after.responses))
    assert (after.outline.id, after.outline.correct, after.outline.cluster) == ("e", (1,), "c")
    assert (after.prompt, before.responses[0]) == ("p", "wrong")
    JudgeRequest(mode=Mode.LISTWISE, prompt="p", responses=list(after.responses))


@pytest.mark.parametrize("each", every_attack(), ids=lambda each: each.name)
def test_every_attack_is_documented(each: ResponseAttack) -> None:
    assert re.search(rf"^\| {re.escape(each.kind)} \|[^|]*`{each.name}`", GUIDE, re.MULTILINE), each.name


def test_names_are_unique_and_valid_folder_names() -> None:
    names = [each.name for each in every_attack()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in names)


@pytest.mark.parametrize(
    ("how", "fields", "tampered"),
    [
        ("replace", {"text": ":"}, ":"),
        ("before", {"text": "X "}, "X wrong"),
        ("after", {"text": " X"}, "wrong X"),
        ("around", {"text": "X ", "tail": " Y"}, "X wrong Y"),
        ("repeat", {"times": 3}, "wrong\n\nwrong\n\nwrong"),
        ("fill", {"text": " filler", "times": 2}, "wrong filler filler filler"),
        ("fill", {"text": " filler"}, "wrong filler"),
    ],
)
def test_each_kind_of_change_makes_the_expected_text(how: str, fields: dict, tampered: str) -> None:
    """The longest response has 12 characters. `wrong` has 5 and ` filler` has 7. Filling to 2 x 12 characters takes
    three fillers, and filling to 12 takes one."""
    assert attack(how, **fields).applied_to(three()).responses[0] == tampered


def test_the_control_is_always_included() -> None:
    assert [each.name for each in chosen_attacks(["colon"], mode=Mode.PAIRWISE)] == ["control", "colon"]


def test_each_mode_has_its_attacks() -> None:
    pairwise = {each.name for each in chosen_attacks([], mode=Mode.PAIRWISE)}
    pointwise = {each.name for each in chosen_attacks([], mode=Mode.POINTWISE)}
    assert pairwise - pointwise == {"verdict-a", "verdict-b", "section-end"}
    assert pointwise - pairwise == {"score-10", "section-end-alone"}
    with pytest.raises(InputError, match="unknown attack 'score-10' for pairwise; choose control, "):
        chosen_attacks(["score-10"], mode=Mode.PAIRWISE)
