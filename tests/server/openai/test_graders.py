"""Graders over HTTP, and the formulas, placeholders and similarities that they use."""

from __future__ import annotations

import asyncio
from math import exp

import pytest
from openai import BadRequestError, OpenAI

from tirjudge.engines.scripted import ScriptedScalarEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge_server.openai.formula import Formula, FormulaError
from tirjudge_server.openai.placeholders import UnknownVariable, fill_in
from tirjudge_server.openai.similarity import similarity
from tirjudge_server.service import JudgeService

EQUAL = {
    "type": "string_check",
    "name": "equal",
    "input": "{{ sample.output_text }}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
SIMILAR = {
    "type": "text_similarity",
    "name": "similar",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "evaluation_metric": "fuzzy_match",
}
SCORE = {
    "type": "score_model",
    "name": "score",
    "model": "judge",
    "input": [{"role": "user", "content": "Is {{sample.output_text}} the same as {{item.answer}}?"}],
    "range": [0, 1],
}
LABEL = {
    "type": "label_model",
    "name": "label",
    "model": "judge",
    "input": [{"role": "user", "content": "Name its tone."}],
    "labels": ["kind", "rude"],
    "passing_labels": ["kind"],
}
PYTHON = {"type": "python", "name": "program", "source": "def grade(sample, item):\n    return 0.5"}


async def run(client, grader, *, sample="4", item=None):
    return await client.fine_tuning.alpha.graders.run(grader=grader, model_sample=sample, item=item or {"answer": "4"})


def flags(result) -> set[str]:
    return {name for name, value in result.metadata.errors.to_dict().items() if value}


@pytest.mark.parametrize(
    ("operation", "sample", "reward"),
    [("eq", "4", 1.0), ("eq", "5", 0.0), ("ne", "5", 1.0), ("like", "It is 4.", 1.0), ("ilike", "no", 0.0)],
)
async def test_a_string_check_compares_the_sample(make_judge, client_of, operation, sample, reward) -> None:
    async with client_of(make_judge([])) as client:
        result = await run(client, {**EQUAL, "operation": operation}, sample=sample)
    assert result.reward == reward
    assert result.metadata.name == "equal"
    assert result.metadata.type == "string_check"
    assert result.metadata.scores == {"equal": reward}
    assert result.sub_rewards == {}
    assert result.metadata.token_usage is None
    assert flags(result) == set()


async def test_a_python_grader_sees_sample_and_item(make_tool_judge, client_of) -> None:
    source = """
import json
def grade(sample, item):
    print("noise")
    return 0.25 * (sample["output_json"]["n"] == item["n"]) + 0.5 * (sample["output_text"][0] == "{")
"""
    async with client_of(make_tool_judge([])) as client:
        result = await run(client, {**PYTHON, "source": source}, sample='{"n": 3}', item={"n": 3})
    assert result.reward == 0.75


@pytest.mark.parametrize(
    ("source", "details"),
    [
        ("def grade(sample, item):\n    return 1 / 0", "ZeroDivisionError"),
        ("def grade(sample, item):\n    return float('nan')", "nan"),
        ("def other():\n    pass", "NameError"),
        ("def grade(sample, item):\n    raise SystemExit(3)", "3"),
    ],
)
async def test_a_failing_python_grader_sets_a_flag(make_tool_judge, client_of, source, details) -> None:
    async with client_of(make_tool_judge([])) as client:
        result = await run(client, {**PYTHON, "source": source})
    assert result.reward == 0.0
    assert result.metadata.errors.python_grader_runtime_error
    assert details.lower() in (result.metadata.errors.python_grader_runtime_error_details or "").lower()


async def test_a_score_model_maps_the_score_to_its_range(make_judge, client_of) -> None:
    service = make_judge(["<score>7</score>"])
    async with client_of(service) as client:
        result = await run(client, {**SCORE, "range": [0, 9]})
    assert result.reward == pytest.approx(0.9 * 7 + 0.1 * 3 - 1, abs=0.01)
    assert result.metadata.sampled_model_name == "judge"
    assert result.metadata.token_usage is not None
    assert result.api_model_grader_token_usage_per_model == {"judge": result.metadata.token_usage}
    prompt = service.judge.engine.tokenizer.decode(service.judge.engine.calls[0][0])
    assert "Is 4 the same as 4?" in prompt


async def test_a_label_model_rewards_passing_labels(make_judge, client_of) -> None:
    def writes(sequence: str) -> str:
        kind_first = sequence.index("\nkind\n") < sequence.index("\nrude\n")
        return f"<preference>{'A' if kind_first else 'B'}</preference>"

    service = make_judge(writes)
    async with client_of(service) as client:
        result = await run(client, LABEL, sample="Dear friend")
        failing = await run(client, {**LABEL, "passing_labels": ["rude"]}, sample="Dear friend")
    assert (result.reward, failing.reward) == (1.0, 0.0)
    assert "Dear friend" in service.judge.engine.tokenizer.decode(service.judge.engine.calls[0][0])


async def test_a_multi_grader_combines_its_parts(make_tool_judge, client_of) -> None:
    multi = {
        "type": "multi",
        "name": "all",
        "graders": {"equal": EQUAL, "half": PYTHON, "score": SCORE},
        "calculate_output": "0.5 * equal + max(half, 0.1) ^ 2 + 0 * score",
    }
    async with client_of(make_tool_judge(["<score>7</score>"])) as client:
        result = await run(client, multi)
    assert result.reward == pytest.approx(0.5 + 0.25)
    assert result.sub_rewards["equal"] == 1.0
    assert result.sub_rewards["half"] == 0.5
    assert set(result.metadata.scores) == {"equal", "half", "score"}


async def test_a_missing_variable_sets_a_flag(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        result = await run(client, {**EQUAL, "reference": "{{item.other}}"})
    assert result.reward == 0.0
    assert flags(result) == {"invalid_variable_error"}


async def test_a_grader_is_validated_without_running(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        answer = await client.fine_tuning.alpha.graders.validate(grader=SCORE)
    assert answer.grader is not None
    assert answer.grader.type == "score_model"
    assert answer.grader.name == "score"


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        ({**SIMILAR, "evaluation_metric": "cosine"}, '"cosine" given, but it needs a model of embeddings'),
        ({**SIMILAR, "evaluation_metric": "meteor"}, '"meteor" given, but it needs the dictionary WordNet'),
        ({**SIMILAR, "evaluation_metric": "rouge_9"}, "this server supports fuzzy_match, bleu, gleu"),
        ({**EQUAL, "input": "{{ __import__('os') }}"}, "__import__"),
        ({**LABEL, "passing_labels": ["other"]}, "passing_labels"),
        ({**SCORE, "range": [1, 0]}, "range"),
        ({"type": "multi", "name": "m", "graders": {"a": EQUAL}, "calculate_output": "a.real"}, "calculate_output"),
        ({"type": "multi", "name": "m", "graders": {"a": EQUAL}, "calculate_output": "a + b"}, "calculate_output"),
    ],
)
async def test_malformed_graders_are_refused(make_judge, client_of, grader, message) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError, match=message):
            await client.fine_tuning.alpha.graders.validate(grader=grader)


