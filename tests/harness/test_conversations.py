"""Prompts that are conversations: rows of benchmarks and of own files, up to what judges are shown."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import MODEL, serving_chat
from tests.clients.wheels import wheel
from tests.families.models import Families, families
from tests.harness.commands import run_command
from tests.reward_models import write_reward_model
from tests.reward_servers import Classifier
from tirjudge.engines.scalar import conversation
from tirjudge.types import ChatMessage
from tirjudge_harness.benchmarks.rewardbench import BENCHMARK
from tirjudge_harness.items import InputError
from tirjudge_harness.own_data.loading import load_own
from tirjudge_harness.run import load_run
from tirjudge_harness.sources import load_examples

__all__ = ["families", "wheel"]

TURNS = (("user", "Name a sea."), ("assistant", "The Black Sea."), ("user", 'Another one, in "quotes".'))
MESSAGES = [{"role": role, "content": content} for role, content in TURNS]
PROMPT = tuple(ChatMessage.model_validate(message) for message in MESSAGES)

OWN = {"prompt": MESSAGES, "response_a": '"North Sea"', "response_b": "No.", "winner": "A"}
REWARDBENCH = {"id": 318, "subset": "mt-bench-med", "prompt": MESSAGES, "chosen": '"North Sea"', "rejected": "No."}

Write = Callable[[dict[str, Any], str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes one row: as nested JSON to `rows.jsonl`, and with JSON in its cells to `rows.csv`."""

    def write(row: dict[str, Any], name: str) -> Path:
        path = tmp_path / name
        if name.endswith(".csv"):
            table = io.StringIO()
            writer = csv.writer(table)
            writer.writerow(row)
            writer.writerow(json.dumps(cell) if isinstance(cell, list) else cell for cell in row.values())
            path.write_text(table.getvalue(), encoding="utf-8")
        else:
            path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_messages_in_a_row_are_the_prompt(write: Write, name: str) -> None:
    (own,) = load_own(write(OWN, name)).examples
    (example,) = load_examples(BENCHMARK, data=write(REWARDBENCH, name), parts=["filtered"], on_bad=pytest.fail)
    assert own.prompt == example.prompt == PROMPT
    assert own.responses == example.responses == ('"North Sea"', "No.")


@pytest.mark.parametrize("prompt", ["[1, 2]", '[{"role": "user"}]', "[]", "[{", '{"role": "user", "content": "x"}'])
def test_other_json_is_the_text_of_a_prompt(write: Write, prompt: str) -> None:
    row = REWARDBENCH | {"prompt": prompt}
    (example,) = load_examples(BENCHMARK, data=write(row, "rows.csv"), parts=["filtered"], on_bad=pytest.fail)
    assert example.prompt == prompt


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            {"role": "narrator", "content": "x"},
            "role: \"narrator\" given; expected: 'system', 'user', 'assistant' or 'tool'",
        ),
        ({"role": "user", "content": ["part"]}, "content: a list of 1 given; expected: a valid string"),
        ({"role": "user", "content": "x", "name": "y"}, "name: unknown field; known fields: role, content"),
    ],
)
def test_messages_that_cannot_be_read_are_an_invalid_row(write: Write, message: dict[str, Any], problem: str) -> None:
    path = write(REWARDBENCH | {"prompt": [message]}, "rows.csv")
    with pytest.raises(InputError, match=re.escape(f"row 1: prompt[0]: {problem}")):
        load_examples(BENCHMARK, data=path, parts=["filtered"], on_bad=pytest.fail)


def test_a_list_without_messages_is_an_invalid_row(write: Write) -> None:
    path = write(REWARDBENCH | {"prompt": ["x"]}, "rows.jsonl")
    with pytest.raises(InputError, match=r"prompt\[0\]: expected a message with role and content, got 'x'"):
        load_examples(BENCHMARK, data=path, parts=["filtered"], on_bad=pytest.fail)


@pytest.mark.parametrize("source", ["own", "rewardbench"])
@pytest.mark.parametrize("format", ["tirjudge/2", "mt-bench-pair", "nemotron-genrm"])
def test_every_format_shows_the_whole_conversation(
    write: Write, tmp_path: Path, source: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")
    named = [] if source == "own" else ["rewardbench", "--part", "filtered"]
    path = write(OWN if source == "own" else REWARDBENCH, "rows.csv")
    with serving_chat(lambda shown: "[[A]]") as chat:
        model = ["--chat-url", chat.url, "--chat-model", MODEL, "--format", format, "--tools", "off"]
        out = ["--out", str(tmp_path / "run"), "--no-force-verdict"]
        done = run_command(["bench", "run", *named, "--data", str(path), *out, *model])
    assert done.status == 0, done.stderr
    (body,) = chat.bodies
    messages = [(message["role"], message["content"]) for message in body["messages"]]
    if format == "nemotron-genrm":
        assert messages[:3] == list(TURNS)
        assert {role for role, _ in messages[3:]} == {"response_1", "response_2"}
    else:
        (shown,) = [text for _, text in messages if "Name a sea." in text]
        for role, content in TURNS:
            assert f"{role}: {content}" in shown


@pytest.mark.slow
@pytest.mark.parametrize("source", ["own", "rewardbench"])
def test_a_scalar_reward_model_reads_the_messages_in_its_chat_template(
    write: Write, tmp_path: Path, source: str, families: Families
) -> None:
    folder = write_reward_model(families, tmp_path / "model")
    named = [] if source == "own" else ["rewardbench", "--part", "filtered"]
    path = write(OWN if source == "own" else REWARDBENCH, "rows.csv")
    run = ["bench", "run", *named, "--data", str(path), "--out", str(tmp_path / "run"), "--mode", "pointwise"]
    done = run_command([*run, "--judge", f"sequence:{folder}", "--tools", "off"])
    assert done.status == 0, done.stderr
    (judged,) = load_run(tmp_path / "run").judged
    classifier = Classifier(folder)
    expected = [classifier.score(conversation(PROMPT, text)) for text in ('"North Sea"', "No.")]
    assert [decision.score for decision in judged.decisions] == pytest.approx(expected, abs=1e-4)
    as_text = classifier.score(conversation(json.dumps(MESSAGES), "No."))
    assert abs(expected[1] - as_text) > 1e-3, "the score depends on how the prompt is read"
