"""The HTTP API of the mini worker: vLLM's fields, vLLM's errors, and disconnecting clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
import pytest_asyncio
import typer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

from tests.servers import serve_async
from tirjudge.engines.checkpoint import Qwen3Config
from tirjudge.engines.embedded import EmbeddedEngine, Qwen3
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.model import EngineOptions, checkpoint_folder
from tirjudge.opening import open_model
from tirjudge.profile import Profile, load_profile
from tirjudge_server.cli import worker
from tirjudge_server.worker import create_worker
from tirjudge_web.binding import OpenBind

HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE, CONTEXT = 32, 4, 8, 48, 256
A, NEWLINES = 65, 256


def byte_tokenizer() -> Tokenizer:
    """One token per byte, in byte order, then "\\n\\n" and ChatML's two control tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    vocab = {chr(0x100 + others.index(byte)) if byte in others else chr(byte): byte for byte in range(256)}
    newline = chr(0x100 + others.index(10))
    tokenizer = Tokenizer(models.BPE(vocab=vocab | {newline * 2: NEWLINES}, merges=[(newline, newline)]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return tokenizer


def random_model(vocab_size: int) -> Qwen3:
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_layers=1,
        num_heads=HEADS,
        num_kv_heads=HEADS,
        head_dim=HEAD_DIM,
        context_tokens=CONTEXT,
        rope_theta=1e4,
        rms_norm_eps=1e-6,
        tied=True,
    )
    rng = np.random.default_rng(0)
    shapes = {
        "embed_tokens": (vocab_size, HIDDEN),
        "layers.0.mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "layers.0.mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "layers.0.mlp.down_proj": (HIDDEN, INTERMEDIATE),
    } | {f"layers.0.self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"}
    weights = {f"model.{name}.weight": rng.normal(scale=0.3, size=shape) for name, shape in shapes.items()}
    norms = ("norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm")
    weights |= {f"model.{name}.weight": np.ones(HIDDEN) for name in norms}
    weights |= {f"model.layers.0.self_attn.{name}_norm.weight": np.ones(HEAD_DIM) for name in "qk"}
    return Qwen3(weights, config=config)


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    tokenizer = byte_tokenizer()
    eos = tokenizer.token_to_id("<|im_end|>")
    engine = EmbeddedEngine(
        random_model(tokenizer.get_vocab_size()), tokenizer=LocalTokenizer(tokenizer), eos_token_ids=frozenset({eos})
    )
    yield engine
    engine.close()


@pytest_asyncio.fixture
async def client(engine: EmbeddedEngine) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_worker(engine, name="tiny"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://worker") as client:
        yield client


async def complete(client: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/completions", json={"prompt": "Which?", **body})
    assert response.status_code == 200, response.text
    return response.json()


async def test_response_has_vllms_fields(client: httpx2.AsyncClient):
    prompt = "here 1"  # of this test, so that no other test has filled the prefix cache
    answer = await complete(client, prompt=prompt, model="tiny", temperature=0, logprobs=0, return_token_ids=True)
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    (choice,) = answer["choices"]
    assert set(choice) == {
        "index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"
    }  # fmt: skip
    assert choice["prompt_token_ids"] == list(prompt.encode())
    assert (len(choice["token_ids"]), choice["finish_reason"], choice["stop_reason"]) == (16, "length", None)
    logprobs = choice["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert logprobs["text_offset"][0] == 0
    assert [len(values) for values in logprobs.values()] == [16] * 4
    assert answer["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 16,
        "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_text_and_ids_are_equivalent_prompts_and_a_seed_repeats_the_completion(client: httpx2.AsyncClient):
    first = await complete(client, seed=5)
    second = await complete(client, prompt=list(b"Which?"), seed=5)
    assert first["choices"][0]["text"] == second["choices"][0]["text"]
    assert first["choices"][0]["token_ids"] is None
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 5


@pytest.mark.parametrize(("include", "text"), [(True, "\n\n\n"), (False, "")])
async def test_text_is_cut_at_the_stop_string_and_ids_keep_the_whole_last_token(client, include, text):
    body = {"allowed_token_ids": [NEWLINES], "stop": "\n\n\n", "return_token_ids": True}
    answer = await complete(client, **body, include_stop_str_in_output=include)
    (choice,) = answer["choices"]
    assert (choice["text"], choice["token_ids"]) == (text, [NEWLINES, NEWLINES])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "\n\n\n")


@pytest.mark.parametrize(("skip", "text"), [(True, ""), (False, "<|im_end|>")])
async def test_end_of_turn_token_is_shown_unless_skipped(client, engine, skip, text):
    body = {"allowed_token_ids": list(engine.eos_token_ids), "include_stop_str_in_output": True}
    (choice,) = (await complete(client, **body, skip_special_tokens=skip))["choices"]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (text, "stop", None)


async def test_label_logprobs_have_token_ids_as_names(client: httpx2.AsyncClient):
    body = {"max_tokens": 1, "logprobs": 0, "allowed_token_ids": [A, 66], "logprob_token_ids": [A, 66, 67]}
    (choice,) = (await complete(client, **body, return_tokens_as_token_ids=True))["choices"]
    assert set(choice["logprobs"]["top_logprobs"][0]) == {"token_id:65", "token_id:66", "token_id:67"}
    assert choice["text"] in ("A", "B")


@pytest.mark.parametrize("where", ["header", "body"])
async def test_session_id_is_read_from_header_or_body(client, engine, monkeypatch, where):
    sample, sessions = engine.sample, []

    async def record(prompt_ids, *, session, **options):
        sessions.append(session)
        return await sample(prompt_ids, session=session, **options)

    monkeypatch.setattr(engine, "sample", record)
    headers = {"X-Session-ID": "rollout"} if where == "header" else {}
    body = {"prompt": "turn", "max_tokens": 1} | ({"session_id": "rollout"} if where == "body" else {})
    response = await client.post("/v1/completions", json=body, headers=headers)
    assert response.status_code == 200
    assert sessions == ["rollout"]


async def test_detokenize_reverses_tokenize(client: httpx2.AsyncClient):
    answer = (await client.post("/tokenize", json={"prompt": "Zwölf", "add_special_tokens": False})).json()
    assert answer == {"count": 6, "max_model_len": CONTEXT, "tokens": list("Zwölf".encode()), "token_strs": None}
    assert (await client.post("/detokenize", json={"tokens": answer["tokens"]})).json() == {"prompt": "Zwölf"}


async def test_the_worker_lists_its_control_tokens(client: httpx2.AsyncClient):
    answer = (await client.get("/tokenizer_info")).json()
    added = answer["added_tokens_decoder"]
    assert sorted(token["content"] for token in added.values()) == ["<|im_end|>", "<|im_start|>"]
    assert all(token["special"] for token in added.values())


async def test_tokenize_renders_a_conversation(client: httpx2.AsyncClient):
    messages = [{"role": "user", "content": "Hi"}]
    answer = (await client.post("/tokenize", json={"messages": messages, "add_generation_prompt": True})).json()
    text = (await client.post("/detokenize", json={"tokens": answer["tokens"]})).json()["prompt"]
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


async def test_models_health_and_metrics_have_the_fields_that_routers_read(client: httpx2.AsyncClient):
    (model,) = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", CONTEXT)
    assert (await client.get("/health")).status_code == 200
    await complete(client, max_tokens=3, prompt="count me")
    text = (await client.get("/metrics")).text
    assert 'vllm:num_requests_running{model_name="tiny"} 0' in text
    assert 'vllm:generation_tokens_total{model_name="tiny"} 3' in text
    assert 'vllm:prompt_tokens_total{model_name="tiny"} 8' in text


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/completions", {"prompt": "x", "n": 2}, 400, "n"),
        ("/v1/completions", {"prompt": "x", "stream": True}, 400, "stream"),
        ("/v1/completions", {"prompt": "x", "best_of": 2}, 400, "best_of"),
        ("/v1/completions", {"prompt": "x", "logprobs": 5}, 400, "logprobs"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 2, "logprob_token_ids": [1]}, 400, None),
        ("/v1/completions", {"prompt": "x" * 250}, 400, "input_tokens"),
        ("/v1/completions", {"prompt": [9999]}, 400, None),
        ("/v1/completions", {"prompt": "x", "allowed_token_ids": [9999]}, 400, None),
        ("/v1/completions", {"prompt": []}, 400, None),
        ("/v1/completions", {"prompt": "x", "model": "other"}, 404, None),
        ("/tokenize", {}, 400, None),
        ("/v1/chat/completions", {}, 404, None),
    ],
)
async def test_unsupported_parameters_are_refused_in_vllms_format(client, path, body, status, param):
    response = await client.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, status, param)
    assert error["type"] == {400: "BadRequestError", 404: "NotFoundError"}[status]
    assert error["message"]


