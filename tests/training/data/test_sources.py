"""Reading the rows of each data set as problems."""

import json

import pytest

from tests.training.data import rows
from tirjudge.types import ChatMessage, Mode
from tirjudge_training.data.mixture import PAPER_COUNTS, MixtureQuota, chosen_sources, wanted_of
from tirjudge_training.data.problems import AnswerCheck, TrainingProblem
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.data.readers import CONFIG
from tirjudge_training.data.sources import SOURCES


def read(name: str, row: dict, *, part: int = 0) -> TrainingProblem | Rejected:
    source = SOURCES[name]
    return source.problem(row, part=source.parts[part])


def texts(problem: TrainingProblem | Rejected) -> list[tuple[str, bool | None]]:
    assert isinstance(problem, TrainingProblem)
    return [(candidate.text, candidate.right) for candidate in problem.candidates]


def reason(problem: TrainingProblem | Rejected) -> Reason:
    assert isinstance(problem, Rejected)
    return problem.reason


def test_counts_are_those_of_table_6() -> None:
    for mode, count in PAPER_COUNTS.items():
        assert sum(source.wanted[mode] for source in SOURCES.values()) == count
    assert sum(PAPER_COUNTS.values()) == 26_361
    assert len(SOURCES) == 10


def test_helpsteer3_keeps_clear_preferences_and_their_direction() -> None:
    found = [read("helpsteer3", row) for row in rows.helpsteer3(7)]
    assert [isinstance(one, TrainingProblem) for one in found] == [True, True, False, False, False, True, True]
    assert reason(found[2]) is Reason.UNCLEAR_PREFERENCE
    assert texts(found[0])[0] == (f"First words on {rows.phrase(0)}.", True)  # -3: the first is much better
    assert texts(found[6])[0] == (f"Second words on {rows.phrase(6)}.", True)  # 3: the second is much better
    assert isinstance(found[0], TrainingProblem)
    assert (found[0].verifiable, found[0].task, found[0].licence) == (False, "helpfulness", "CC-BY-4.0")
    assert found[0].prompt == f"Tell me about {rows.phrase(0)}."


def test_ultrainteract_keeps_code_and_the_conversation_before_it() -> None:
    found = [read("ultrainteract", row) for row in rows.ultrainteract(3)]
    assert reason(found[2]) is Reason.OTHER_TASK
    assert isinstance(found[0], TrainingProblem)
    assert found[0].prompt == f"Write a function that greets {rows.phrase(0)}."
    assert isinstance(found[1], TrainingProblem)
    assert found[1].prompt == (
        ChatMessage(role="user", content=f"Write a function that greets {rows.phrase(1)}."),
        ChatMessage(role="assistant", content="def greet(): ..."),
        ChatMessage(role="user", content="It prints nothing."),
    )


def test_s1_keeps_mathematics_with_a_short_answer() -> None:
    made = rows.s1(5)
    found = [read("s1", row) for row in made]
    assert isinstance(found[0], TrainingProblem)
    assert (found[0].reference, found[0].check, found[0].candidates) == ("12", AnswerCheck.MATH, ())
    assert reason(found[4]) is Reason.OTHER_TASK
    assert reason(read("s1", {**made[0], "solution": "By symmetry. " * 40})) is Reason.UNVERIFIABLE_ANSWER


def test_coderm_reads_tests_in_python_or_json_syntax() -> None:
    row = rows.coderm(1)[0]
    import ast

    in_json = {**row, "unit_tests": json.dumps(ast.literal_eval(row["unit_tests"]))}
    for found in (read("coderm", row), read("coderm", in_json)):
        assert isinstance(found, TrainingProblem)
        assert len(json.loads(found.reference)) == 3
        assert [candidate.right for candidate in found.candidates] == [True] + [None] * 6
        assert found.candidates[0].text == "```python\ndef add(a, b):\n    return a + b\n```"
    assert reason(read("coderm", {**row, "unit_tests": "[]"})) is Reason.UNVERIFIABLE_ANSWER
    assert reason(read("coderm", {**row, "unit_tests": "no list"})) is Reason.BROKEN_ROW


def test_tulu_rows_become_pairs_with_models_and_prompts_with_verifiers() -> None:
    pair = read("tulu3-if", rows.tulu_pairs(1)[0])
    assert texts(pair) == [("A FINE ANIMAL 0", True), ("a fine animal 0", False)]
    assert isinstance(pair, TrainingProblem)
    assert [candidate.generator for candidate in pair.candidates] == ["model-a", "model-b"]
    prompt = read("tulu3-if", rows.tulu_prompts(1)[0], part=1)
    assert isinstance(prompt, TrainingProblem)
    assert (prompt.check, json.loads(prompt.reference)) == (
        AnswerCheck.INSTRUCTIONS,
        {"func_name": "validate_lowercase"},
    )
    unnamed = {**rows.tulu_prompts(1)[0], "ground_truth": "{}"}
    assert reason(read("tulu3-if", unnamed, part=1)) is Reason.UNVERIFIABLE_ANSWER


def test_math_uses_the_last_box() -> None:
    row = rows.math(1)[0]
    found = read("math", row)
    assert isinstance(found, TrainingProblem)
    assert found.reference == r"\frac{1}{2}"
    assert reason(read("math", {**row, "solution": "It is one half."})) is Reason.UNVERIFIABLE_ANSWER


