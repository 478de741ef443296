"""`/v1/decisions`: predicates, choices and scores with their probabilities."""

from __future__ import annotations

import asyncio

import pytest
from openai import BadRequestError, OpenAI

CHOICES = [{"value": "red"}, {"value": "green", "description": "as grass"}, {"value": "blue"}]
LEVELS = [{"label": "bad"}, {"label": "fair"}, {"label": "good"}]
OFF = {"judge": {"tools": "off"}}


def prefers(text: str):
    """Return the script and the label probabilities of a judge that prefers the response with this text.

    The preferred label has probability 0.7. The other labels share 0.2 equally.
    """

    def probabilities(sequence: str) -> dict[str, float]:
        shown = [name for name in "abcdefghij" if f"<response_{name}>" in sequence]
        best = next(name for name in shown if f"<response_{name}>\n{text}" in sequence)
        rest = 0.2 / (len(shown) - 1)
        return {name.upper(): 0.7 if name == best else rest for name in shown}

    def writes(sequence: str) -> str:
        by_label = probabilities(sequence)
        return f"<preference>{max(by_label, key=lambda name: by_label[name])}</preference>"

    return writes, probabilities


@pytest.fixture
def make_decider(make_judge):
    def make(text: str, **options):
        writes, probabilities = prefers(text)
        return make_judge(writes, label_probs=probabilities, **options)

    return make


async def test_a_predicate_is_answered_with_the_probability_of_true(make_decider, client_of) -> None:
    service = make_decider("True.")
    question = {"type": "predicate", "name": "dry", "instructions": "It is dry."}
    async with client_of(service) as client:
        decision = await client.decisions.create(
            model="judge", input="The sun shines.", questions=[question], extra_body=OFF
        )
    (answer,) = decision.answers
    assert answer.type == "predicate"
    assert answer.name == "dry"
    assert answer.probability == pytest.approx(7 / 9)
    assert decision.model == "judge"
    assert decision.usage.total_tokens == decision.usage.input_tokens + decision.usage.output_tokens > 0
    prompt = service.judge.engine.tokenizer.decode(service.judge.engine.calls[0][0])
    assert "The sun shines.\n\nWhich of the responses is right about the text above?\nIt is dry." in prompt


async def test_the_answer_to_a_choice_has_a_probability_for_each_option(make_decider, client_of) -> None:
    question = {"type": "choice", "instructions": "Which colour?", "choices": CHOICES}
    async with client_of(make_decider("green: as grass")) as client:
        decision = await client.decisions.create(model="judge", input="Grass.", questions=[question], extra_body=OFF)
    (answer,) = decision.answers
    assert answer.type == "choice"
    assert answer.choice == "green"
    assert [entry.value for entry in answer.probabilities] == ["red", "green", "blue"]
    assert [entry.probability for entry in answer.probabilities] == pytest.approx([1 / 9, 7 / 9, 1 / 9])
    assert answer.confidence == pytest.approx(7 / 9 * 0.9)  # p_top x label mass


async def test_a_boolean_differs_from_the_string_true(make_decider, client_of) -> None:
    question = {"type": "choice", "instructions": "?", "choices": [{"value": True}, {"value": "true"}]}
    async with client_of(make_decider('"true"')) as client:
        decision = await client.decisions.create(model="judge", input="x", questions=[question], extra_body=OFF)
    assert decision.answers[0].choice == "true"  # type: ignore


async def test_the_answer_to_a_score_is_the_expected_level(make_decider, client_of) -> None:
    question = {"type": "score", "instructions": "How good?", "levels": LEVELS}
    async with client_of(make_decider("good")) as client:
        decision = await client.decisions.create(model="judge", input="x", questions=[question], extra_body=OFF)
    (answer,) = decision.answers
    assert answer.type == "score"
    assert answer.score == pytest.approx(0 * 1 / 9 + 1 * 1 / 9 + 2 * 7 / 9)
    assert [(entry.value, entry.label) for entry in answer.probabilities] == [(0, "bad"), (1, "fair"), (2, "good")]


async def test_an_abstention_is_a_refusal_and_other_questions_are_answered(make_judge, client_of) -> None:
    service = make_judge(lambda sequence: "No idea." if "IMPOSSIBLE" in sequence else "<preference>A</preference>")
    questions = [
        {"type": "predicate", "name": "hard", "instructions": "IMPOSSIBLE"},
        {"type": "predicate", "name": "easy", "instructions": "Is it?"},
    ]
    async with client_of(service) as client:
        decision = await client.decisions.create(
            model="judge",
            input="x",
            questions=questions,  # type: ignore
            extra_body={"judge": {"tools": "off", "force_verdict": False}},
        )
    assert [(answer.type, answer.name) for answer in decision.answers] == [("refusal", "hard"), ("predicate", "easy")]


