"""Requests to a vLLM server, and responses that the mini worker never sends: unusual texts, errors, timeouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tirjudge.control_tokens import FAMILIES
from tirjudge.engines.vllm import MAX_ASKED, VLLMEngine
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong, TurnRefused
from tirjudge.request_context import coming_from
from tirjudge.types import Sampling

MODELS = {"data": [{"id": "judge", "max_model_len": 100}, {"id": "adapter", "max_model_len": 50}]}
SAMPLING = Sampling(max_tokens=20, temperature=0.7, seed=3, stop=("```output",))
WORDS = {1: "``", 2: "`output", 3: "`output\n", 4: "<|im_end|>", 5: "hi"}


class Server:
    """Transport of a server with one fixed completion. It records the requests."""

    def __init__(self, **choice: Any) -> None:
        tokens = [WORDS[i] for i in choice.get("token_ids", ())]
        logprobs = {"tokens": tokens, "token_logprobs": [-0.5] * len(tokens), "top_logprobs": [{}]}
        self.choice = {"index": 0, "stop_reason": None, "logprobs": logprobs, **choice}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: httpx2.Headers = httpx2.Headers()

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content or b"{}")
        path = request.url.path
        self.asked.append((path, body))
        if path == "/v1/completions":
            self.headers = request.headers
            return httpx2.Response(200, json={"choices": [self.choice], "usage": {"prompt_tokens": 2}})
        if path == "/detokenize":
            return httpx2.Response(200, json={"prompt": "".join(WORDS[i] for i in body["tokens"])})
        if path == "/tokenize":
            return httpx2.Response(200, json={"tokens": [2], "count": 1, "max_model_len": 100})
        return httpx2.Response(200, json=MODELS) if path == "/v1/models" else httpx2.Response(200)


def engine_of(handler: Callable[[httpx2.Request], httpx2.Response], **options: Any) -> VLLMEngine:
    return VLLMEngine("http://gpu:8000/", transport=httpx2.MockTransport(handler), **options)


async def test_a_request_sets_all_sampling_parameters():
    server = Server(text="hi", token_ids=[5], finish_reason="length")
    engine = engine_of(server, api_key="secret")
    await engine.generate([7, 8], sampling=SAMPLING, session="rollout-1")
    path, body = server.asked[-1]
    assert (path, server.headers["X-Session-ID"], server.headers["Authorization"]) == (
        "/v1/completions",
        "rollout-1",
        "Bearer secret",
    )
    assert body == {
        "model": "judge",
        "prompt": [7, 8],
        "session_id": "rollout-1",
        "max_tokens": 20,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_detection": {"max_pattern_size": 32, "min_pattern_size": 1, "min_count": 64},
        "priority": 0,
        "n": 1,
        "seed": 3,
        "stop": ["```output"],
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "return_token_ids": True,
        "logprobs": 0,
    }


async def test_decoded_last_tokens_are_cached():
    server = Server(text="```output", token_ids=[1, 2], finish_reason="stop", stop_reason="```output")
    engine = engine_of(server)
    await engine.ready()
    for _ in range(2):
        completion = await engine.generate([7], sampling=SAMPLING, session="s")
        assert (completion.token_ids, completion.stop, completion.num_appended) == ((1, 2), "```output", 0)
    turns = ["/v1/completions", "/detokenize", "/detokenize", "/v1/completions"]
    assert [path for path, _ in server.asked] == ["/health", "/version", "/v1/models", *turns]


async def test_logprobs_are_requested_only_if_needed():
    server = Server(text="hi", token_ids=[5], finish_reason="length", logprobs=None)
    sampling = replace(SAMPLING, logprobs=False)
    completion = await engine_of(server).generate([7], sampling=sampling, session="s")
    assert (completion.token_ids, completion.logprobs) == ((5,), ())
    assert "logprobs" not in server.asked[-1][1]
    with pytest.raises(EngineUnavailable, match="not vLLM's answer"):
        await engine_of(server).generate([7], sampling=SAMPLING, session="s")


async def test_a_last_token_past_the_stop_string_is_re_encoded():
    server = Server(text="```output", token_ids=[1, 3], finish_reason="stop", stop_reason="```output")
    completion = await engine_of(server).generate([7], sampling=SAMPLING, session="s")
    assert (completion.token_ids, completion.num_appended, completion.logprobs) == ((1, 2), 1, (-0.5, 0.0))
    assert server.asked[-1] == ("/tokenize", {"prompt": "`output", "add_special_tokens": False})


@pytest.mark.parametrize("stop_reason", [None, 4])
async def test_the_end_of_turn_token_is_removed_from_the_text_and_remembered(stop_reason: int | None):
    server = Server(text="hi<|im_end|>", token_ids=[5, 4], finish_reason="stop", stop_reason=stop_reason)
    engine = engine_of(server)
    assert engine.eos_token_ids == frozenset()
    completion = await engine.generate([7], sampling=SAMPLING, session="s")
    assert (completion.text, completion.token_ids, completion.stop) == ("hi", (5, 4), None)
    assert engine.eos_token_ids == {4}


async def test_a_detected_repetition_is_not_a_stop_string():
    server = Server(text="hihi", token_ids=[5, 5], finish_reason="repetition", stop_reason="repetition_detected")
    completion = await engine_of(server).generate([7], sampling=SAMPLING, session="s")
    assert (completion.text, completion.token_ids, completion.stop) == ("hihi", (5, 5), None)
    assert completion.finish_reason == "repetition"


async def test_a_request_has_a_priority_and_an_anonymous_cache_salt():
    server = Server(text="hi", token_ids=[5], finish_reason="length")
    engine = engine_of(server)
    bodies = {}
    for caller, urgency, turn in (("ann", 0, 1), ("ann", 2, 0), ("bob", 1, 200), (None, 1, 3)):
        with coming_from(caller, urgency=urgency):
            await engine.generate([7], sampling=replace(SAMPLING, turn=turn), session="s")
        bodies[caller, urgency, turn] = server.asked[-1][1]
    await engine.generate([7], sampling=SAMPLING, session="s")
    assert [body["priority"] for body in bodies.values()] == [-1, 128, 1, 61]
    ann, again, bob, anonymous = bodies.values()
    assert ann["cache_salt"] == again["cache_salt"] != bob["cache_salt"]
    assert "ann" not in json.dumps(ann)
    assert "cache_salt" not in anonymous
    assert (server.asked[-1][1]["priority"], "cache_salt" in server.asked[-1][1]) == (0, False)


async def test_an_aborted_generation_raises():
    server = Server(text="", token_ids=[], finish_reason="abort")
    with pytest.raises(EngineUnavailable, match="abort"):
        await engine_of(server).generate([7], sampling=SAMPLING, session="s")


async def test_an_answer_without_ids_is_reported():
    with pytest.raises(EngineUnavailable, match=r"http://gpu:8000/v1/completions: not vLLM's answer.*token_ids"):
        await engine_of(Server(text="hi", finish_reason="stop")).generate([7], sampling=SAMPLING, session="s")


async def test_a_server_that_is_not_vllm_is_reported():
    def other(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"data": [{"id": "gpt"}]})

    engine = engine_of(other)
    with pytest.raises(EngineUnavailable, match=r"/v1/models: not vLLM's answer.*max_model_len"):
        await engine.ready()
    with pytest.raises(EngineUnavailable, match=r"/tokenize: not vLLM's answer.*tokens"):
        await engine.tokenizer.encode("A")
    with pytest.raises(EngineUnavailable, match=r"/detokenize: not vLLM's answer.*prompt"):
        await engine.tokenizer.decode([1])


@pytest.mark.parametrize(
    ("status", "metrics", "says"),
    [
        (200, 'vllm:iteration_tokens_total_count{engine="0"} 7.0\nvllm:other{engine="1"} 5.0\n', "count{engine="),
        (200, "vllm:kv_cache_usage_perc 0.25\n", "0.25"),
        (200, "vllm:iteration_tokens_total_sum 9.0\n", None),
        (404, "", None),
        (403, "not for you", None),
        (500, "", None),
    ],
)
async def test_progress_comes_from_the_metrics(status: int, metrics: str, says: str | None):
    def server(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/metrics"
        return httpx2.Response(status, text=metrics)

    progress = await engine_of(server).progress()
    assert progress is None if says is None else says in str(progress)
    assert "other" not in str(progress)


async def test_a_model_that_is_not_served_is_rejected():
    assert (await engine_of(Server(), model="adapter").ready()).context_tokens == 50
    with pytest.raises(CheckpointError, match="serves judge, adapter, not the requested 'other'"):
        await engine_of(Server(), model="other").ready()


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"message": "You passed 90 input tokens", "param": "input_tokens"}, PromptTooLong),
        (400, {"message": "This model's maximum context length is 100 tokens."}, PromptTooLong),
        (400, {"message": "bad seed", "param": "seed"}, TurnRefused),
        (422, {"message": "n: Input should be 1"}, TurnRefused),
        (413, {"message": "Payload too large"}, PromptTooLong),
        (404, {"message": "The model `judge` does not exist."}, CheckpointError),
        (500, {"message": "CUDA error"}, EngineUnavailable),
    ],
)
async def test_each_error_response_raises_its_exception_with_the_message(
    status: int, error: dict, expected: type[Exception]
):
    def refuse(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json=MODELS)
        return httpx2.Response(status, json={"error": error})

    with pytest.raises(expected) as raised:
        await engine_of(refuse).generate([7], sampling=SAMPLING, session="s")
    assert type(raised.value) is expected
    assert "http://gpu:8000/v1/completions" in str(raised.value)
    assert error["message"] in str(raised.value)


@pytest.mark.parametrize("cause", [httpx2.ConnectError("refused"), httpx2.ReadTimeout("too slow")])
async def test_an_unreachable_server_is_named_with_the_cause(cause: Exception):
    def fail(_request: httpx2.Request) -> httpx2.Response:
        raise cause

    with pytest.raises(EngineUnavailable, match=f"http://gpu:8000/health: {type(cause).__name__}: {cause}"):
        await engine_of(fail).ready()


async def test_a_response_that_is_not_json_raises_engine_unavailable():
    with pytest.raises(EngineUnavailable, match=r"HTTP 502: <html> <h1>Bad gateway$"):
        await engine_of(lambda _: httpx2.Response(502, text="<html>\n  <h1>Bad gateway\n")).ready()
    with pytest.raises(EngineUnavailable, match="JSON"):
        await engine_of(lambda _: httpx2.Response(200, text="<html>")).ready()


async def test_a_refused_connection_raises_engine_unavailable():
    engine = VLLMEngine("http://127.0.0.1:1")
    with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1 cannot be reached: connection refused; start"):
        await engine.ready()
    await engine.aclose()


ADDED = {"0": "<|im_end|>", "1": "[e~[", "2": "<table>", "3": "<new>"}
FLAGGED = {i: {"content": token, "special": token != "<table>"} for i, token in ADDED.items()}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (httpx2.Response(200, json={"added_tokens_decoder": FLAGGED}), {"<|im_end|>", "[e~[", "<new>"}),
        (httpx2.Response(200, json={"added_tokens_decoder": ADDED, "eos_token": "<|im_end|>"}), {"<|im_end|>", "[e~["}),
        (
            httpx2.Response(200, json={"added_tokens_decoder": ADDED, "extra_special_tokens": ["<new>"]}),
            {"[e~[", "<new>"},
        ),
        (httpx2.Response(404, json={"error": {"message": "Not Found"}}), FAMILIES.tokens),
        (httpx2.Response(200, json=["no", "configuration"]), FAMILIES.tokens),
        (httpx2.Response(405), FAMILIES.tokens),
        (httpx2.Response(200, content=b"not JSON"), FAMILIES.tokens),
    ],
)
async def test_control_tokens_come_from_the_server(answer: httpx2.Response, expected: set[str]):
    engine = engine_of(lambda request: answer)
    assert (await engine.tokenizer.control_tokens()).tokens == expected


QWEN = "{{- '<|im_start|>' + message.role }}{% if messages[0] %}<think>\n\n</think>{% endif %}<table>"


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"added_tokens_decoder": FLAGGED}, {"<|im_end|>", "[e~[", "<new>"}),
        (
            {"added_tokens_decoder": FLAGGED, "chat_template": QWEN},
            {"<|im_end|>", "[e~[", "<new>", "<|im_start|>", "<think>", "</think>"},
        ),
        (
            {"added_tokens_decoder": FLAGGED, "chat_template": [{"name": "x", "template": QWEN}]},
            {"<|im_end|>", "[e~[", "<new>"},
        ),
        ({"added_tokens_decoder": {**ADDED, "4": "\n\n", "5": "```"}}, {"<|im_end|>", "[e~[", "<new>"}),
    ],
)
async def test_served_tokens_include_the_tags_of_the_template(info: dict[str, Any], expected: set[str]):
    engine = engine_of(lambda request: httpx2.Response(200, json=info))
    assert (await engine.tokenizer.control_tokens(["<b> <other>"])).served.tokens == expected


class Unlisted:
    """Transport of a server that does not list its control tokens. The strings in `single` are one id."""

    def __init__(self, *single: str) -> None:
        self.single = single
        self.asked: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/tokenize":
            return httpx2.Response(404)
        text = json.loads(request.content)["prompt"]
        self.asked.append(text)
        return httpx2.Response(200, json={"tokens": [1] if text in self.single else [1, 2], "count": 1})


async def test_a_server_without_a_list_is_asked_about_the_strings_in_the_texts():
    server = Unlisted("<new>", "[e~[", "<table>", "<|turn|>")
    tokenizer = engine_of(server).tokenizer
    texts = ["a <new>b [e~[ <table> <b>", "<new> x[i] a[0] <|turn|> <String> [int] </new>"]
    for _ in range(2):
        found = await tokenizer.control_tokens(texts)
        assert found.served.tokens == {"<new>", "[e~[", "<|turn|>"}
        assert found.tokens == FAMILIES.tokens
    assert sorted(server.asked) == sorted(["[e~[", "<new>", "<|turn|>", "<String>", "[int]", "</new>"])


async def test_strings_past_the_limit_are_broken_without_a_question():
    server = Unlisted()
    tags = [f"<tag:{'a' * number}>" for number in range(1, 50)] + [f"<x{'b' * number}>" for number in range(1, 30)]
    found = await engine_of(server).tokenizer.control_tokens([" ".join(tags), "<s>"])
    assert len(server.asked) == MAX_ASKED
    assert server.asked[0] == "<s>"  # known families first
    assert found.served.tokens == {*tags[MAX_ASKED - 1 :]}


async def test_control_tokens_are_requested_once():
    server = Server()
    engine = engine_of(server)
    for _ in range(3):
        await engine.tokenizer.control_tokens()
    assert [path for path, _ in server.asked] == ["/tokenizer_info"]
