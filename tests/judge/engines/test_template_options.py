"""Options of the chat template: one definition of the prompt for all engines, and models that are refused."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tokenizers import Tokenizer, processors

from tests.servers import serve_in_thread
from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.engines.vllm_inprocess import TemplateTokenizer
from tirjudge.errors import CheckpointError
from tirjudge.formats import DEFAULT_FORMAT, format_named
from tirjudge.judge import Judge
from tirjudge.model import EngineOptions
from tirjudge.opening import open_model
from tirjudge.profile import Profile, resolved_profile
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_server.worker import create_worker

THINKING = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}
TRAINED = {"name": "j", "format": DEFAULT_FORMAT, "format_sha256": format_named(DEFAULT_FORMAT).sha256}

MakeFolder = Callable[..., Path]


@pytest.fixture
def folder_of(checkpoint, tmp_path: Path) -> MakeFolder:
    """Makes a checkpoint folder with a chat template, and with a `judge.json` of the given fields."""

    def make(named: str, /, *, template: str = THINKING, **profile: Any) -> Path:
        path = tmp_path / named
        shutil.copytree(checkpoint.path, path)
        (path / "chat_template.jinja").write_text(template)
        (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|im_start|>"}))
        if profile:
            (path / "judge.json").write_text(json.dumps(profile))
        return path

    return make


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a folder with a mini worker, on a real socket."""
    opened: list[tuple[EmbeddedEngine, Any]] = []

    def start(folder: Path) -> str:
        engine = EmbeddedEngine.load(folder)
        serving = serve_in_thread(create_worker(engine, name="tiny"))
        opened.append((engine, serving))
        return serving.__enter__()

    yield start
    for engine, serving in opened:
        serving.__exit__(None, None, None)
        engine.close()


def ids_of(text: str, *, tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("given", "used", "start"),
    [(None, OFF, "<think>\n\n</think>\n\n"), (ON, ON, ""), ({}, {}, ""), (OFF, OFF, "<think>\n\n</think>\n\n")],
)
async def test_all_engines_ask_with_the_same_ids(
    given: Any, used: Any, start: str, folder_of: MakeFolder, serve: Callable[[Path], str], tokenizer: Tokenizer
) -> None:
    folder, options = folder_of("thinking"), EngineOptions(chat_template_kwargs=given)
    rendered = f"<|im_start|><|im_start|>user\nWhich?<|im_end|>\n<|im_start|>assistant\n{start}"
    url = serve(folder)
    for address in (f"embedded:{folder}", f"vllm:{url}", f"vllm:{url},{url}/"):
        async with open_model(address, options=options) as model:
            assert model.profile.chat_template_kwargs == used, address
            ids = await model.engine.tokenizer.encode_prompt("Which?")
            assert ids == ids_of(rendered, tokenizer=tokenizer), address


async def test_the_tokenizer_in_process_asks_with_the_same_ids(folder_of: MakeFolder, tokenizer: Tokenizer) -> None:
    transformers = pytest.importorskip("transformers")
    folder = folder_of("thinking")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), bos_token="<|im_start|>", chat_template=THINKING
    )
    for given in (None, OFF, ON, {}):
        ours, local = (
            TemplateTokenizer(fast, chat_template_kwargs=given),
            LocalTokenizer.load(folder, chat_template_kwargs=given),
        )
        assert await ours.chat_template_kwargs() == await local.chat_template_kwargs()
        assert await ours.encode_prompt("Which?") == await local.encode_prompt("Which?")
    with pytest.raises(CheckpointError, match="no chat template"):
        TemplateTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")))


async def test_the_token_at_the_beginning_is_there_once(
    folder_of: MakeFolder, serve: Callable[[Path], str], tokenizer: Tokenizer
) -> None:
    folder = folder_of("bos", template="{{ bos_token }}" + "{{ messages[0].content }}")
    adds_one = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = tokenizer.token_to_id("<|im_start|>")
    adds_one.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", bos)]
    )
    assert adds_one.encode("Which?").ids.count(bos) == 1
    adds_one.save(str(folder / "tokenizer.json"))
    remote = VLLMEngine(serve(folder))
    for one in (LocalTokenizer.load(folder), remote.tokenizer):
        ids = await one.encode_prompt("Which?")
        assert (ids[0], ids.count(bos)) == (bos, 1)
        assert await one.encode("Which?") == ids[1:]
    await remote.aclose()


