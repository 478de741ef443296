"""The chat engine with a chat endpoint on a real socket, through `Judge`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import MODEL, serving_chat
from tirjudge.engines.chat import BORDER, ChatEngine, chat_profile, messages_of
from tirjudge.engines.chat_endpoint import endpoint_of
from tirjudge.errors import CheckpointError, EngineNotListening, EngineUnavailable, PromptTooLong
from tirjudge.http.exchange import RequestRefused
from tirjudge.http.retry_events import on_retry
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions, bundled_checkpoint
from tirjudge.opening import open_model
from tirjudge.tools.python import python_tools
from tirjudge.types import JudgeRequest, Judgment, Mode, Sampling, StopReason
from tirjudge_sandbox import SandboxPool
from tirjudge_web.process import bind, url_of

PAIR = JudgeRequest(mode=Mode.PAIRWISE, prompt="Which is longer?", responses=["one", "three"], tools="off")
SCORE = JudgeRequest(mode=Mode.POINTWISE, prompt="What is 2 + 2?", responses=["4"], tools="off")
PROGRAM = "I count.\n```python\nprint(len(response_a) - len(response_b))\n```\n```output"
VERDICT = "So it is A. <preference>A</preference>"
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}


async def judged(url: str, request: JudgeRequest = PAIR, *, pool: SandboxPool | None = None) -> Judgment:
    async with open_model(f"chat:{url}#{MODEL}") as model:
        return await Judge(engine=model.engine, tools=python_tools(pool), profile=model.profile).judge(request)


def refusing(name: str, error: Mapping[str, Any], *, status: int = 400) -> Any:
    """Return a handler that rejects requests with a field of that name."""
    return lambda body: (status, {"error": error}) if name in body else None


async def test_a_program_is_run_and_its_output_is_the_next_user_message(pool: SandboxPool) -> None:
    with serving_chat([PROGRAM, VERDICT]) as chat:
        judgment = await judged(chat.url, PAIR.model_copy(update={"tools": "auto"}), pool=pool)
    assert judgment.verdict.status == "decided"
    assert judgment.rollouts[0].stop_reason is StopReason.VERDICT
    assert [turn.outcome for turn in judgment.rollouts[0].turns] == ["ok", None]
    output = judgment.rollouts[0].turns[0].output
    first, second = chat.bodies
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert first["messages"][0]["content"].startswith("You are a judge.")
    assert second["messages"][1:] == [
        {"role": "assistant", "content": PROGRAM.removesuffix("\n```output")},
        {"role": "user", "content": f"Output of your program:\n```output\n{output}\n```"},
    ]
    assert output in ("2", "-2")


async def test_all_parameters_are_sent_explicitly() -> None:
    with serving_chat([VERDICT]) as chat:
        await judged(chat.url, PAIR.model_copy(update={"seed": 2**62}))
    (body,) = chat.bodies
    assert body["model"] == MODEL
    assert (body["temperature"], body["top_p"], body["stream"]) == (0.0, 1.0, False)
    assert body["stop"] == ["</preference>"]
    assert body["max_tokens"] == 16384
    assert (body["logprobs"], body["top_logprobs"]) == (True, 20)
    assert 0 <= body["seed"] < 2**31


async def test_values_that_an_endpoint_does_not_report_are_none() -> None:
    with serving_chat([VERDICT]) as chat:
        judgment = await judged(chat.url)
    verdict = judgment.verdict
    assert (verdict.status, verdict.forced) == ("decided", False)
    assert (verdict.probabilities, verdict.label_mass, verdict.confidence) == (None, None, None)
    said = judgment.rollouts[0].verdict
    assert said is not None
    assert (said.label, said.probabilities, said.label_mass) == ("A", {}, None)
    usage = judgment.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.cost_usd) == (None, None, None, None)
    assert "cost_usd" not in usage.model_dump()
    assert judgment.model_version is None
    assert Judgment.model_validate_json(judgment.model_dump_json()) == judgment


async def test_log_probabilities_of_tokens_become_those_of_labels() -> None:
    with serving_chat([VERDICT], chances={"A": 0.6, "B": 0.2, "the": 0.2}) as chat:
        judgment = await judged(chat.url)
    shown = judgment.rollouts[0].verdict
    assert shown is not None
    assert shown.probabilities == pytest.approx({"A": 0.75, "B": 0.25})
    assert judgment.verdict.label_mass == pytest.approx(0.8)
    assert judgment.verdict.confidence == pytest.approx(0.6)


async def test_probabilities_are_read_at_the_position_of_the_verdict() -> None:
    with serving_chat(["A ü 🙂 B. <preference>A</preference>"], chances={"A": 0.9, "B": 0.1}) as chat:
        judgment = await judged(chat.url)
    assert judgment.verdict.label_mass == pytest.approx(1.0)
    assert judgment.verdict.confidence == pytest.approx(0.9)


async def test_a_score_without_probabilities_is_the_score_that_the_model_wrote() -> None:
    with serving_chat(["Right. <score>9</score>"]) as chat:
        verdict = (await judged(chat.url, SCORE)).verdict
    assert (verdict.scores, verdict.label, verdict.probabilities) == ([9.0], "9", None)


async def test_a_score_with_probabilities_is_the_expected_score() -> None:
    with serving_chat(["<score>9</score>"], chances={"9": 0.5, "7": 0.5}) as chat:
        verdict = (await judged(chat.url, SCORE)).verdict
    assert verdict.scores == [pytest.approx(8.0)]
    assert verdict.probabilities == [pytest.approx(1.0)]


async def test_usage_sums_the_counts_of_the_endpoint_over_all_turns(pool: SandboxPool) -> None:
    with serving_chat([PROGRAM, "I cannot say.", VERDICT], usage=USAGE) as chat:
        judgment = await judged(chat.url, PAIR.model_copy(update={"tools": "auto"}), pool=pool)
    usage = judgment.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (300, 192, 21)
    assert judgment.verdict.forced


async def test_a_model_without_a_verdict_is_asked_for_it() -> None:
    with serving_chat(["It depends.", "<preference>B</preference>"]) as chat:
        judgment = await judged(chat.url)
    assert judgment.verdict.forced
    (rollout,) = judgment.rollouts
    assert rollout.stop_reason is StopReason.NO_VERDICT
    assert rollout.verdict is not None
    assert rollout.verdict.label == "B"
    asked = chat.bodies[1]
    assert asked["messages"][1:] == [
        {"role": "assistant", "content": "It depends."},
        {
            "role": "user",
            "content": "Give your verdict now and write nothing else: <preference>X</preference>, where X is one of A, B.",
        },
    ]
    assert asked["temperature"] == 0.0


async def test_a_model_that_gives_no_verdict_when_asked_abstains() -> None:
    with serving_chat(["It depends.", "It really does."], usage=USAGE) as chat:
        judgment = await judged(chat.url)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "no_verdict")
    assert judgment.usage.output_tokens == 14


async def test_without_force_verdict_the_model_is_not_asked_for_a_verdict() -> None:
    with serving_chat(["It depends."]) as chat:
        judgment = await judged(chat.url, PAIR.model_copy(update={"force_verdict": False}))
    assert judgment.verdict.status == "abstained"
    assert len(chat.bodies) == 1


async def test_reasoning_is_not_parsed_and_not_sent_back() -> None:
    thoughts = {"reasoning_content": "Perhaps <preference>A</preference>?"}
    with serving_chat(["", "", "<preference>B</preference>"], extra=thoughts) as chat:
        judgment = await judged(chat.url)
    said = judgment.rollouts[0].verdict
    assert said is not None
    assert said.label == "B"
    (message,) = chat.bodies[2]["messages"]
    assert message["content"].endswith("where X is one of A, B.")
    assert "Perhaps" not in message["content"]


async def test_a_refusal_of_the_model_is_not_a_verdict() -> None:
    refused = {"content": None, "refusal": "I will not."}
    with serving_chat(["", ""], extra=refused) as chat:
        judgment = await judged(chat.url)
    assert judgment.verdict.status == "abstained"
    assert judgment.rollouts[0].turns[0].text == "I will not."


async def test_content_in_parts_is_joined_without_reasoning() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
        {"type": "text", "text": "<preference>B</preference>"},
    ]
    with serving_chat([""], extra={"content": parts}) as chat:
        judgment = await judged(chat.url)
    assert judgment.rollouts[0].turns[0].text == "<preference>B</preference>"


async def test_text_after_an_ignored_stop_string_is_cut() -> None:
    with serving_chat([f"{VERDICT} And so on."], honors_stop=False) as chat:
        judgment = await judged(chat.url)
    assert judgment.rollouts[0].turns[0].text == VERDICT


async def test_an_output_fence_reported_as_stop_reason_is_a_call(pool: SandboxPool) -> None:
    with serving_chat(["I run nothing.\n```output", VERDICT], names_stop=True) as chat:
        judgment = await judged(chat.url, PAIR.model_copy(update={"tools": "auto"}), pool=pool)
    assert judgment.rollouts[0].turns[0].outcome == "refused"
    assert "NoProgram" in chat.bodies[1]["messages"][2]["content"]


async def test_a_mentioned_tag_before_a_program_is_not_closed(pool: SandboxPool) -> None:
    with serving_chat([f"I will end with <preference>. {PROGRAM}", VERDICT]) as chat:
        judgment = await judged(chat.url, PAIR.model_copy(update={"tools": "auto"}), pool=pool)
    assert judgment.rollouts[0].turns[0].outcome == "ok"
    assert judgment.rollouts[0].stop_reason is StopReason.VERDICT


async def test_an_answer_cut_at_the_token_limit_has_stop_reason_length() -> None:
    with serving_chat(["It is <preference>A", VERDICT], choice={"finish_reason": "length"}) as chat:
        judgment = await judged(chat.url)
    assert judgment.rollouts[0].stop_reason is StopReason.LENGTH


OVERLOADED = {"error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_busy_endpoint_is_retried_and_the_pause_is_reported(status: int) -> None:
    pauses: list[float] = []
    busy = [(status, {"retry-after-ms": "20"}, OVERLOADED)]
    with serving_chat([VERDICT], busy=busy) as chat, on_retry(pauses.append):
        judgment = await judged(chat.url)
    assert judgment.verdict.status == "decided"
    assert len(chat.headers) == 2
    assert pauses == [pytest.approx(0.0225, abs=0.0025)]


async def test_an_endpoint_that_stays_busy_is_unavailable_with_its_message() -> None:
    with serving_chat([], busy=[(503, {"retry-after-ms": "1"}, OVERLOADED)] * 2) as chat:
        engine = ChatEngine(chat.url, model=MODEL, max_attempts=2)
        with pytest.raises(EngineUnavailable, match=r"/v1/chat/completions answered 503: Overloaded"):
            await engine.generate([65], sampling=Sampling(max_tokens=9), session="s")
        await engine.aclose()


async def test_an_account_without_credit_is_not_retried() -> None:
    error = {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    refused = pytest.raises(RequestRefused, match="answered 429: You exceeded your quota")
    with serving_chat([], busy=[(429, {}, {"error": error})]) as chat, refused:
        await judged(chat.url)


NO_KEY = {"message": "Incorrect API key provided: sk-no.", "type": "invalid_request_error", "code": "invalid_api_key"}
NO_MODEL = {"message": "The model `x` does not exist", "type": "invalid_request_error", "code": "model_not_found"}


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (401, {"error": {**NO_KEY, "param": None}}, "Incorrect API key provided: sk-no."),
        (404, {"error": NO_MODEL}, "The model `x` does not exist"),
        (404, {"error": "model 'x' not found"}, "model 'x' not found"),
        (400, [{"error": {"code": 400, "message": "API key not valid.", "status": "X"}}], "API key not valid."),
        (400, {"object": "error", "message": "Bad role", "code": 400}, "Bad role"),
        (405, "Not here", "Not here"),
        (405, ["no", 1], '["no",1]'),
    ],
    ids=["openai-key", "openai-model", "ollama", "gemini", "flat", "text", "anything"],
)
async def test_an_error_contains_the_message_of_the_endpoint(status: int, body: Any, shown: str) -> None:
    with serving_chat([], busy=[(status, {}, body)]) as chat, pytest.raises(RequestRefused) as refused:
        await judged(chat.url)
    assert str(refused.value) == f"{chat.url}/chat/completions answered {status}: {shown}"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "stop",
            {
                "message": "Unsupported parameter: 'stop' is not supported with this model.",
                "param": "stop",
                "code": "unsupported_parameter",
            },
        ),
        (
            "temperature",
            {
                "message": "Unsupported value: 'temperature' does not support 0 with this model. Only 1 is supported.",
                "param": "temperature",
                "code": "unsupported_value",
            },
        ),
        ("logprobs", {"message": "logprobs are not supported with reasoning models.", "param": None}),
        ("seed", {"code": 400, "message": 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'}),
        ("top_p", {"message": "`temperature` and `top_p` cannot both be specified for this model."}),
    ],
    ids=["stop", "temperature", "logprobs", "seed", "top_p"],
)
async def test_a_rejected_parameter_is_omitted_from_then_on(
    name: str, error: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), serving_chat([VERDICT] * 2, refuses=refusing(name, error)) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}") as model:
            judge = Judge(engine=model.engine, tools=(), profile=model.profile)
            for seed in (1, 2):
                judgment = await judge.judge(PAIR.model_copy(update={"seed": seed}))
                assert judgment.verdict.status == "decided"
    assert [name in body for body in chat.bodies] == [True, False, False]
    assert [set(chat.bodies[0]) - set(body) - {"top_logprobs"} for body in chat.bodies[1:]] == [{name}] * 2
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [f"{MODEL} does not support {name}"]


async def test_logprobs_rejected_with_403_are_omitted() -> None:
    error = {"message": "You are not allowed to request logprobs from this model.", "type": "invalid_request_error"}
    with serving_chat([VERDICT], refuses=refusing("logprobs", error, status=403)) as chat:
        judgment = await judged(chat.url)
    assert (judgment.verdict.status, judgment.verdict.probabilities) == ("decided", None)


async def test_top_logprobs_are_reduced_if_20_are_too_many() -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        error = {"message": "Invalid 'top_logprobs': must be at most 5, got 20.", "param": "top_logprobs"}
        return (400, {"error": error}) if body.get("top_logprobs", 0) > 5 else None

    with serving_chat([VERDICT], refuses=refuses, chances={"A": 0.5, "B": 0.5}) as chat:
        judgment = await judged(chat.url)
    assert [body["top_logprobs"] for body in chat.bodies] == [20, 5]
    assert judgment.verdict.label_mass == pytest.approx(1.0)


async def test_the_token_limit_uses_the_parameter_name_of_the_endpoint() -> None:
    error = {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead.",
        "param": "max_tokens",
    }
    with serving_chat([VERDICT], refuses=refusing("max_tokens", error)) as chat:
        await judged(chat.url)
    assert "max_tokens" not in chat.bodies[1]
    assert chat.bodies[1]["max_completion_tokens"] == 16384


async def test_a_token_limit_that_is_too_high_is_halved_permanently() -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        error = {"message": "max_tokens is too large: this model supports at most 4096 completion tokens"}
        return (400, {"error": error}) if body["max_tokens"] > 4096 else None

    with serving_chat(["It depends.", VERDICT], refuses=refuses) as chat:
        await judged(chat.url)
    assert [body["max_tokens"] for body in chat.bodies] == [16384, 8192, 4096, 2048]


async def test_the_token_limit_is_halved_if_the_context_is_too_small() -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        message = "'max_tokens' is too large. This model's maximum context length is 9000 tokens and you ask for 900."
        return (400, {"error": {"message": message, "code": 400}}) if body["max_tokens"] > 8100 else None

    with serving_chat([VERDICT], refuses=refuses) as chat:
        judgment = await judged(chat.url)
    assert [body["max_tokens"] for body in chat.bodies] == [16384, 8192, 4096]
    assert judgment.verdict.status == "decided"


async def test_a_prompt_that_does_not_fit_the_context_raises_prompt_too_long() -> None:
    message = "This model's maximum context length is 9000 tokens. However, your messages resulted in 9001 tokens."
    error = {"message": message, "param": "messages", "code": "context_length_exceeded"}
    too_long = pytest.raises(PromptTooLong, match="resulted in 9001 tokens")
    with serving_chat([], refuses=lambda body: (400, {"error": error})) as chat, too_long:
        await judged(chat.url)


@pytest.mark.parametrize("choice", [{"finish_reason": "tool_calls"}, {"message": "text"}], ids=["reason", "shape"])
async def test_an_invalid_answer_raises_engine_unavailable(choice: Mapping[str, Any]) -> None:
    with serving_chat([VERDICT], choice=choice) as chat, pytest.raises(EngineUnavailable, match="/v1/chat/completions"):
        await judged(chat.url)


async def test_an_endpoint_that_refuses_connections_is_unavailable() -> None:
    with bind("127.0.0.1", port=0) as bound:
        engine = ChatEngine(url_of(bound), model=MODEL, connect_retry_s=0.05)
        with pytest.raises(EngineNotListening, match="cannot be reached: connection refused"):
            await engine.generate([65], sampling=Sampling(max_tokens=9), session="s")
        await engine.aclose()


async def test_an_endpoint_that_times_out_is_retried_and_then_unavailable() -> None:
    with bind("127.0.0.1", port=0) as bound:
        bound.listen()
        engine = ChatEngine(url_of(bound), model=MODEL, timeout_s=0.05, max_attempts=2, max_wait_s=0.01)
        with pytest.raises(EngineUnavailable, match=r"did not answer within 0\.05 s"):
            await engine.generate([65], sampling=Sampling(max_tokens=9), session="s")
        await engine.aclose()


async def test_the_api_key_and_the_session_are_sent() -> None:
    with serving_chat([VERDICT]) as chat:
        engine = ChatEngine(chat.url, model=MODEL, api_key="sk-test")
        await engine.generate([65], sampling=Sampling(max_tokens=9), session="jdg_1.0.1.0")
        await engine.aclose()
    assert chat.headers[0]["authorization"] == "Bearer sk-test"
    assert chat.headers[0]["x-session-id"] == "jdg_1.0.1.0"


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai",
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("http://host/api/chat/completions", "http://host/api/chat/completions"),
    ],
)
def test_the_endpoint_url_is_completed(url: str, endpoint: str) -> None:
    assert endpoint_of(url) == endpoint


@pytest.mark.parametrize("url", ["api.openai.com/v1", "ftp://host", "http://"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(EngineUnavailable, match="is not a URL; give one such as https://"):
        endpoint_of(url)


def ids(*parts: str) -> list[int]:
    sequence: list[int] = []
    for place, part in enumerate(parts):
        sequence += [BORDER] * (place > 0) + [ord(character) for character in part]
    return sequence


@pytest.mark.parametrize(
    ("parts", "messages"),
    [
        (("Judge.",), [("user", "Judge.")]),
        (
            ("Judge.", "x\n```output", "\n7\n```\n", "y", "\n```output\n8\n```\n"),
            [
                ("user", "Judge."),
                ("assistant", "x"),
                ("user", "Output of your program:\n```output\n7\n```"),
                ("assistant", "y"),
                ("user", "Output of your program:\n```output\n8\n```"),
            ],
        ),
        (
            ("Judge.", "```output", "\n\n```\n"),
            [
                ("user", "Judge."),
                ("assistant", "```output"),
                ("user", "Output of your program:\n```output\n\n```"),
            ],
        ),
        (("Judge.", "", ""), [("user", "Judge.")]),
    ],
    ids=["prompt", "programs", "nothing but the fence", "nothing"],
)
def test_a_sequence_is_converted_back_to_its_conversation(
    parts: Sequence[str], messages: Sequence[tuple[str, str]]
) -> None:
    expected = [{"role": role, "content": content} for role, content in messages]
    assert messages_of(ids(*parts)) == expected


def test_the_sizes_of_a_chat_profile_are_in_characters() -> None:
    profile = chat_profile("m")
    assert (profile.name, profile.context_tokens, profile.rollout_tokens) == ("m", 400_000, 65_536)


async def test_a_checkpoint_behind_a_chat_endpoint_gets_the_prompts_of_its_training() -> None:
    with serving_chat([VERDICT]) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}", options=EngineOptions(profile=bundled_checkpoint())) as model:
            await Judge(engine=model.engine, tools=(), profile=model.profile).judge(PAIR)
            assert (model.profile.name, model.profile.context_tokens) == (MODEL, chat_profile(MODEL).context_tokens)
    (body,) = chat.bodies
    prompt = body["messages"][0]["content"]
    assert prompt.count("[not shown]") == len(PAIR.responses)
    assert "three" not in prompt


async def test_a_missing_checkpoint_of_a_chat_endpoint_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    options = EngineOptions(profile=tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"^--profile: .*none is not a checkpoint folder"):
        async with open_model("chat:http://127.0.0.1:9#m", options=options):
            pass


async def test_groups_are_judged_without_probabilities() -> None:
    request = JudgeRequest(
        mode=Mode.LISTWISE, prompt="Which?", responses=[f"answer {i}" for i in range(6)], tools="off", orders="both"
    )
    with serving_chat(lambda sequence: "<preference>A</preference>") as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}") as model:
            profile = model.profile.model_copy(update={"group_size": 3})
            judgment = await Judge(engine=model.engine, tools=(), profile=profile).judge(request)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("tie", "orders_disagree")
    assert judgment.verdict.probabilities is None
