"""`tirjudge doctor` with scripted models, random models, and the bundled judge. Sandboxes and endpoints are real."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.chat_server import MODEL, serving_chat
from tests.harness.commands import CommandResult, run_command, start_command, wait_until
from tirjudge.engines.base import Engine
from tirjudge.engines.scripted import END_OF_TURN, ByteTokenizer, ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.tools.python import python_tools
from tirjudge.types import Completion, Sampling
from tirjudge_harness.selfcheck_rows import selfcheck_rows
from tirjudge_sandbox import SandboxPool

RIGHT = {row["request"]: row["responses"][row["label"]] for row in selfcheck_rows()}
THOUGHT_ID = END_OF_TURN + 1
"""Id of the token that opens a thought. The next id closes it."""

SHOWN = re.compile(r"<response(?:_([a-z]))?>\n(.*?)\n</response(?:_[a-z])?>", re.DOTALL)


def label_of_right(sequence: str) -> str:
    """Return the label of the right response in a prompt: its letter, or a high or low score."""
    right = next(RIGHT[request] for request in RIGHT if f"<prompt>\n{request}\n" in sequence)
    shown = SHOWN.findall(sequence)
    if shown[0][0]:
        return next(letter.upper() for letter, text in shown if text == right)
    return "9" if shown[0][1] == right else "1"


def tag(label: str) -> str:
    name = "score" if label.isdigit() else "preference"
    return f"<{name}>{label}</{name}>"


def oracle(sequence: str) -> str:
    """A judge that is always right, without tools."""
    return tag(label_of_right(sequence))


def reader_of_outputs(sequence: str) -> str:
    """A judge that is right if a program's output tells it the label, and always names the first response otherwise."""
    first = "1" if "<score>" in sequence else "A"
    if "```python" not in sequence:
        return tag(first)
    if "print('label'" not in sequence:
        return f"```python\nprint('label', {label_of_right(sequence)!r})\n```\n```output"
    found = re.search(r"```output\nlabel (\w+)", sequence)
    return tag(found[1] if found else first)


def first_is_best(sequence: str) -> str:
    return tag("5" if "<score>" in sequence else "A")


def never_right(sequence: str) -> str:
    """A judge that is always wrong, without tools."""
    right = label_of_right(sequence)
    return tag({"9": "1", "1": "9"}.get(right) or next(label for label in "AB" if label != right))


def no_tags(sequence: str) -> str:
    """A judge that writes its verdict in the form of another prompt."""
    return "The better one is [[A]]"


class IgnoresStops(ScriptedEngine):
    """An engine that does not end a turn at a stop string."""

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        return await super().generate(token_ids, sampling=replace(sampling, stop=()), session=session)


class TellsNoMass(ScriptedEngine):
    """An engine whose labels have little probability."""

    def __init__(self, script: Callable[[str], str]) -> None:
        super().__init__(script, label_probs={"A": 0.4, "B": 0.1, "C": 0.1, "9": 0.4, "1": 0.1})  # 0.5 or 0.6 in all


def doctor(engine: Engine, *options: str, runs_programs: bool = False) -> CommandResult:
    """Run the command with an engine in place of the one that the options name. If it `runs_programs`, a real sandbox
    is started."""

    @asynccontextmanager
    async def open_scripted(address: str, **_: Any) -> AsyncIterator[Judge]:
        pool = SandboxPool(slots=1)
        async with pool if runs_programs else nullcontext():
            yield Judge(engine=engine, tools=python_tools(pool))

    with patch("tirjudge_harness.judges.open_judge", open_scripted):
        return run_command(["doctor", *options])


def findings(engine: Engine, *options: str, status: int = 0, runs_programs: bool = False) -> dict[str, Any]:
    done = doctor(engine, "--json", *options, runs_programs=runs_programs)
    assert done.status == status, done.stderr
    return json.loads(done.stdout)


def sure(sequence: str) -> dict[str, float]:
    """Return probabilities of which the labels hold 99 %."""
    return {"5": 0.99} if "<score>" in sequence else {"A": 0.99}