async def test_the_synchronous_client_gets_an_answer(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:

        def ask() -> float:
            with OpenAI(base_url=str(client.base_url), api_key="none", max_retries=0) as synchronous:
                graders = synchronous.fine_tuning.alpha.graders
                return graders.run(grader=EQUAL, model_sample="4", item={"answer": "4"}).reward  # type: ignore

        assert await asyncio.to_thread(ask) == 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 + 2 * 3", 7.0), ("2 ^ 3", 8.0), ("-a", -0.5), ("min(a, b, 3) / 2", 0.25), ("sqrt(abs(-b))", 2.0)],
)
def test_formulas_are_evaluated_as_arithmetic(text: str, value: float) -> None:
    assert Formula(text, names=frozenset("ab")).value({"a": 0.5, "b": 4.0}) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.real",
        "[a][0]",
        "(lambda: 1)()",
        "a if a else a",
        "open('/etc/passwd')",
        "'a' * 9",
        "True",
        "max(*a)",
        "f'{a}'",
        "(" * 500 + "1" + ")" * 500,
        "-" * 1900 + "1",
        "9" * 1999,
        "",
    ],
)
def test_a_formula_that_is_not_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        Formula(text, names=frozenset("a"))


@pytest.mark.parametrize(
    "text", ["1 / 0", "9 ^ 9 ^ 9 ^ 9", "10 ^ 999", "(0 - 1) ^ 0.5", "log(0)", "exp(1000)", "sqrt(1, 2)"]
)
def test_a_formula_without_a_finite_value_raises(text: str) -> None:
    with pytest.raises(FormulaError):
        Formula(text, names=frozenset()).value({})


def test_placeholders_are_paths_and_filled_in_one_pass() -> None:
    values = {"item": {"a": [{"b": "{{item.secret}}"}], "n": 3, "it's": 1}, "sample": {"output_text": "x"}}
    assert fill_in("{{ item.a[0].b }} {{item.n}} {{item.a}}", values) == '{{item.secret}} 3 [{"b": "{{item.secret}}"}]'
    assert fill_in('{{ item["it\'s"] }}', values) == "1"
    with pytest.raises(UnknownVariable):
        fill_in("{{ item.a.b }}", values)


@pytest.mark.parametrize("index", ["1234567890", "9" * 5000])
def test_an_index_with_too_many_digits_is_refused(index: str) -> None:
    with pytest.raises(UnknownVariable, match="names and indexes"):
        fill_in(f"{{{{ item[{index}] }}}}", {"item": [1], "sample": {}})


@pytest.mark.parametrize(
    ("metric", "text", "reference", "value"),
    [
        ("fuzzy_match", "abcd", "abce", 6 / 8),  # 2 x 3 characters in common, of 8
        ("rouge_1", "The cat sat", "the cat ran off", 2 * 2 / 7),
        ("rouge_2", "The cat sat", "the cat ran off", 2 * 1 / 5),
        ("rouge_l", "a b c d", "a c d e", 2 * 3 / 8),
        ("gleu", "a b", "a b c", 3 / 6),  # a, b and "a b", of the 6 n-grams of the longer one
        ("rouge_5", "a", "b", 0.0),
        (
            "bleu",
            "the cat sat",
            "the cat sat on the mat",
            exp(-1),
        ),  # all n-grams match, and the text has half the length
        (
            "bleu",
            "a b c d",
            "a b c e",
            (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** (1 / 4),
        ),  # no 4-gram matches: smoothed to 1/2
        ("bleu", "same", "same", 1.0),
        ("bleu", "", "words", 0.0),
    ],
)
def test_similarities_match_manual_counts(metric: str, text: str, reference: str, value: float) -> None:
    assert similarity(text, reference, metric=metric) == pytest.approx(value)


async def test_a_score_model_needs_a_judge_with_a_scale(client_of) -> None:
    service = JudgeService(
        Judge(engine=ScriptedScalarEngine(lambda prompt, response: 7.0), profile=Profile(name="judge"))
    )
    async with client_of(service) as client:
        with pytest.raises(BadRequestError, match="raw scores have no range"):
            await run(client, SCORE)
