"""Failures of hosted models: each is an error that says what is wrong, or an abstention with its reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.chat_server import MODEL, serving_chat
from tirjudge.engines.chat import ChatEngine
from tirjudge.errors import EngineBusy, EngineNotListening, EngineUnavailable, PromptTooLong
from tirjudge.http.exchange import EngineRefused
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions
from tirjudge.opening import open_model
from tirjudge.prices import Prices
from tirjudge.types import JudgeRequest, Judgment, Mode, Sampling, StopReason
from tirjudge_web.process import bind, url_of

PAIR = JudgeRequest(mode=Mode.PAIRWISE, prompt="Which is longer?", responses=["one", "three"], tools="off")
VERDICT = "So it is A. <preference>A</preference>"
KEY = "sk-test-0123456789abcdef"


async def judged(url: str, request: JudgeRequest = PAIR, *, options: EngineOptions | None = None) -> Judgment:
    async with open_model(f"chat:{url}#{MODEL}", options=options or EngineOptions(key=KEY)) as model:
        return await Judge(engine=model.engine, tools=(), profile=model.profile).judge(request)


@asynccontextmanager
async def engine_at(url: str, **options: Any) -> AsyncIterator[ChatEngine]:
    engine = ChatEngine(url, model=MODEL, api_key=KEY, **options)
    try:
        yield engine
    finally:
        await engine.aclose()


# Errors that no retry can fix.


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (401, {"message": "Incorrect API key provided", "code": "invalid_api_key"}, "authentication_error"),
        (400, {"message": "API key not valid. Please pass a valid API key.", "code": 400}, "authentication_error"),
        (401, {"message": "invalid x-api-key", "type": "authentication_error"}, "authentication_error"),
        (404, {"message": "The model `x` does not exist", "code": "model_not_found"}, "permission_error"),
        (404, {"message": "model: claude-x", "type": "not_found_error"}, "permission_error"),
        (400, {"message": "Model Not Exist"}, "permission_error"),
        (400, {"message": "x/y is not a valid model ID", "code": 400}, "permission_error"),
        (402, {"message": "Insufficient Balance"}, "permission_error"),
        (400, {"message": "Your credit balance is too low to access the API."}, "permission_error"),
        (429, {"message": "You exceeded your quota", "type": "insufficient_quota"}, "permission_error"),
        (400, {"message": "messages: roles must alternate", "param": "messages"}, "invalid_request_error"),
    ],
)
async def test_a_permanent_error_says_what_it_is_about(status: int, error: Mapping[str, Any], kind: str) -> None:
    with serving_chat([], refuses=lambda body: (status, {"error": error})) as chat, pytest.raises(EngineRefused) as got:
        await judged(chat.url)
    assert got.value.problem.type == kind
    assert got.value.is_about_request == (kind == "invalid_request_error")
    assert str(error["message"]) in str(got.value)
    assert len(chat.bodies) == 1


async def test_a_key_that_an_endpoint_repeats_is_in_no_error() -> None:
    error = {"message": f"Incorrect API key provided: {KEY}. You can find your key in the console."}
    with serving_chat([], refuses=lambda body: (401, {"error": error})) as chat, pytest.raises(EngineRefused) as got:
        await judged(chat.url)
    assert KEY not in f"{got.value} {got.value.logged} {got.value.problem}"
    assert "provided: ***." in str(got.value)


async def test_credentials_in_the_url_are_sent_but_in_no_error() -> None:
    with serving_chat([], refuses=lambda body: (401, {"error": "no"})) as chat:
        url = chat.url.replace("http://", "http://me:hunter2@") + "/chat/completions?api-key=hunter3"
        with pytest.raises(EngineRefused) as got:
            await judged(url, options=EngineOptions())
    assert "hunter" not in f"{got.value} {got.value.logged}"
    assert chat.headers[0]["authorization"].startswith("Basic ")


# Prompts that do not fit.


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "This model's maximum context length is 9 tokens.", "code": "context_length_exceeded"}),
        (400, {"message": "prompt is too long: 200001 tokens > 200000 maximum", "type": "invalid_request_error"}),
        (400, {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"}),
        (500, {"message": "Context size has been exceeded.", "type": "server_error", "code": 500}),
        (400, {"message": "The input token count (1048578) exceeds the maximum number of tokens allowed (1048576)."}),
        (400, "input length exceeds the context length"),
    ],
    ids=["openai", "anthropic", "llama.cpp", "llama.cpp during generation", "gemini", "ollama"],
)
async def test_a_prompt_that_does_not_fit_is_never_sent_twice(status: int, error: Any) -> None:
    with serving_chat([], refuses=lambda body: (status, {"error": error})) as chat, pytest.raises(PromptTooLong):
        await judged(chat.url)
    assert len(chat.bodies) == 1


async def test_a_prompt_that_the_endpoint_cut_silently_is_not_judged() -> None:
    long = PAIR.model_copy(update={"prompt": "one word after another " * 800})
    usage = {"prompt_tokens": 2048, "completion_tokens": 9}
    cut = pytest.raises(PromptTooLong, match=r"read 2048 tokens of a prompt of \d+ words, so it cut the prompt")
    with serving_chat([VERDICT], usage=usage) as chat, cut:
        await judged(chat.url, long)


async def test_a_long_prompt_that_was_read_whole_is_judged() -> None:
    long = PAIR.model_copy(update={"prompt": "one word after another " * 800})
    with serving_chat([VERDICT], usage={"prompt_tokens": 4000, "completion_tokens": 9}) as chat:
        assert (await judged(chat.url, long)).verdict.status == "decided"


async def test_words_that_the_model_wrote_are_not_expected_in_the_token_count() -> None:
    """The tokens of some models have several words, such as those of the bundled judge."""
    program = "```python\n# " + "many words of one token " * 400 + "\nprint(1)\n```"
    with serving_chat([program, VERDICT], usage={"prompt_tokens": 1200, "completion_tokens": 9}) as chat:
        assert (await judged(chat.url)).verdict.status == "decided"
    assert len(chat.bodies) == 2


async def test_texts_are_shortened_to_the_given_context() -> None:
    long = PAIR.model_copy(update={"prompt": "word " * 4000})
    with serving_chat([VERDICT]) as chat:
        await judged(chat.url, long, options=EngineOptions(context_tokens=2048))
    (body,) = chat.bodies
    assert sum(len(message["content"]) for message in body["messages"]) < 4 * 1024
    assert body["max_tokens"] <= 1024


# Content filters.


@pytest.mark.parametrize(
    "reason", ["content_filter", "content_filter: PROHIBITED_CONTENT", "SAFETY", "refusal"], ids=str.lower
)
async def test_an_answer_that_a_filter_ended_is_an_abstention_and_is_not_parsed(reason: str) -> None:
    with serving_chat([VERDICT], choice={"finish_reason": reason}) as chat:
        judgment = await judged(chat.url)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "content_filter")
    assert judgment.rollouts[0].stop_reason is StopReason.CONTENT_FILTER
    assert judgment.rollouts[0].turns[0].text == ""
    assert len(chat.bodies) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"message": "The response was filtered due to the prompt triggering Azure's content management policy."},
        {"message": "Rejected", "code": "content_policy_violation"},
        {"message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy."},
    ],
)
async def test_a_prompt_that_a_filter_rejects_is_an_abstention(error: Mapping[str, Any]) -> None:
    with serving_chat([], refuses=lambda body: (400, {"error": error})) as chat:
        judgment = await judged(chat.url)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "content_filter")
    assert judgment.usage.input_tokens is None


async def test_a_filter_at_the_question_for_the_verdict_is_an_abstention() -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        error = {"message": "Rejected", "code": "content_filter"}
        return (400, {"error": error}) if len(body["messages"]) > 1 else None

    with serving_chat(["It depends."], refuses=refuses) as chat:
        verdict = (await judged(chat.url)).verdict
    assert (verdict.status, verdict.reason) == ("abstained", "content_filter")


# Thoughts.


@pytest.mark.parametrize(
    ("opening", "closing"), [("<think>", "</think>"), ("\n<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")]
)
async def test_a_verdict_and_a_program_in_a_thought_do_not_count(opening: str, closing: str) -> None:
    thought = f"{opening}<preference>B</preference>\n```python\nprint(1)\n```\n```output\n1\n```{closing}"
    with serving_chat([f"{thought}\n{VERDICT}"], honors_stop=False, chances={"A": 0.75, "B": 0.25}) as chat:
        judgment = await judged(chat.url)
    (turn,) = judgment.rollouts[0].turns
    assert turn.text == f"\n{VERDICT}"
    assert judgment.rollouts[0].verdict is not None
    assert judgment.rollouts[0].verdict.label == "A"
    assert judgment.verdict.label_mass == pytest.approx(1.0)


async def test_a_thought_that_a_stop_string_cut_is_generated_again_without_stop_strings() -> None:
    thought = "<think>Perhaps <preference>B</preference>? No.</think>"
    with serving_chat([thought, f"{thought}{VERDICT}", VERDICT]) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}") as model:
            judge = Judge(engine=model.engine, tools=(), profile=model.profile)
            verdicts = [(await judge.judge(PAIR.model_copy(update={"seed": seed}))).verdict for seed in (0, 0)]
    assert [(verdict.status, verdict.forced) for verdict in verdicts] == [("decided", False)] * 2
    assert ["stop" in body for body in chat.bodies] == [True, False, False]


@pytest.mark.parametrize("text", ["<think>It is <preference>A</preference>", "<think>"], ids=["verdict", "empty"])
async def test_a_thought_that_is_never_closed_is_no_verdict(text: str) -> None:
    with serving_chat(lambda conversation: text, honors_stop=False) as chat:
        judgment = await judged(chat.url)
    assert (judgment.verdict.status, judgment.verdict.reason) == ("abstained", "no_verdict")
    assert judgment.rollouts[0].turns[0].text == ""


async def test_a_thought_that_the_template_opens_is_known_from_the_check() -> None:
    thought = "Perhaps <preference>B</preference>?</think>"
    with serving_chat(["They want OK.</think>OK", f"{thought}{VERDICT}"], honors_stop=False) as chat:
        async with open_model(f"chat:{chat.url}#{MODEL}") as model:
            await model.engine.check()
            judgment = await Judge(engine=model.engine, tools=(), profile=model.profile).judge(PAIR)
    assert judgment.rollouts[0].turns[0].text == VERDICT


async def test_a_closing_tag_in_an_answer_changes_nothing_without_a_check() -> None:
    answer = f"The text has </think> in it. {VERDICT}"
    with serving_chat([answer]) as chat:
        judgment = await judged(chat.url)
    assert judgment.rollouts[0].turns[0].text == answer


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_separate_reasoning_that_a_stop_string_cut_is_generated_again(name: str) -> None:
    with serving_chat(["", VERDICT], extra={name: "Perhaps"}, names_stop=True) as chat:
        judgment = await judged(chat.url)
    assert judgment.verdict.status == "decided"
    assert ["stop" in body for body in chat.bodies] == [True, False]


# Answers that are not those of a chat endpoint.

PAGE = b"<html><body><h1>Sign in</h1></body></html>"


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html", PAGE, r"not the answer of a chat endpoint: .*\(text/html: '<html>"),
        ("application/json", b'{"choices": [{"message": {"content": "<preference>A</pref', "not the answer of a chat"),
        ("application/json", b'{"choices": []}', "choices: List should have at least 1 item"),
        ("application/json", b'{"answer": "A"}', "choices: Field required"),
        ("text/event-stream; charset=utf-8", b"data: {}\n\ndata: [DONE]\n\n", "answered with a stream of events"),
    ],
    ids=["page", "truncated", "no choices", "other", "stream"],
)
async def test_an_answer_of_another_kind_is_an_error(kind: str, body: bytes, said: str) -> None:
    broken = pytest.raises(EngineUnavailable, match=said)
    with serving_chat([], busy=[(200, {"content-type": kind}, body)]) as chat, broken:
        await judged(chat.url)


async def test_an_error_with_the_status_200_is_that_error() -> None:
    busy = [
        (200, {"retry-after-ms": "1"}, {"error": {"code": 429, "message": "Rate limited upstream"}}),
        (200, {"retry-after-ms": "1"}, {"error": {"code": 502, "message": "Provider returned error"}}),
        (200, {}, {"error": {"message": "No cookies auth credentials found", "code": 401}}),
    ]
    refused = pytest.raises(EngineRefused, match="answered 401: No cookies auth credentials found")
    with serving_chat([], busy=busy) as chat, refused:
        await judged(chat.url)
    assert len(chat.headers) == 3


async def test_a_parameter_rejected_with_the_status_500_is_omitted() -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        error = {"message": "logprobs is not supported for models created with logits_all=False", "type": "internal"}
        return (500, {"error": error}) if "logprobs" in body else None

    with serving_chat([VERDICT], refuses=refuses) as chat:
        assert (await judged(chat.url)).verdict.status == "decided"
    assert ["logprobs" in body for body in chat.bodies] == [True, False]


# Limits of rate and time.


async def test_a_daily_limit_is_not_waited_for() -> None:
    limited = (429, {"retry-after": "3600"}, {"error": {"message": "Limit of requests per day reached"}})
    with serving_chat([], busy=[limited]) as chat, pytest.raises(EngineBusy, match="per day") as got:
        await judged(chat.url)
    assert got.value.retry_after_s == 3600
    assert len(chat.headers) == 1


async def test_an_answer_that_trickles_in_ends_at_the_timeout() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            while not writer.is_closing():
                writer.write(b"1\r\n \r\n")
                await asyncio.sleep(0.01)
        finally:
            writer.close()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, engine_at(f"http://127.0.0.1:{port}", timeout_s=0.05, max_wait_s=0.01) as engine:
        with pytest.raises(EngineUnavailable, match=r"did not answer within 0\.05 s"):
            await asyncio.wait_for(engine.generate([65], sampling=Sampling(max_tokens=9), session="s"), 5)


@pytest.mark.parametrize("limit", [1, 3])
async def test_requests_beyond_the_limit_queue_in_order_of_arrival(limit: int) -> None:
    with serving_chat(lambda conversation: VERDICT, latency_s=0.02) as chat:
        async with engine_at(chat.url, max_concurrency=limit) as engine:
            sampling = Sampling(max_tokens=9)
            asked = [engine.generate([65 + i], sampling=sampling, session=f"s{i}") for i in range(6)]
            await asyncio.gather(*asked)
    assert chat.most_running == limit
    sessions = [headers["x-session-id"] for headers in chat.headers]
    assert sessions == [f"s{i}" for i in range(6)] or limit > 1


# Checks at startup.


async def test_a_check_names_the_models_of_the_endpoint_and_the_remedy() -> None:
    error = {"message": "The model `gpt-scripted` does not exist", "code": "model_not_found"}
    with serving_chat([], refuses=lambda body: (404, {"error": error}), models=["gpt-5", "o4-mini"]) as chat:
        async with engine_at(chat.url) as engine:
            with pytest.raises(EngineRefused, match=r"check --chat-url, --chat-model .*; its models: gpt-5, o4-mini$"):
                await engine.check()


async def test_a_check_with_a_wrong_key_names_the_option() -> None:
    with serving_chat([], refuses=lambda body: (401, {"error": "no"})) as chat:
        async with engine_at(chat.url) as engine:
            with pytest.raises(EngineRefused, match=r"check --chat-api-key or TIRJUDGE_CHAT_API_KEY$"):
                await engine.check()


async def test_a_check_of_a_closed_port_ends_within_seconds_and_names_the_url() -> None:
    with bind("127.0.0.1", port=0) as bound:
        url = url_of(bound)
        async with engine_at(url, connect_retry_s=0.05) as engine:
            with pytest.raises(EngineNotListening, match=f"{url}/v1/chat/completions cannot be reached: connection re"):
                await asyncio.wait_for(engine.check(), 4)


async def test_a_check_after_an_answer_sends_nothing() -> None:
    with serving_chat([VERDICT]) as chat:
        async with engine_at(chat.url) as engine:
            await engine.generate([65], sampling=Sampling(max_tokens=9), session="s")
            await engine.check()
    assert len(chat.bodies) == 1


async def test_a_check_learns_the_parameters_of_the_endpoint() -> None:
    def refuses(body: Mapping[str, Any]) -> tuple[int, Any] | None:
        for name in ("max_tokens", "stop", "temperature", "logprobs"):
            if name in body:
                instead = "; use 'max_completion_tokens' instead" if name == "max_tokens" else ""
                message = f"Unsupported parameter: '{name}' is not supported with this model{instead}."
                return 400, {"error": {"message": message, "param": name}}
        return None

    with serving_chat(["OK", VERDICT], refuses=refuses, honors_stop=False) as chat:
        async with engine_at(chat.url) as engine:
            await engine.check()
            num_asked = len(chat.bodies)
            completion = await engine.generate([65], sampling=Sampling(max_tokens=400, stop=("</x>",)), session="s")
    assert completion.text == VERDICT
    assert len(chat.bodies) == num_asked + 1


# Prices.


async def test_the_price_of_a_judgment_is_that_of_the_tokens_the_endpoint_counted() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}
    prices = Prices(input=2.0, output=8.0, cached=0.5)
    with serving_chat(["It depends.", VERDICT], usage=usage) as chat:
        judgment = await judged(chat.url, options=EngineOptions(prices=prices))
    # Two requests of 600 x 2 + 400 x 0.5 + 100 x 8 dollars per million.
    assert judgment.usage.cost_usd == pytest.approx(2 * (1200 + 200 + 800) / 1e6)
    assert json.loads(judgment.model_dump_json())["usage"]["cost_usd"] == judgment.usage.cost_usd
    assert Judgment.model_validate_json(judgment.model_dump_json()) == judgment


async def test_a_judgment_has_no_price_if_the_endpoint_counts_nothing() -> None:
    with serving_chat([VERDICT]) as chat:
        judgment = await judged(chat.url, options=EngineOptions(prices=Prices(input=2.0, output=8.0)))
    assert judgment.usage.cost_usd is None
