"""`tirjudge doctor` with formats of other judges and with scalar reward models. Servers and templates are real."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from starlette.applications import Starlette

from tests.chat_server import MODEL, serving_chat
from tests.clients.wheels import wheel
from tests.families.models import Families, families
from tests.harness.commands import CommandResult, run_command
from tests.reward_models import write_reward_model
from tests.reward_servers import BOS, vllm_app
from tests.servers import serve_in_thread
from tirjudge.chat_template import CHATML
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.scalar import ReadText
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge_harness.doctor.scalar_checks import PLAIN_PAIRS, beginning_finding, raw_finding
from tirjudge_harness.selfcheck_rows import selfcheck_rows
from tirjudge_server.worker import create_worker

__all__ = ["families", "wheel"]

RIGHT = {row["request"]: row["responses"][row["label"]] for row in selfcheck_rows()}
BETTER = {question: better for question, better, _ in PLAIN_PAIRS} | RIGHT

PLAIN = """
title = "Plain"
[[pointwise.prompt]]
[[pointwise.prompt.message]]
role = "system"
content = "Rate the answer from 0 to 9."
[[pointwise.prompt.message]]
content = "Q: {{prompt}}\\nA: {{response}}\\nEND"
[[pointwise.verdict]]
form = "number"
before = ["Rating:"]
scale = { low = 0, high = 9 }
[[pointwise.example]]
text = "Rating: 7"
label = "8"
"""
"""A format file of a user, which scores one response."""


def verdict_of_mt_bench(prompt: str) -> str:
    """Name the right response in a prompt of MT-Bench."""
    right = next(RIGHT[request] for request in RIGHT if f"[User Question]\n{request}\n" in prompt)
    first = prompt.partition("[The Start of Assistant A's Answer]\n")[2].partition("\n[The End of")[0]
    return f"I compare. [[{'A' if first == right else 'B'}]]"


def rating(prompt: str) -> str:
    """Rate a response in the words of `PLAIN`."""
    request, _, response = prompt.rpartition("Q: ")[2].removesuffix("\nEND").partition("\nA: ")
    return f"Rating: {9 if RIGHT.get(request) == response else 2}"


def doctor(engine: ScriptedEngine, *options: str, format: str) -> CommandResult:
    """Run the command with a scripted model."""

    @asynccontextmanager
    async def open_scripted(address: str, *, tools: Any, **_: Any) -> AsyncIterator[Judge]:
        assert not tools  # the format has none, so no sandbox is started
        yield Judge(engine=engine, profile=Profile(format=format))

    with patch("tirjudge_harness.judges.open_judge", open_scripted):
        return run_command(["doctor", "--format", format, *options])


def findings(done: CommandResult) -> dict[str, tuple[bool | None, str]]:
    """Name -> whether it works, and what was found."""
    return {each["name"]: (each["is_ok"], each["detail"]) for each in json.loads(done.stdout)["findings"]}


def test_a_format_of_pairs_is_examined_on_the_items_with_two_responses() -> None:
    engine = ScriptedEngine(verdict_of_mt_bench, label_probs={"A": 0.6, "B": 0.3, "C": 0.08})
    done = doctor(engine, "--json", format="mt-bench-pair")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["passes"]) == ["without_tools"]
    # 24 pairs, and 12 items of two responses that other formats score one by one.
    assert found["passes"]["without_tools"]["accuracy"] | {"interval": None} == {
        "value": 1.0,
        "num": 36,
        "interval": None,
    }
    assert found["chance"] == 0.5
    assert found["label_mass"] == {"mean": pytest.approx(0.98), "minimum": pytest.approx(0.98), "verdicts": 36}
    assert found["conclusion"]["use"] == "no_tools"
    assert found["conclusion"]["sentence"] == (
        "Usable as a judge without tools: 100% right, which is above chance (50%). Only 36 of 60 items were judged."
    )
    parts = findings(done)
    assert [name for name, (is_ok, _) in parts.items() if is_ok] == list(parts)
    assert list(parts) == ["pairwise prompt 1", "pairwise prompt 2", "pairwise labels"]
    assert parts["pairwise prompt 1"][1].startswith("roles system, user; ")
    assert parts["pairwise labels"][1] == "A, B, C: spelled by the vocabulary in 3 examples; 3 of 3 are one token"


def test_a_format_file_is_examined_and_shown_on_a_page(tmp_path: Path) -> None:
    file = tmp_path / "plain.toml"
    file.write_text(PLAIN)
    engine = ScriptedEngine(rating, label_probs={" ": 1.0, "9": 0.5, "2": 0.5})
    done = doctor(engine, "--items", "12", "--json", format=str(file))
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["items"] == 12
    page = doctor(engine, "--items", "12", format=str(file)).stdout
    for part in (
        "pointwise prompt  ok: roles system, user",
        "pointwise labels  ok: 0, 1, 2",
        "12 items",
        "without tools",
    ):
        assert part in page, page
    assert "with tools " not in page
    assert "stop strings" not in page


def test_verdicts_in_other_words_are_broken() -> None:
    done = doctor(ScriptedEngine(lambda prompt: "The first one."), "--items", "12", "--json", format="mt-bench-pair")
    assert done.status == 1
    assert json.loads(done.stdout)["conclusion"]["broken"] == [
        "100% of the verdicts without tools are malformed or missing"
    ]


def test_a_chat_endpoint_is_examined_in_the_format_of_another_judge() -> None:
    with serving_chat(verdict_of_mt_bench) as chat:
        model = ["--chat-url", chat.url, "--chat-model", MODEL, "--format", "mt-bench-pair"]
        done = run_command(["doctor", *model, "--items", "12", "--json"])
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["passes"]["without_tools"]["accuracy"]["value"] == 1.0
    assert {is_ok for is_ok, _ in findings(done).values()} == {None}


Serve = Callable[[str], AbstractContextManager[str]]


@pytest.fixture
def serve(random_checkpoint: Path, tmp_path: Path) -> Serve:
    """Serves the random judge over vLLM's protocol, with a chat template."""

    @contextmanager
    def serving(template: str) -> Iterator[str]:
        folder = tmp_path / "served"
        shutil.copytree(random_checkpoint, folder)
        (folder / "chat_template.jinja").write_text(template)
        engine = EmbeddedEngine.load(folder)
        with serve_in_thread(create_worker(engine, name="served")) as url:
            yield url
        engine.close()

    return serving


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "is_ok", "detail"),
    [
        (CHATML, True, "roles system, user; "),
        ("{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + CHATML,
         False, "the chat template refuses the roles system, user: "),
        ("{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}",
         False, "the chat template does not show the message of the role system"),
    ],
)  # fmt: skip
def test_the_template_of_a_server_must_show_every_message(
    serve: Serve, tmp_path: Path, template: str, is_ok: bool, detail: str
) -> None:
    file = tmp_path / "plain.toml"
    file.write_text(PLAIN)
    with serve(template) as url:
        done = run_command(["doctor", "--engine", url, "--format", str(file), "--items", "4", "--json"])
    assert done.status == 1, done.stderr  # the random judge writes no verdicts
    found, parts = json.loads(done.stdout), findings(done)
    assert (parts["pointwise prompt"][0], parts["pointwise prompt"][1][: len(detail)]) == (is_ok, detail)
    assert parts["pointwise labels"][0] is True
    assert list(found["passes"]) == (["without_tools"] if is_ok else [])
    assert is_ok or found["conclusion"]["broken"][0].startswith(f"pointwise prompt: {detail}")


