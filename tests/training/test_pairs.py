"""Synthetic pairs, sampled from a chat endpoint on a real socket and checked in the real sandbox."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.chat_server import ChatServer, serving_chat
from tirjudge.durable import Journal
from tirjudge.types import ChatMessage, Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_training.data.problems import (
    AnswerCheck,
    CandidateAnswer,
    TrainingProblem,
    read_candidates,
    write_problems,
)
from tirjudge_training.data.quality import Reason, Rejected
from tirjudge_training.items import read_items
from tirjudge_training.pairs.checks import last_number, marked, numerically_marked, open_checks
from tirjudge_training.pairs.cli import pairs
from tirjudge_training.pairs.generated import draw_problems
from tirjudge_training.pairs.instructions import NoVerifier, follows
from tirjudge_training.pairs.sampling import AnswerPlan, SampleLine, asks_of

APP = typer.Typer()
APP.command()(pairs)


def problem(name: str, **changed: Any) -> TrainingProblem:
    given: dict[str, Any] = {
        "id": name, "prompt": f"What is 6 times 7? ({name})", "check": AnswerCheck.MATH, "task": "math", "source": "sums",
        "licence": "MIT", "verifiable": True, "reference": "42",
    }  # fmt: skip
    return TrainingProblem(**{**given, **changed})


DOUBLE = problem(
    "double", prompt="Write a function that doubles. (double)", check=AnswerCheck.TESTS, task="code", source="code",
    reference=json.dumps(
        ["import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        assert double(4) == 8\n"]
    ),
)  # fmt: skip
LOWER = problem(
    "lower", prompt="Say something in lowercase. (lower)", check=AnswerCheck.INSTRUCTIONS, task="instructions",
    source="rules", reference='{"func_name": "validate_lowercase"}',
)  # fmt: skip

ANSWERS = {
    "double": ("def double(x): return 2 * x", "def double(x): return x ** 2"),
    "lower": ("quietly said", "LOUDLY SAID"),
}


def scripted_answers() -> Callable[[str], str]:
    """Return a model function. Its first answer to a problem is right, and its later answers are wrong."""
    turns: Counter[str] = Counter()
    lock = threading.Lock()

    def say(conversation: str) -> str:
        match = re.search(r"\((\w+)\)", conversation)
        name = match[1] if match else ""
        with lock:
            turn, turns[name] = turns[name], turns[name] + 1
        if name in ANSWERS:
            return ANSWERS[name][min(turn, 1)]
        # the third wrong answer is equivalent to the second one
        return ("It is 42.", "It is 41.", "It is 40.", "So the answer is 40.", "It is 39.", "It is 38.")[turn % 6]

    return say


def run_pairs(chat: ChatServer, tmp_path: Path, *more: str) -> Any:
    arguments = ["--problems", str(tmp_path / "problems.jsonl"), "--endpoint", chat.url, "--out", str(tmp_path / "out")]
    return CliRunner().invoke(APP, [*arguments, "--slots", "1", *more])


@pytest.mark.slow
def test_answers_become_items_for_every_kind_of_check(tmp_path: Path) -> None:
    write_problems([problem("sum"), DOUBLE, LOWER], tmp_path / "problems.jsonl")
    with serving_chat(scripted_answers()) as chat:
        done = run_pairs(chat, tmp_path, "--model", "a,b", "--samples", "3", "--concurrency", "1")
    assert done.exit_code == 0, done.output
    body = chat.bodies[0]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.9, 0.95, 4096)
    assert body["messages"] == [{"role": "user", "content": "What is 6 times 7? (sum)"}]
    items = {item.id: item for item in read_items(tmp_path / "out" / "items.parquet")}
    assert set(items) == {f"{name}/{mode}" for name in ("sums/sum", "code/double", "rules/lower") for mode in
                          ("pointwise", "pairwise")} | {"sums/sum/listwise"}  # fmt: skip
    assert items["sums/sum/pairwise"].responses[items["sums/sum/pairwise"].best or 0] == "It is 42."
    code = items["code/double/pairwise"]
    assert code.responses[code.best or 0] == ANSWERS["double"][0]
    assert items["rules/lower/pointwise"].generator == "a, b"  # a gave the right one, b the wrong one
    assert items["sums/sum/listwise"].licence == "MIT"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["answers"] == 18
    assert manifest["items"] == {
        "math/pointwise": 1, "math/pairwise": 1, "math/listwise": 1, "code/pointwise": 1, "code/pairwise": 1,
        "instructions/pointwise": 1, "instructions/pairwise": 1,
    }  # fmt: skip
    assert manifest["rejected"] == {"listwise/no_negative": 2}
    assert manifest["right_by_model"] == {"a": {"checked": 9, "right": 3}, "b": {"checked": 9, "right": 0}}
    # the file of candidates for `tirjudge train data build`
    candidates = read_candidates(tmp_path / "out" / "candidates.jsonl")
    assert [one.right for one in candidates["code", "double"]].count(True) == 1


@pytest.mark.slow
def test_wrong_responses_of_a_listwise_item_have_different_final_answers(tmp_path: Path) -> None:
    write_problems([problem("sum")], tmp_path / "problems.jsonl")
    with serving_chat(scripted_answers()) as chat:
        done = run_pairs(chat, tmp_path, "--model", "m", "--samples", "6", "--modes", "listwise", "--concurrency", "1")
    assert done.exit_code == 0, done.output
    (item,) = read_items(tmp_path / "out" / "items.parquet")
    assert item.mode is Mode.LISTWISE
    numbers = [last_number(response) for response in item.responses]
    assert numbers[item.best or 0] == 42
    assert len(numbers) == len(set(numbers)) >= 4  # 41, 40, 39, 38: only one of the two answers 40 is used


@pytest.mark.slow
def test_resumed_run_repeats_only_the_pending_request(tmp_path: Path) -> None:
    write_problems([problem(f"sum{i}") for i in range(12)], tmp_path / "problems.jsonl")
    journal = tmp_path / "out" / "journal" / "samples.jsonl"
    reached, free = threading.Event(), threading.Event()
    asked = Counter[int]()

    def hold(body: Any) -> None:
        asked[body["seed"]] += 1
        if len(asked) == 10 and not free.is_set():
            reached.set()

    def say(conversation: str) -> str:
        if reached.is_set() and not free.is_set():
            free.wait(60)
        return "It is 42."

    command = [sys.executable, "-c", "from tests.training.test_pairs import APP; APP()", "--problems",
               str(tmp_path / "problems.jsonl"), "--model", "m", "--out", str(tmp_path / "out"), "--slots", "1",
               "--concurrency", "1"]  # fmt: skip
    with serving_chat(say, refuses=hold) as chat:
        process = subprocess.Popen([*command, "--endpoint", chat.url], stderr=subprocess.DEVNULL)
        assert reached.wait(120)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        free.set()
        kept = [json.loads(line) for line in journal.read_text().splitlines()]
        assert len(kept) == 9  # the tenth request was pending
        with journal.open("a") as file:
            file.write('{"ask": "torn')
        done = run_pairs(chat, tmp_path, "--model", "m")
    assert done.exit_code == 0, done.output
    assert len(asked) == 24
    assert sorted(asked.values()) == [1] * 23 + [2]
    asks = asks_of([problem(f"sum{i}") for i in range(12)], plan=AnswerPlan(models=("m",)))
    kept_seeds = {ask.sampling.seed for ask in asks if ask.key in {line["ask"] for line in kept}}
    assert len(kept_seeds) == 9
    assert {asked[(seed or 0) % 2**31] for seed in kept_seeds} == {1}
    assert len(journal.read_text().splitlines()) == 24


@pytest.mark.slow
def test_repeated_command_sends_no_requests_and_runs_no_checks(tmp_path: Path) -> None:
    write_problems([problem("sum"), LOWER], tmp_path / "problems.jsonl")
    with serving_chat(scripted_answers()) as chat:
        assert run_pairs(chat, tmp_path, "--model", "m").exit_code == 0
        before = (tmp_path / "out" / "items.parquet").read_bytes()
        checks = (tmp_path / "out" / "journal" / "checks.jsonl").read_bytes()
        assert run_pairs(chat, tmp_path, "--model", "m").exit_code == 0
        assert len(chat.bodies) == 4
        assert (tmp_path / "out" / "items.parquet").read_bytes() == before
        assert (tmp_path / "out" / "journal" / "checks.jsonl").read_bytes() == checks
        assert run_pairs(chat, tmp_path, "--model", "m", "--samples", "3").exit_code == 0
    assert len(chat.bodies) == 6  # the third answer to each


def test_cut_answers_are_not_used(tmp_path: Path) -> None:
    write_problems([LOWER], tmp_path / "problems.jsonl")
    with serving_chat(scripted_answers(), choice={"finish_reason": "length"}) as chat:
        done = run_pairs(chat, tmp_path, "--model", "m")
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["answers"], manifest["answers_cut"], manifest["items"]) == (2, 2, {})
    assert manifest["rejected"]["pairwise/no_candidates"] == 1


@pytest.mark.slow
def test_busy_endpoint_is_retried_and_a_refused_prompt_is_counted(tmp_path: Path) -> None:
    write_problems([problem("sum"), LOWER], tmp_path / "problems.jsonl")
    busy = [(429, {"retry-after": "0"}, {"error": {"message": "slow down"}})]

    def refuses(body: Any) -> tuple[int, Any] | None:
        is_refused = "lower" in body["messages"][0]["content"]
        return (400, {"error": {"message": "this prompt breaks our rules"}}) if is_refused else None

    with serving_chat(scripted_answers(), busy=busy, refuses=refuses) as chat:
        done = run_pairs(chat, tmp_path, "--model", "m", "--concurrency", "1")
    assert done.exit_code == 0, done.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["answers"] == 2
    assert len(manifest["refused"]) == 2
    assert "breaks our rules" in manifest["refused"][0]


@pytest.mark.parametrize(
    ("url", "status", "message"),
    [
        ("http://127.0.0.1:9/v1", 1, "http://127.0.0.1:9/v1/chat/completions cannot be reached"),
        ("127.0.0.1:9", 2, "--endpoint: 127.0.0.1:9 is not a URL"),
    ],
)
def test_bad_endpoint_is_a_one_line_error(tmp_path: Path, url: str, status: int, message: str) -> None:
    write_problems([LOWER], tmp_path / "problems.jsonl")
    arguments = ["--problems", str(tmp_path / "problems.jsonl"), "--endpoint", url, "--model", "m"]
    done = CliRunner().invoke(APP, [*arguments, "--out", str(tmp_path / "out")])
    assert done.exit_code == status
    (line,) = [line for line in done.stderr.splitlines() if "tirjudge train pairs" in line]
    assert message in line
    assert "Traceback" not in done.output


def test_unknown_model_is_a_one_line_error(tmp_path: Path) -> None:
    write_problems([LOWER], tmp_path / "problems.jsonl")
    refuses = lambda body: (404, {"error": {"message": f"no model {body['model']}"}})  # noqa: E731
    with serving_chat(scripted_answers(), refuses=refuses) as chat:
        done = run_pairs(chat, tmp_path, "--model", "missing", "--concurrency", "1")
    assert done.exit_code == 2
    assert "404: no model missing" in done.stderr
    assert len(chat.bodies) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no problems given; use --problems FILE or --generated N"),
        (["--problems", "/nowhere.jsonl"], "/nowhere.jsonl: no such file"),
        (
            ["--generated", "1", "--modes", "triples"],
            "--modes: unknown mode triples; valid modes are pointwise, pairwise, listwise",
        ),
    ],
)
def test_invalid_options_are_one_line_errors(tmp_path: Path, arguments: list[str], message: str) -> None:
    given = ["--endpoint", "http://127.0.0.1:9", "--model", "m", "--out", str(tmp_path / "out"), *arguments]
    done = CliRunner().invoke(APP, given)
    assert done.exit_code == 2
    assert done.stderr.strip() == f"tirjudge train pairs: {message}"


def test_two_journals_cannot_open_one_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl"), pytest.raises(ValueError, match="another process writes it"):
        Journal(tmp_path / "j.jsonl")


def test_conversation_is_sent_unchanged_and_sampling_settings_change_the_key() -> None:
    talk = (ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Hi."))
    (ask,) = asks_of([problem("talk", prompt=talk)], plan=AnswerPlan(models=("m",), num_samples=1))
    assert ask.messages == talk
    (hotter,) = asks_of([problem("talk", prompt=talk)], plan=AnswerPlan(models=("m",), num_samples=1, temperature=1.0))
    assert ask.key != hotter.key
    line = SampleLine(ask=ask.key, source="s", problem="p", model="m", number=0, text="", was_cut=False, num_tokens=0)
    assert SampleLine.model_validate_json(line.model_dump_json()) == line


# Verifiers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "right", "wrong"),
    [
        ({"func_name": "verify_keywords", "keyword_list": ["tea", "cup"]}, "A cup of tea.", "A teacup."),
        ({"func_name": "verify_keyword_frequency", "word": "tea", "N": 2}, "Tea and tea", "tea, tea, tea"),
        ({"func_name": "validate_forbidden_words", "forbidden_words": ["tea"]}, "teal", "Tea!"),
        ({"func_name": "verify_letter_frequency", "letter": "z", "N": 2}, "Zz", "zzz"),
        ({"func_name": "verify_paragraph_count", "N": 2}, "one\n***\ntwo", "one\n\ntwo"),
        ({"func_name": "validate_word_constraint", "N": 20, "quantifier": "around"}, "w " * 18, "w " * 17),
        ({"func_name": "verify_sentence_constraint", "N": 2, "quantifier": "at least"}, "One. Two!", "One is 1.5."),
        ({"func_name": "validate_paragraphs", "N": 2, "first_word": "two", "i": 2}, "One\n\nTwo", "Two\n\nOne"),
        ({"func_name": "verify_postscript", "postscript_marker": "P.S."}, "Hi\nP.S. bye", "Hi P.S."),
        ({"func_name": "validate_placeholders", "N": 1}, "Dear [name]", "Dear name"),
        ({"func_name": "verify_bullet_points", "N": 2}, "* a\n- b", "* a\n* b\n* c"),
        ({"func_name": "validate_title"}, "<<Tea>>\nGood.", "<Tea>"),
        ({"func_name": "validate_choice", "options": ["yes", "no"]}, " yes ", "maybe"),
        ({"func_name": "validate_highlighted_sections", "N": 2}, "*a* and **b**", "*a* and b"),
        ({"func_name": "validate_sections", "section_splitter": "Part", "N": 2}, "Part 1\nx\nPart 2", "Part 1"),
        ({"func_name": "validate_json_format"}, '```json\n{"a": 1}\n```', "{a: 1}"),
        ({"func_name": "validate_repeat_prompt", "original_prompt": "Sing."}, "Sing.\nLa", "La. Sing."),
        ({"func_name": "validate_two_responses"}, "a\n******\nb", "a\n******\na"),
        ({"func_name": "validate_uppercase"}, "A-1", "1"),
        ({"func_name": "validate_lowercase"}, "a-1", "aB"),
        ({"func_name": "validate_frequency_capital_words", "N": 1, "quantifier": "at most"}, "A BC", "AB CD"),
        ({"func_name": "validate_end", "end_phrase": "Bye."}, "So. Bye. ", "Bye. So."),
        ({"func_name": "validate_quotation"}, '"so"', '"so" he said'),
        ({"func_name": "validate_no_commas"}, "so", "so, so"),
    ],
    ids=lambda value: value["func_name"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_verifier_functions_accept_right_and_reject_wrong_answers(
    named: dict[str, Any], right: str, wrong: str
) -> None:
    assert follows(json.dumps(named), right)
    assert not follows(json.dumps(named), wrong)


def test_error_names_an_unknown_verifier() -> None:
    with pytest.raises(NoVerifier, match="no verifier function 'validate_response_language'"):
        follows('{"func_name": "validate_response_language", "language": "de"}', "gut")
    with pytest.raises(NoVerifier, match="validate_end"):
        follows('{"func_name": "validate_end"}', "gut")


def test_generated_problems_are_distinct_and_their_instructions_can_be_checked() -> None:
    drawn = draw_problems(60, seed=3)
    assert drawn == draw_problems(60, seed=3)
    assert len({one.id for one in drawn}) == 60
    assert {one.check for one in drawn} == {AnswerCheck.MATH, AnswerCheck.INSTRUCTIONS}
    assert not any("{" in str(one.prompt) for one in drawn)
    kinds = {"kinds": [{"name": "words", "number": 3, "op": "==", "quotes": []}], "request": "Sing."}
    assert follows(json.dumps({"func_name": "kinds", **kinds}), "la la la")
    assert not follows(json.dumps({"func_name": "kinds", **kinds}), "la la")


@pytest.mark.slow
async def test_answers_are_checked_with_the_check_of_the_problem() -> None:
    answers = tuple(
        CandidateAnswer(text=text) for text in ("It is 42.", r"So \boxed{\frac{84}{2}}", "It is 41.", "I pass.")
    )
    programs = tuple(CandidateAnswer(text=f"```python\n{text}\n```") for text in ANSWERS["double"])
    loop = CandidateAnswer(text="def double(x):\n    raise SystemExit(0)")
    unknown = problem("x", check=AnswerCheck.INSTRUCTIONS, reference='{"func_name": "nothing"}', candidates=answers)
    given = [
        problem("sum", candidates=answers),
        problem("double", check=AnswerCheck.TESTS, reference=DOUBLE.reference, candidates=(*programs, loop)),
        unknown,
    ]
    async with open_checks(slots=1) as pool:
        sums, doubles, none = await marked(given, pool=pool)
    assert isinstance(sums, TrainingProblem)
    assert [one.right for one in sums.candidates] == [True, True, False, False]
    assert isinstance(doubles, TrainingProblem)
    assert [one.right for one in doubles.candidates] == [True, False, False]
    assert isinstance(none, Rejected)
    assert none.reason is Reason.UNVERIFIABLE_ANSWER


async def test_additional_verifier_replaces_the_built_in_check(pool: SandboxPool) -> None:
    async def is_short(problem: TrainingProblem, text: str) -> bool:
        return len(text) < 4

    given = problem("sum", candidates=(CandidateAnswer(text="42"), CandidateAnswer(text="forty-two")))
    (found,) = await marked([given], pool=pool, verifiers={AnswerCheck.MATH: is_short})
    assert isinstance(found, TrainingProblem)
    assert [one.right for one in found.candidates] == [True, False]


def test_without_math_verify_numbers_are_compared_as_numbers() -> None:
    answers = tuple(CandidateAnswer(text=text) for text in (r"\boxed{1,250.50}", "it is 2501/2", "1250", "no idea"))
    found = numerically_marked(problem("sum", reference="1250.5", candidates=answers))
    assert isinstance(found, TrainingProblem)
    assert [one.right for one in found.candidates] == [True, True, False, False]
    assert [one.answer for one in found.candidates] == ["2501/2", "2501/2", "1250", None]
    assert isinstance(numerically_marked(problem("sum", reference="x + y", candidates=answers)), Rejected)