async def test_closed_engine_is_unhealthy():
    tokenizer = byte_tokenizer()
    engine = EmbeddedEngine(random_model(260), tokenizer=LocalTokenizer(tokenizer), eos_token_ids=frozenset())
    engine.close()
    transport = httpx2.ASGITransport(create_worker(engine, name="tiny"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://worker") as client:
        assert (await client.get("/health")).status_code == 503
        response = await client.post("/v1/completions", json={"prompt": "x"})
        assert (response.status_code, response.json()["error"]["code"]) == (503, 503)
        assert "closed" in response.json()["error"]["message"]


async def test_disconnect_cancels_the_request(engine: EmbeddedEngine):
    app, sent = create_worker(engine, name="tiny"), []
    body = b'{"prompt": "endless", "max_tokens": 200, "allowed_token_ids": [65]}'
    messages = iter([{"type": "http.request", "body": body}])

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 499


async def test_openai_client_works(engine: EmbeddedEngine):
    transport = httpx2.ASGITransport(create_worker(engine, name="tiny"))
    async with httpx2.AsyncClient(transport=transport) as http_client:
        client = openai.AsyncOpenAI(base_url="http://worker/v1", api_key="none", http_client=http_client)
        completion = await client.completions.create(model="tiny", prompt="Which?", max_tokens=4, temperature=0)
        assert completion.choices[0].finish_reason == "length"
        with pytest.raises(openai.BadRequestError, match="n: "):
            await client.completions.create(model="tiny", prompt="Which?", n=2)


@pytest.mark.parametrize(("host", "key"), [("0.0.0.0", []), ("::", []), ("judge.example", ["--api-key", ""])])
def test_worker_on_public_address_needs_key(monkeypatch, host: str, key: list[str]) -> None:
    for name in ("VLLM_API_KEY", "TIRJUDGE_INSECURE_OPEN"):
        monkeypatch.delenv(name, raising=False)
    app = typer.Typer(add_completion=False)
    app.command()(worker)
    result = CliRunner().invoke(app, ["--host", host, "--port", "0", *key])
    assert isinstance(result.exception, OpenBind)
    assert "--api-key" in str(result.exception)
    assert "--insecure-open" in str(result.exception)


async def test_a_client_reads_the_profile_in_the_folder_that_the_worker_names(tmp_path: Path) -> None:
    folder = checkpoint_folder(None)
    engine = EmbeddedEngine.load(folder)
    found = []
    try:
        for root in (folder, tmp_path, None):
            async with (
                serve_async(create_worker(engine, name="judge", root=root)) as url,
                open_model(f"vllm:{url}") as model,
            ):
                found.append((model.profile.name, model.profile.response_chars))
            # A folder that the caller gives has priority.
            async with (
                serve_async(create_worker(engine, name="judge", root=root)) as url,
                open_model(f"vllm:{url}", options=EngineOptions(profile=folder)) as model,
            ):
                assert model.profile.name == load_profile(folder).name
    finally:
        engine.close()
    plain = Profile(name="judge")
    served = load_profile(folder)
    assert found == [(served.name, served.response_chars), *[("judge", plain.response_chars)] * 2]
    assert served.response_chars != plain.response_chars