@pytest.mark.slow
def test_a_judge_that_reads_outputs_is_a_tool_using_judge() -> None:
    found = findings(ScriptedEngine(reader_of_outputs, label_probs=sure), "--items", "24", runs_programs=True)
    with_tools, without, removed = (
        found["passes"][name] for name in ("with_tools", "without_tools", "outputs_removed")
    )
    assert with_tools["accuracy"]["value"] == 1.0
    assert with_tools["tool_rate"]["value"] == removed["tool_rate"]["value"] == 1.0
    assert without["tool_rate"]["value"] == 0.0
    assert without["accuracy"]["value"] == removed["accuracy"]["value"] < 0.6
    assert found["conclusion"]["use"] == "tools"
    assert found["conclusion"]["sentence"].startswith("Usable as a tool-using judge: 100% right with tools")
    assert found["conclusion"]["broken"] == []


@pytest.mark.slow
def test_a_judge_that_runs_no_programs_is_used_without_tools() -> None:
    found = findings(ScriptedEngine(oracle, label_probs=sure))
    assert found["conclusion"]["use"] == "no_tools"
    assert "runs a program in 0% of its judgments" in found["conclusion"]["sentence"]


@pytest.mark.slow
def test_a_judge_that_always_names_the_first_response_is_not_usable() -> None:
    found = findings(ScriptedEngine(first_is_best, label_probs=sure))
    # Right in 12 of 24 pairs and 8 of 24 lists, and half right in 12 ties: 26 of 60.
    assert found["passes"]["with_tools"]["accuracy"]["value"] == pytest.approx(26 / 60)
    assert found["chance"] == pytest.approx(26 / 60)
    assert found["conclusion"]["use"] == "none"
    assert "not above chance (43%)" in found["conclusion"]["sentence"]


def test_few_items_that_show_nothing_are_not_a_conclusion() -> None:
    """Of 6 items, 42 % are right, with an interval up to 76 %. Of 12 items, none is right."""
    found = findings(ScriptedEngine(first_is_best, label_probs=sure), "--items", "6")
    sentence = found["conclusion"]["sentence"]
    assert found["conclusion"]["use"] == "unknown"
    assert sentence.startswith("Too few items to tell: ")
    assert sentence.endswith("accuracies far above it. Only 6 of 60 items were judged.")
    wrong = findings(ScriptedEngine(never_right, label_probs=sure), "--items", "12")
    assert wrong["conclusion"]["use"] == "none"
    assert "0% right with tools and 0% without, which is not above chance" in wrong["conclusion"]["sentence"]


def test_low_label_mass_is_broken() -> None:
    found = findings(TellsNoMass(oracle), "--items", "12", status=1)
    assert found["label_mass"]["mean"] < 0.9
    (problem,) = found["conclusion"]["broken"]
    assert re.fullmatch(r"the labels hold 5\d% of the probability at the verdict, less than 90%", problem)
    assert found["conclusion"]["use"] == "none"


def test_verdicts_in_another_form_are_broken() -> None:
    found = findings(ScriptedEngine(no_tags, label_probs=sure), "--items", "12", status=1)
    passed = found["passes"]["with_tools"]
    assert passed["format_errors"]["value"] == passed["forced"]["value"] == 1.0
    assert passed["ended"] == {"no_verdict": 13}
    assert found["conclusion"]["broken"] == [
        "100% of the verdicts with tools are malformed or missing",
        "100% of the verdicts without tools are malformed or missing",
    ]


def test_a_stop_string_that_never_matches_is_broken() -> None:
    found = findings(IgnoresStops(oracle, label_probs=sure), "--items", "12", status=1)
    stops = {stop["text"]: (stop["turns"], stop["matched"], stop["missed"]) for stop in found["stops"]}
    assert stops["</preference>"] == (33, 0, 33)  # 11 comparisons in three passes
    assert stops["</score>"] == (6, 0, 6)
    assert stops["```output"] == (26, 0, 0)  # asked for with tools, and never written
    assert found["conclusion"]["broken"] == [
        "'</score>' never ended a turn, although it was written or due",
        "'</preference>' never ended a turn, although it was written or due",
    ]


@pytest.mark.slow
def test_format_errors_with_tools_only_leave_a_judge_without_tools() -> None:
    def script(sequence: str) -> str:
        return no_tags(sequence) if "```python" in sequence else oracle(sequence)

    found = findings(ScriptedEngine(script, label_probs=sure), status=1)
    assert found["conclusion"]["use"] == "no_tools"
    assert found["conclusion"]["sentence"] == (
        "Usable only without tools: 100% of the verdicts with tools are malformed or missing."
    )