@pytest.mark.parametrize("column", ["solution", "answer"])
def test_dapo_answer_is_read_from_either_column(column: str) -> None:
    row = rows.dapo(1)[0]
    found = read("dapo-bigmath", {"prompt": row["prompt"], column: "4"})
    assert isinstance(found, TrainingProblem)
    assert (found.reference, found.task) == ("4", "math")


def test_webinstruct_rejects_mathematics_and_answers_that_cannot_be_compared() -> None:
    found = [read("webinstruct", row) for row in rows.webinstruct(4)]
    assert isinstance(found[0], TrainingProblem)
    assert isinstance(found[1], TrainingProblem)
    assert [found[0].check, found[1].check] == [AnswerCheck.MATH, AnswerCheck.TEXT]
    assert [reason(found[2]), reason(found[3])] == [Reason.UNVERIFIABLE_ANSWER, Reason.OTHER_TASK]


def test_loong_keeps_short_answers_of_all_domains_except_programming() -> None:
    row = rows.loong(1)[0]
    assert isinstance(read("loong", {**row, CONFIG: "physics"}), TrainingProblem)
    assert reason(read("loong", {**row, CONFIG: "programming"})) is Reason.OTHER_TASK
    assert reason(read("loong", {**row, "final_answer": "x" * 201})) is Reason.UNVERIFIABLE_ANSWER


def test_saferlhf_prefers_the_safer_response() -> None:
    row = rows.saferlhf(1)[0]
    assert texts(read("saferlhf", {**row, "safer_response_id": 1}))[0] == (row["response_1"], True)
    found = read("saferlhf", row)
    assert isinstance(found, TrainingProblem)
    assert (found.verifiable, found.licence) == (False, "CC-BY-NC-4.0")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("helpsteer3", {"overall_preference": None}),
        ("helpsteer3", {"context": []}),
        ("helpsteer3", {"response1": ""}),
        ("saferlhf", {"safer_response_id": 2}),
        ("ultrainteract", {"trajectory": [{"from": "stranger", "value": "hello"}]}),
        ("math", {"problem": None}),
    ],
)
def test_row_with_a_broken_column_is_rejected(name: str, change: dict) -> None:
    row = rows.FILES[name](1)[0]
    assert isinstance(read(name, row), TrainingProblem)
    assert reason(read(name, {**row, **change})) is Reason.BROKEN_ROW


def test_sources_are_selected_by_license_and_task() -> None:
    assert "saferlhf" not in {source.name for source in chosen_sources(commercial=True)}
    assert len(chosen_sources(commercial=True)) == 9
    assert {source.task for source in chosen_sources(only=["math", "code"])} == {"math", "code"}
    with pytest.raises(ValueError, match="the tasks are code, helpfulness"):
        chosen_sources(only=["poetry"])
    with pytest.raises(ValueError, match="unknown source 'mathe'; the sources are helpsteer3"):
        chosen_sources(["mathe"])
    with pytest.raises(ValueError, match="no source is left"):
        chosen_sources(["saferlhf"], commercial=True)


def test_scale_rounds_to_at_least_one() -> None:
    assert wanted_of(SOURCES["coderm"], scale=0.01) == {Mode.POINTWISE: 10, Mode.PAIRWISE: 10, Mode.LISTWISE: 5}
    assert wanted_of(SOURCES["webinstruct"], scale=0.001)[Mode.LISTWISE] == 1  # 0.091
    assert Mode.LISTWISE not in wanted_of(SOURCES["s1"], scale=1.0)
    with pytest.raises(ValueError, match=r"scale: .* got 2"):
        wanted_of(SOURCES["s1"], scale=2)


def test_quota_prefers_the_mode_with_the_lowest_share() -> None:
    quota = MixtureQuota({Mode.POINTWISE: 2, Mode.PAIRWISE: 2, Mode.LISTWISE: 1})
    modes = []
    for _ in range(6):
        mode = quota.mode_for([Mode.POINTWISE, Mode.PAIRWISE])
        if mode is not None:
            quota.count(mode)
        modes.append(mode)
    point, pair = Mode.POINTWISE, Mode.PAIRWISE
    assert modes == [point, pair, point, pair, None, None]
    assert not quota.is_filled
    assert quota.mode_for([Mode.LISTWISE]) is Mode.LISTWISE


def test_documentation_has_every_option_source_and_reason() -> None:
    from pathlib import Path

    import typer

    from tirjudge_training.data.cli import app

    page = (Path(__file__).parents[3] / "docs" / "training-data.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app)
    options = {
        option
        for name in ("build", "problems", "check", "sources")
        for parameter in getattr(command, "commands")[name].params  # noqa: B009
        for option in parameter.opts
        if option.startswith("--")
    }
    assert len(options) > 15
    assert [option for option in sorted(options) if f"`{option}`" not in page] == []
    for source in SOURCES.values():
        counts = " / ".join(str(source.wanted[mode]) for mode in (Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE))
        assert f"| {counts} | {source.licence} |" in page
        assert f"| `{source.name}` |" in page
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
