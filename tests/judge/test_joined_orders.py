"""Opposite orders are joined by the rule of the format's authors. The expected values were computed manually."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.command_line import run_command
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.formats import format_named
from tirjudge.formats.declaration import FormatFile, parse_format
from tirjudge.formats.declared import format_of_file
from tirjudge.judge import Judge, content_order
from tirjudge.profile import Profile
from tirjudge.right import Decision, ScoringRule, credit, decisions_of
from tirjudge.types import JudgeRequest, Judgment, Mode

JOINED = ScoringRule(orders="joined")
PAIR = JudgeRequest(mode=Mode.PAIRWISE, prompt="p", responses=["FIRST", "SECOND"], orders="both")
FIRST, SECOND = content_order(PAIR)
"""The responses in the order that is shown first."""


async def judged(format: str, there: Sequence[str], back: Sequence[str], *, votes: int = 1) -> Judgment:
    """Judge `PAIR`. `there` are the texts of the votes on the first order, `back` those on the opposite order."""
    texts = {FIRST: iter(there), SECOND: iter(back)}

    def write(prompt: str) -> str:
        return next(texts[FIRST if (prompt.index("FIRST") < prompt.index("SECOND")) == (FIRST == 0) else SECOND])

    judge = Judge(engine=ScriptedEngine(write), profile=Profile(format=format))
    return await judge.judge(PAIR.model_copy(update={"votes": votes, "temperature": 1.0}))


def scores(first: float, second: float, ranking: float) -> str:
    return json.dumps({"score_1": first, "score_2": second, "ranking": ranking})


@pytest.mark.parametrize(
    ("format", "there", "back", "best", "reason"),
    [
        # Arena-Hard: a strong preference has 3 points, a slight one 1 point, a tie half a point for each.
        ("arena-hard", "[[A>>B]]", "[[A>B]]", FIRST, None),  # 3 to 1
        ("arena-hard", "[[A>B]]", "[[A>B]]", None, "orders_disagree"),  # 1 to 1
        ("arena-hard", "[[A>B]]", "[[A>>B]]", SECOND, None),  # 1 to 3
        ("arena-hard", "[[A=B]]", "[[A>B]]", SECOND, None),  # 0.5 to 1.5
        ("arena-hard", "[[A=B]]", "[[B=A]]", None, "judged_equal"),  # 1 to 1
        ("arena-hard-creative", "[[b<<a]]", "[[B<A]]", FIRST, None),  # 3 to 1
        # MT-Bench: orders that disagree are a tie, also with a tie.
        ("mt-bench-pair", "[[A]]", "[[C]]", None, "orders_disagree"),
        ("mt-bench-pair", "[[A]]", "[[A]]", None, "orders_disagree"),
        ("mt-bench-pair", "[[A]]", "[[B]]", FIRST, None),
        # Nemotron GenRM: the scores are added; the ranking moves equal scores apart.
        ("nemotron-genrm", scores(3, 3, 2), scores(4, 3, 1), FIRST, None),  # 4.5 + 3 to 1.5 + 4
        ("nemotron-genrm", scores(4, 2, 1), scores(5, 4, 1), FIRST, None),  # 4 + 4 to 2 + 5
        ("nemotron-genrm", scores(4, 3, 1), scores(4, 3, 1), None, "orders_disagree"),  # 4 + 3 to 3 + 4
        ("nemotron-genrm", scores(2, 4, 6), scores(3, 1, 1), SECOND, None),
        # JudgeLM: its authors do not join orders.
        ("judgelm", "9 1", "6 5", None, "orders_disagree"),
    ],
)
async def test_opposite_orders_are_joined_as_the_authors_do(
    format: str, there: str, back: str, best: int | None, reason: str | None
) -> None:
    judgment = await judged(format, [there], [back])
    verdict = judgment.verdict
    assert (verdict.best, verdict.reason) == (best, reason)
    assert verdict.status == ("tie" if best is None else "decided")
    right = frozenset({FIRST})
    assert credit(decisions_of(judgment, asked=(0, 1)), (0, 1), right=right, mode=Mode.PAIRWISE, counting=JOINED) == (
        {FIRST: "right", SECOND: "wrong", None: "tie"}[best],
        float(best == FIRST),
    )


async def test_all_votes_are_counted_if_points_are_added() -> None:
    # Means per order: 3 to 0, and (1 + 1 + 3) / 3 for the other response. By majority, the orders disagree.
    judgment = await judged("arena-hard", ["[[A>>B]]"] * 3, ["[[A>B]]", "[[A>B]]", "[[A>>B]]"], votes=3)
    assert judgment.usage.rollouts == 6
    assert judgment.verdict.best == FIRST
    majority = await judged("mt-bench-pair", ["[[A]]"] * 2, ["[[B]]"] * 2, votes=3)
    assert (majority.usage.rollouts, majority.verdict.best) == (4, FIRST)


async def test_a_missing_verdict_in_one_order_is_not_joined() -> None:
    judgment = await judged("arena-hard", ["[[A>>B]]"], ["I cannot say."])
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "no_verdict")
    found = credit(
        decisions_of(judgment, asked=(0, 1)), (0, 1), right=frozenset({FIRST}), mode=Mode.PAIRWISE, counting=JOINED
    )
    assert found == ("none", 0.0)


async def test_points_are_recorded_for_formats_that_add_them() -> None:
    judgment = await judged("arena-hard", ["[[A>>B]]"], ["[[A=B]]"])
    points = {tuple(rollout.order): rollout.verdict and rollout.verdict.points for rollout in judgment.rollouts}
    assert points == {(FIRST, SECOND): [3.0, 0.0], (SECOND, FIRST): [0.5, 0.5]}
    assert Judgment.model_validate_json(judgment.model_dump_json()) == judgment
    assert "points" not in (await judged("mt-bench-pair", ["[[A]]"], ["[[B]]"])).model_dump_json()


def test_decisions_without_points_count_if_every_order_is_right() -> None:
    orders = [Decision(shown=(0, 1), best=0), Decision(shown=(1, 0), best=0)]
    right = frozenset({0})
    assert credit(orders, (0, 1), right=right, mode=Mode.PAIRWISE, counting=JOINED) == ("right", 1.0)
    split = [orders[0], Decision(shown=(1, 0), best=1)]
    assert credit(split, (0, 1), right=right, mode=Mode.PAIRWISE, counting=JOINED) == ("tie", 0.0)


MINE = """
title = "Mine"
join = "points"
[[pairwise.prompt]]
[[pairwise.prompt.message]]
content = "{{prompt}} {{response_a}} {{response_b}}"
[[pairwise.verdict]]
form = "label"
before = ["["]
labels = { "A+" = "A", A = "A", B = "B" }
points = { "A+" = 2.5 }
[[pairwise.example]]
text = "[A+"
label = "A"
"""


async def test_a_file_of_a_user_joins_by_points(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINE)
    judgment = await judged(str(file), ["[A+"], ["[A"])
    assert judgment.verdict.best == FIRST
    agrees = tmp_path / "agrees.toml"
    agrees.write_text(MINE.replace('join = "points"', "").replace('points = { "A+" = 2.5 }', ""))
    assert (await judged(str(agrees), ["[A+"], ["[A"])).verdict.reason == "orders_disagree"
    assert format_of_file(str(file)).sha256 != format_of_file(str(agrees)).sha256


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("join =", "# join ="), r'pairwise: points: given for labels, but they only count with join = "points"'),
        (('"A+" = 2.5', "C = 2"), r"points: 'C' is not a label that names a response; labels: A\+, A, B"),
        (('"A+" = 2.5', "A = 0"), "greater than 0"),
        (('"A+" = 2.5', "A = nan"), "greater than 0|less than or equal"),
        (('join = "points"', 'join = "mean"'), "'agree' or 'points'"),
    ],
)
def test_wrong_rules_are_errors(change: tuple[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_format(MINE.replace(*change).encode(), origin="mine.toml")


def test_a_ranking_gives_no_points() -> None:
    shipped = format_named("rewardanything").file.model_dump(mode="json", exclude_none=True)  # type: ignore
    shipped["join"] = "points"
    with pytest.raises(ValueError, match="a ranking gives no points"):
        FormatFile.model_validate(shipped)


def test_the_rule_is_shown() -> None:
    shown = run_command("formats", "show", "arena-hard")
    assert "orders of the authors: both; opposite orders: the most points win" in shown.stdout
    shown = run_command("formats", "show", "mt-bench-pair")
    assert "orders of the authors: both; opposite orders: orders that disagree are a tie" in shown.stdout