def test_a_failing_program_counts_as_an_error_and_its_error_is_removed_too() -> None:
    seen: list[str] = []

    def script(sequence: str) -> str:
        if "```python" in sequence and "raise ValueError" not in sequence:
            return "```python\nraise ValueError('oops')\n```\n```output"
        if "raise ValueError" in sequence:
            seen.append(sequence.rpartition("```output\n")[2])
        return oracle(sequence)

    found = findings(ScriptedEngine(script, label_probs=sure), "--items", "12", runs_programs=True)
    assert found["passes"]["with_tools"]["program_errors"]["value"] == 1.0
    assert found["passes"]["outputs_removed"]["program_errors"]["value"] == 1.0
    assert ["oops" in output for output in seen] == 13 * [True] + 13 * [False]


def test_the_json_has_all_findings(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    found = findings(ScriptedEngine(oracle, label_probs=sure), "--items", "12", "--out", str(out))
    assert json.loads(out.read_text()) == found
    assert set(found) == {
        "version", "model", "findings", "template", "special_tokens", "label_mass", "stops", "largest_prompt",
        "prefix_cache", "speed", "items", "chance", "passes", "conclusion",
    }  # fmt: skip
    assert (found["items"], found["findings"]) == (12, [])
    assert set(found["passes"]) == {"with_tools", "without_tools", "outputs_removed"}
    assert set(found["passes"]["with_tools"]) == {
        "accuracy", "tool_rate", "program_errors", "format_errors", "forced", "ended", "basis", "input_tokens",
        "output_tokens", "seconds", "wall_s", "judgments", "failed",
    }  # fmt: skip
    assert set(found["passes"]["with_tools"]["accuracy"]) == {"value", "num", "interval"}
    assert found["special_tokens"]["source"] == "families"
    assert found["model"]["context_tokens"] == 16384
    assert 500 < found["largest_prompt"] < 3000


def test_the_page_names_every_part() -> None:
    done = doctor(ScriptedEngine(oracle, label_probs=sure), "--items", "12")
    assert done.status == 0, done.stderr
    for part in (
        "address", "prompt format", "chat template", "special tokens", "label mass", "stop strings", "context",
        "prefix cache", "speed", "12 items", "with tools", "without tools", "outputs removed", "accuracy %",
        "rollouts that ran a program %", "format errors %", "forced verdicts %", "seconds per judgment",
    ):  # fmt: skip
        assert part in done.stdout, part
    assert "Usable only without tools" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_the_accuracy_with_tools_is_that_of_a_benchmark_run(random_checkpoint: Path, tmp_path: Path) -> None:
    model = ["--model", str(random_checkpoint), "--json"]
    examined = run_command(["doctor", *model, "--items", "12"])
    ran = run_command(["bench", "run", "selfcheck", "--out", str(tmp_path), "--limit", "12", *model])
    assert ran.status == 0, ran.stderr
    assert examined.status == 1, examined.stderr  # a random model writes no verdicts
    headline, passed = json.loads(ran.stdout)[0]["figures"][0], json.loads(examined.stdout)["passes"]["with_tools"]
    assert passed["accuracy"] == {"value": headline["value"], "num": 12, "interval": headline["interval"]}
    assert passed["format_errors"]["value"] == 1.0


def test_a_chat_endpoint_is_examined_and_what_it_does_not_tell_is_null() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
    with serving_chat(oracle, usage=usage) as chat:
        done = run_command(["doctor", "--chat-url", chat.url, "--chat-model", MODEL, "--items", "12", "--json"])
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["label_mass"] is None
    assert found["model"]["context_tokens"] is None
    assert found["template"] == {"knows_thinking": None, "options": None, "thinking": None}
    assert found["prefix_cache"] == {"prompt_tokens": 100, "cached_tokens": 64}
    assert found["largest_prompt"] == 100
    assert found["passes"]["with_tools"]["output_tokens"] == 7
    assert {stop["matched"] for stop in found["stops"] if stop["text"] != "```output"} == {6, 33}


@pytest.mark.slow
def test_an_endpoint_without_token_counts_gets_no_invented_ones() -> None:
    with serving_chat(oracle) as chat:
        done = run_command(["doctor", "--chat-url", chat.url, "--chat-model", MODEL, "--items", "12", "--json"])
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["largest_prompt"] is None
    assert found["passes"]["with_tools"]["output_tokens"] is None
    assert found["speed"]["output_tokens_per_s"] is None


def test_a_wrong_key_is_reported_at_once() -> None:
    error = {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}
    with serving_chat([], refuses=lambda body: (401, {"error": error})) as chat:
        done = run_command(["doctor", "--chat-url", chat.url, "--chat-model", MODEL])
        assert len(chat.bodies) == 1
    assert done.status == 2
    last = done.stderr.splitlines()[-1]
    assert last == f"tirjudge doctor: {chat.url}/chat/completions answered 401: Incorrect API key provided"


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--engine", "--chat-url"])
def test_an_engine_that_does_not_listen_is_reported(option: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        name = ["--chat-model", "x"] if option == "--chat-url" else []
        done = run_command(["doctor", option, url, *name])
    assert done.status == 2
    assert url in done.stderr.splitlines()[-1]


def test_an_engine_that_stops_answering_ends_the_doctor(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = doctor(ScriptedEngine(["hello", "hello"]), "--items", "12", "--out", str(out))
    assert done.status == 2
    assert "tirjudge doctor: the model stopped answering: " in done.stderr
    assert done.stderr.endswith("the script has no more texts\n")
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--model", "/no/such/folder"], "/no/such/folder is not a checkpoint folder"),
        (["--chat-url", "http://127.0.0.1:9"], "--chat-url needs --chat-model"),
        (["--engine", "gpu-1:8000"], "--engine: the URL must start with http:// or https://"),
        (["--judge", "nothing:x"], "unknown engine 'nothing'"),
    ],
)
def test_invalid_options_are_reported_in_one_line(options: list[str], says: str) -> None:
    done = run_command(["doctor", *options])
    assert done.status == 2
    assert says in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_ctrl_c_ends_the_doctor_without_a_page(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    lines: list[str] = []
    with serving_chat(oracle) as chat:
        command = ["doctor", "--chat-url", chat.url, "--chat-model", MODEL, "--out", str(out), "--concurrency", "1"]
        process = start_command(command)
        wait_until(lambda: len(chat.bodies) > 10, process=process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        lines = errors.splitlines()
    assert process.returncode == 130
    assert lines[-1] == "Stopped. Nothing was saved."
    assert "Traceback" not in errors
    assert not out.exists()


@pytest.mark.slow
def test_the_bundled_judge_is_not_broken() -> None:
    done = run_command(["doctor", "--items", "12", "--json"])
    assert done.status == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["label_mass"]["mean"] > 0.9
    assert found["special_tokens"] == {"number": 3, "source": "tokenizer"}
    assert found["prefix_cache"]["cached_tokens"] > 0.9 * found["prefix_cache"]["prompt_tokens"]
    assert found["passes"]["with_tools"]["tool_rate"]["value"] > 0.5
    assert all(stop["matched"] > 0 for stop in found["stops"])


class ThinkingTokenizer(ByteTokenizer):
    """A tokenizer with tokens around thoughts, whose template opens a thought, and that knows its options."""

    async def encode_prompt(self, text: str) -> list[int]:
        return [*await self.encode(text), THOUGHT_ID]

    async def tokens_of(self, texts: Collection[str]) -> dict[str, Sequence[int]]:
        known = {"<think>": (THOUGHT_ID,), "</think>": (THOUGHT_ID + 1,)}
        return {**await super().tokens_of(texts), **{text: ids for text, ids in known.items() if text in texts}}

    async def chat_template_kwargs(self) -> dict[str, bool]:
        return {"enable_thinking": True}


def test_an_open_thought_and_the_options_of_the_template_are_shown() -> None:
    def thinker(sequence: str) -> str:
        return oracle(sequence) if "That is clear.</think>" in sequence else "That is clear.</think>"

    engine = ScriptedEngine(thinker, label_probs=sure)
    engine.tokenizer = ThinkingTokenizer()
    found = findings(engine, "--items", "12")
    assert found["template"] == {"knows_thinking": True, "options": {"enable_thinking": True}, "thinking": "open"}
    page = " ".join(doctor(engine, "--items", "12").stdout.split())
    assert "has the option enable_thinking; options given: {'enable_thinking': True}" in page
    assert "the prompt opens a thought: yes" in page