async def test_a_server_is_asked_for_its_template_once(folder_of: MakeFolder, serve: Callable[[Path], str]) -> None:
    asked: list[dict[str, Any]] = []

    class Counting(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            asked.append(json.loads(request.content or b"{}"))
            return await super().handle_async_request(request)

    engine = VLLMEngine(serve(folder_of("thinking")), transport=Counting())
    for _ in range(3):
        await engine.tokenizer.encode_prompt("Which?")
    await engine.aclose()
    assert [body.get("chat_template_kwargs") for body in asked] == [None, None, OFF, OFF, OFF, OFF]


async def test_workers_with_another_template_are_excluded(folder_of: MakeFolder, serve: Callable[[Path], str]) -> None:
    urls = [serve(folder_of("a")), serve(folder_of("b")), serve(folder_of("c", template=CHATML))]
    async with open_model(f"vllm:{','.join(urls)}") as model:
        problems = [worker.problem for worker in model.engine.workers]
        assert problems == [None, None, "its tokenizer differs from that of the others"]
        assert model.profile.chat_template_kwargs == OFF


async def test_a_server_that_knows_no_options_is_asked_without() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        if "chat_template_kwargs" in json.loads(request.content or b"{}"):
            return httpx2.Response(400, json={"error": {"message": "chat_template_kwargs: unknown", "param": None}})
        return httpx2.Response(200, json={"tokens": [1], "prompt": "user"})

    transport = httpx2.MockTransport(handler)
    old = VLLMEngine("http://gpu:8000", transport=transport)
    assert await old.tokenizer.encode_prompt("Which?") == [1]
    assert await old.tokenizer.chat_template_kwargs() == {}
    wanted = VLLMEngine("http://gpu:8000", transport=transport, chat_template_kwargs=ON)
    with pytest.raises(CheckpointError, match=r'refuses chat_template_kwargs {"enable_thinking": true}'):
        await wanted.tokenizer.encode_prompt("Which?")


@pytest.mark.parametrize("over_http", [False, True])
async def test_a_judge_trained_with_other_options_is_refused(
    over_http: bool, folder_of: MakeFolder, serve: Callable[[Path], str]
) -> None:
    folder = folder_of("trained", **TRAINED, chat_template_kwargs=ON)
    address = f"vllm:{serve(folder)}" if over_http else f"embedded:{folder}"
    async with open_model(address, options=EngineOptions(profile=folder)) as model:
        assert model.profile.chat_template_kwargs == ON
    with pytest.raises(CheckpointError) as raised:
        async with open_model(address, options=EngineOptions(profile=folder, chat_template_kwargs=OFF)):
            pass
    assert '{"enable_thinking": false} given' in str(raised.value)
    assert 'trained with {"enable_thinking": true}' in str(raised.value)


async def test_an_older_trained_judge_keeps_the_prompt_of_its_time(folder_of: MakeFolder, tokenizer: Tokenizer) -> None:
    async with open_model(f"embedded:{folder_of('older', **TRAINED)}") as model:
        assert model.profile.chat_template_kwargs == {}
        rendered = "<|im_start|><|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
        assert await model.engine.tokenizer.encode_prompt("?") == ids_of(rendered, tokenizer=tokenizer)


async def test_options_of_a_profile_without_training_can_be_overridden(folder_of: MakeFolder) -> None:
    folder = folder_of("untrained", name="j", chat_template_kwargs=ON)
    assert resolved_profile(folder).chat_template_kwargs == ON
    for given, used in ((None, ON), (OFF, OFF)):
        async with open_model(f"embedded:{folder}", options=EngineOptions(chat_template_kwargs=given)) as model:
            assert model.profile.chat_template_kwargs == used


async def test_weights_trained_with_other_options_or_another_template_are_not_swapped_in(folder_of: MakeFolder) -> None:
    served = folder_of("served", **TRAINED, chat_template_kwargs=OFF)
    other = folder_of("other", **TRAINED, chat_template_kwargs=ON)
    foreign = folder_of("foreign", template=CHATML, **TRAINED, chat_template_kwargs=OFF)
    same = folder_of("same", **TRAINED, chat_template_kwargs=OFF)
    async with open_model(f"embedded:{served}") as model:
        with pytest.raises(
            CheckpointError, match=r'is {"enable_thinking": true}, but .* has {"enable_thinking": false}'
        ):
            await model.swap(other)
        with pytest.raises(CheckpointError, match="another chat template"):
            await model.swap(foreign)
        await model.swap(same)


def gpt_oss() -> str:
    found = find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("TRL is not installed")
    return (Path(found.origin).parent / "chat_templates" / "gptoss.jinja").read_text(encoding="utf-8")


async def test_a_model_that_writes_in_channels_is_refused_with_the_remedy(folder_of: MakeFolder) -> None:
    source = gpt_oss()
    with pytest.raises(CheckpointError, match=r"writes in channels.*--chat-url"):
        EmbeddedEngine.load(folder_of("harmony", template=source))

    def handler(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content or b"{}")
        if request.url.path == "/tokenize":
            return httpx2.Response(200, json={"tokens": list(ChatTemplate(source).render(body["messages"]).encode())})
        if request.url.path == "/detokenize":
            return httpx2.Response(200, json={"prompt": bytes(body["tokens"]).decode()})
        return httpx2.Response(404)

    remote = VLLMEngine("http://gpu:8000", transport=httpx2.MockTransport(handler))
    with pytest.raises(CheckpointError, match=r"http://gpu:8000: the model writes in channels.*--chat-url"):
        await remote.tokenizer.encode_prompt("Which?")


@pytest.mark.parametrize(
    ("version", "warned"), [("0.32.0", False), ("0.32.1+cpu", False), ("0.24.0", True), ("dev", True)]
)
async def test_a_version_of_vllm_that_was_not_tested_is_logged_once(
    version: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"version": version, "data": [{"id": "judge", "max_model_len": 100}]})

    engine = VLLMEngine("http://gpu:8000", transport=httpx2.MockTransport(handler))
    with caplog.at_level(logging.WARNING, logger="tirjudge.engines.vllm"):
        await engine.ready()
        await engine.ready()
    said = [f"http://gpu:8000 runs vLLM {version}; tirjudge was tested with vLLM >=0.32,<0.33"] if warned else []
    assert [record.getMessage() for record in caplog.records] == said


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"messages": []}, "set by the judge"),
        ({"enable_thinking": False, "self": 1}, "multiple values"),
    ],
)
async def test_the_worker_refuses_options_that_cannot_be_used(
    kwargs: dict[str, Any], reason: str, worker_url: str
) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        body = {"messages": [{"role": "user", "content": "?"}], "chat_template_kwargs": kwargs}
        answer = await client.post(f"{worker_url}/tokenize", json=body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]


@pytest.mark.parametrize(("kwargs", "shown"), [(OFF, OFF), ({}, None), (None, None)])
async def test_a_judgment_says_with_which_options_it_was_made(kwargs: Any, shown: Any) -> None:
    engine = ScriptedEngine(["<preference>A</preference>"], label_probs={"A": 0.9, "B": 0.1})
    judge = Judge(engine=engine, tools=(), profile=Profile(chat_template_kwargs=kwargs))
    judgment = await judge.judge(JudgeRequest(mode=Mode.PAIRWISE, prompt="?", responses=["a", "b"], tools="off"))
    written = json.loads(judgment.model_dump_json())
    assert written.get("chat_template_kwargs") == shown
    assert ("chat_template_kwargs" in written) == (shown is not None)
    assert Judgment.model_validate(written).verdict == judgment.verdict