def scalar(app: Starlette, *options: str) -> CommandResult:
    with serve_in_thread(app) as url:
        return run_command(["doctor", "--judge", f"classify:{url}", *options])


def right_is_higher(messages: list[dict[str, str]]) -> float:
    question, answer = (message["content"] for message in messages)
    return 2.5 if BETTER.get(question) == answer else -1.5


@pytest.mark.slow
def test_a_scalar_reward_model_is_examined() -> None:
    done = scalar(vllm_app(right_is_higher), "--json")
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert findings(done) == {
        "raw scores": (True, "-1.5 to 2.5; an activation function gives 0 to 1"),
        "beginning": (True, f"the token {BOS} is written once"),
        "order": (True, "12 of 12 plainly better answers have the higher score"),
    }
    assert found["passes"]["without_tools"]["accuracy"]["value"] == 1.0
    assert (found["model"]["format"], found["template"], found["prefix_cache"]) == (None, None, None)
    assert found["conclusion"]["sentence"].startswith("Usable as a judge without tools: 100% right")
    page = scalar(vllm_app(right_is_higher), "--items", "12").stdout
    assert "prompt format  none: a scalar reward model" in page
    assert "beginning      ok: the token 7 is written once" in page
    assert "chat template" not in page


@pytest.mark.parametrize(
    ("app", "broken"),
    [
        (vllm_app(right_is_higher, activates=True), ["raw scores: 0.1824 to 0.9241, the same with use_activation"]),
        (vllm_app(right_is_higher, beginning=(BOS, BOS)), ["beginning: the first token (7) is written twice"]),
        (vllm_app(right_is_higher, beginning=()), ["beginning: the token 7 is missing"]),
        (vllm_app(lambda messages: -right_is_higher(messages)), ["order: 0 of 12 plainly better answers"]),
    ],
)
def test_a_broken_scalar_reward_model_is_recognized(app: Starlette, broken: list[str]) -> None:
    done = scalar(app, "--items", "4", "--json")
    assert done.status == 1, done.stderr
    found = json.loads(done.stdout)["conclusion"]["broken"]
    assert [problem[: len(start)] for problem, start in zip(found, broken, strict=True)] == broken


def test_scores_between_0_and_1_may_be_raw() -> None:
    assert raw_finding([0.2, 0.9], activated=0.55).is_ok is True
    assert raw_finding([0.2, 0.9], activated=None).is_ok is None
    assert raw_finding([0.2, 1.1], activated=None).is_ok is True


def test_a_tokenizer_without_a_token_at_the_beginning_is_fine() -> None:
    assert beginning_finding(ReadText(token_ids=[5, 6], bos_id=None)).is_ok is True
    assert beginning_finding(None).is_ok is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "llama3"])
def test_a_random_classifier_writes_the_beginning_once_and_orders_nothing(
    families: Families, tmp_path: Path, family: str
) -> None:
    folder = write_reward_model(families, tmp_path / "reward", family=family)
    done = run_command(["doctor", "--judge", f"sequence:{folder}", "--items", "4", "--json"])
    assert done.status in (0, 1), done.stderr
    parts = findings(done)
    assert parts["beginning"][0] is True
    assert ("written once" in parts["beginning"][1]) is (family == "llama3")
    assert parts["raw scores"][0] is True