async def test_a_question_whose_answer_does_not_meet_the_requirements_is_a_refusal(make_judge, client_of) -> None:
    async with client_of(make_judge(lambda sequence: "<preference>A</preference>")) as client:
        for options, kind in (({"min_confidence": 0.75}, "predicate"), ({"min_confidence": 0.85}, "refusal")):
            decision = await client.decisions.create(
                model="judge",
                input="x",
                questions=[{"type": "predicate", "instructions": "Is it?"}],
                extra_body={"judge": {"tools": "off", **options}},
            )
            assert [answer.type for answer in decision.answers] == [kind]


def predicates(num: int) -> list[dict[str, str]]:
    return [{"type": "predicate", "name": str(n), "instructions": f"Question {n}."} for n in range(num)]


async def test_many_questions_are_answered_in_order_through_a_short_queue(make_judge, client_of) -> None:
    service = make_judge(lambda sequence: "<preference>A</preference>", max_concurrency=4, max_queue=8)
    async with client_of(service) as client:
        decision = await client.decisions.create(
            model="judge",
            input="x",
            questions=predicates(40),  # type: ignore
            extra_body=OFF,
        )
    assert [answer.name for answer in decision.answers] == [str(n) for n in range(40)]


async def test_more_than_four_hundred_questions_are_refused(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError) as caught:
            await client.decisions.create(model="judge", input="x", questions=predicates(401))  # type: ignore
    assert caught.value.param == "questions"


@pytest.mark.slow
async def test_four_hundred_questions_are_answered(make_judge, client_of) -> None:
    async with client_of(make_judge(lambda sequence: "<preference>A</preference>")) as client:
        decision = await client.decisions.create(
            model="judge",
            input="x",
            questions=predicates(400),  # type: ignore
            extra_body=OFF,
        )
    assert len(decision.answers) == 400


async def test_the_input_may_be_a_conversation_with_tool_calls(make_judge, client_of) -> None:
    service = make_judge(["<preference>A</preference>"])
    given = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Rain?"}, {"type": "input_json", "data": {"a": 1}}],
        },
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "dry"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "No rain."}]},
    ]
    question = {"type": "predicate", "instructions": "The answer is right."}
    async with client_of(service) as client:
        await client.decisions.create(model="judge", input=given, questions=[question], extra_body=OFF)  # type: ignore
    prompt = service.judge.engine.tokenizer.decode(service.judge.engine.calls[0][0])
    assert 'user: Rain?\n{"a":1}' in prompt
    assert "function_call c1: weather({})\n\nfunction_call_output c1: dry\n\nassistant: No rain." in prompt


@pytest.mark.parametrize(
    ("question", "param"),
    [
        ({"type": "choice", "instructions": "?", "choices": [{"value": "a"}]}, "choices"),
        ({"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": "a"}]}, "choices"),
        ({"type": "score", "instructions": "?", "levels": [{"label": str(n)} for n in range(11)]}, "levels"),
        ({"type": "guess", "instructions": "?"}, "questions"),
    ],
)
async def test_the_error_for_an_invalid_question_names_the_field(make_judge, client_of, question, param) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError) as caught:
            await client.decisions.create(model="judge", input="x", questions=[question])
    assert param in f"{caught.value.param} {caught.value.message}"


async def test_the_error_for_an_unknown_item_type_names_the_item(make_judge, client_of) -> None:
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError) as caught:
            await client.decisions.create(
                model="judge",
                input=[{"type": ["message"], "role": "user", "content": "x"}],  # type: ignore
                questions=[{"type": "predicate", "instructions": "?"}],
            )
    assert caught.value.param == "input.0.type"


async def test_images_are_refused(make_judge, client_of) -> None:
    given = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    question = {"type": "predicate", "instructions": "?"}
    async with client_of(make_judge([])) as client:
        with pytest.raises(BadRequestError, match="input_image"):
            await client.decisions.create(model="judge", input=given, questions=[question])  # type: ignore


async def test_the_synchronous_client_gets_an_answer(make_judge, client_of) -> None:
    async with client_of(make_judge(["<preference>A</preference>"])) as client:

        def ask() -> str:
            with OpenAI(base_url=str(client.base_url), api_key="none", max_retries=0) as synchronous:
                question = {"type": "predicate", "instructions": "Is it?"}
                decision = synchronous.decisions.create(model="judge", input="x", questions=[question])  # type: ignore
                return decision.answers[0].type

        assert await asyncio.to_thread(ask) == "predicate"
