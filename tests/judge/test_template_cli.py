"""The option `--chat-template-kwargs` of commands that open a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import run_command

ITEM = {"id": "1", "prompt": "Write a word.", "responses": ["yes", "no"]}


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps(ITEM) + "\n")
    return path


@pytest.mark.parametrize("command", ["judge", "serve"])
@pytest.mark.parametrize(("given", "reason"), [("{", "not JSON"), ("[1]", "not a JSON object")])
def test_options_that_are_no_object_are_refused_with_an_example(
    command: str, given: str, reason: str, items: Path
) -> None:
    what = (items, "--out", items.parent / "out") if command == "judge" else ("--port", "0", "--records", "none")
    done = run_command(command, *what, "--chat-template-kwargs", given)
    assert done.returncode not in (0, None)
    said = " ".join(done.stderr.split())
    assert "--chat-template-kwargs" in said
    assert reason in said
    assert '{"enable_thinking": true}' in said


def test_options_other_than_those_of_the_training_are_refused(items: Path) -> None:
    done = run_command(
        "judge", items, "--out", items.parent / "out", "--chat-template-kwargs", '{"enable_thinking": true}'
    )
    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert '{"enable_thinking": true} given, but tirjudge-tiny was trained with {}' in said


def test_options_for_a_chat_endpoint_are_refused(items: Path) -> None:
    endpoint = ("--chat-url", "http://127.0.0.1:9/v1", "--chat-model", "m")
    done = run_command(
        "judge", items, "--out", items.parent / "out", *endpoint, "--chat-template-kwargs", '{"enable_thinking": true}'
    )
    assert done.returncode != 0
    assert "--default-chat-template-kwargs" in " ".join(done.stderr.split())
