"""`--format` with the formats of other judges: `tirjudge judge`, `bench run` and `rerank`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import MODEL, ChatServer, serving_chat
from tests.harness.commands import CommandResult, run_command
from tirjudge_harness.run import load_run

ITEMS = [
    {"id": "a", "prompt": "Which is longer?", "responses": ["one", "three"], "label": 1},
    {"id": "b", "prompt": "Which is longer?", "responses": ["three", "two"], "label": 0},
]


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")


def longer(conversation: str) -> str:
    """Choose the longer response in the format of MT-Bench."""
    first = conversation.index("three") < conversation.index("[The End of Assistant A's Answer]")
    return f"I compare them. [[{'A' if first else 'B'}]]"


def model_of(chat: ChatServer, *, format: str) -> list[str]:
    return ["--chat-url", chat.url, "--chat-model", MODEL, "--format", format]


def judge_file(chat: ChatServer, folder: Path, *more: str, format: str) -> CommandResult:
    items = folder / "items.jsonl"
    items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    out = str(folder / "out.jsonl")
    return run_command(["judge", str(items), "--out", out, "--json", *model_of(chat, format=format), *more])


def test_a_file_is_judged_in_the_format_of_another_judge(tmp_path: Path) -> None:
    with serving_chat(longer) as chat:
        done = judge_file(chat, tmp_path, "--tools", "off", format="mt-bench-pair")
        resumed = judge_file(chat, tmp_path, "--tools", "off", format="arena-hard")
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] == 1.0
    assert {body["messages"][0]["role"] for body in chat.bodies} == {"system"}
    assert resumed.status == 2
    assert "mt-bench-pair" in resumed.stderr


def test_requests_that_the_format_cannot_show_are_reported(tmp_path: Path) -> None:
    with serving_chat(longer) as chat:
        done = judge_file(chat, tmp_path, "--tools", "off", format="mt-bench-single")
    assert done.status == 1
    assert (
        "mode: pairwise given, but the format mt-bench-single has no prompt for it; its modes: pointwise" in done.stderr
    )
    assert chat.bodies == []


def test_an_unknown_format_is_an_error_before_anything_is_judged(tmp_path: Path) -> None:
    with serving_chat(longer) as chat:
        done = judge_file(chat, tmp_path, "--tools", "off", format="mt-bench")
    assert done.status == 2
    assert "unknown format 'mt-bench'" in done.stderr


def rows_of_llmbar(folder: Path) -> Path:
    rows = folder / "rows"
    rows.mkdir()
    for name in ("natural", "neighbor", "gptinst", "gptout", "manual"):
        row = {"input": f"{name}: which is longer?", "output_1": "one", "output_2": "three", "label": 2}
        (rows / f"{name}.json").write_text(json.dumps([row]))
    return rows


def test_a_benchmark_is_run_in_the_format_of_another_judge(tmp_path: Path) -> None:
    command = ["bench", "run", "llmbar", "--data", str(rows_of_llmbar(tmp_path)), "--protocol", "both_orders"]
    with serving_chat(longer) as chat:
        out = ["--out", str(tmp_path / "run"), "--tools", "off", "--json"]
        done = run_command([*command, *out, *model_of(chat, format="mt-bench-pair")])
    assert done.status == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert run.manifest.judge.format == "mt-bench-pair"
    decisions = [decision for judged in run.judged for decision in judged.decisions]
    assert [(decision.best, decision.forced) for decision in decisions] == [(1, False)] * 10


def test_both_orders_are_joined_by_the_rule_of_the_format(tmp_path: Path) -> None:
    def unsure(conversation: str) -> str:
        """Prefer the longer response strongly if it is shown first; otherwise prefer the first one slightly."""
        first = conversation.index("three") < conversation.index("<|The End of Assistant A's Answer|>")
        return "[[A>>B]]" if first else "[[A>B]]"

    accuracies, rows = {}, rows_of_llmbar(tmp_path)
    for format in ("arena-hard", "mt-bench-pair"):
        command = [
            "bench",
            "run",
            "llmbar",
            "--data",
            str(rows),
            "--protocol",
            "both_orders",
            "--tools",
            "off",
            "--json",
        ]
        texts = unsure if format == "arena-hard" else lambda conversation: "[[A]]"
        with serving_chat(texts) as chat:
            done = run_command([*command, "--out", str(tmp_path / format), *model_of(chat, format=format)])
        assert done.status == 0, done.stderr
        accuracies[format] = json.loads(done.stdout)[0]["figures"][0]["value"]
    assert accuracies == {"arena-hard": 1.0, "mt-bench-pair": 0.0}


def test_a_tie_of_the_judge_counts_as_a_tie(tmp_path: Path) -> None:
    command = ["bench", "run", "llmbar", "--data", str(rows_of_llmbar(tmp_path)), "--out", str(tmp_path / "run")]
    with serving_chat(lambda conversation: "[[C]]") as chat:
        done = run_command([*command, "--tools", "off", "--json", *model_of(chat, format="mt-bench-pair")])
    assert done.status == 0, done.stderr
    decisions = [decision for judged in load_run(tmp_path / "run").judged for decision in judged.decisions]
    assert [(decision.tied, decision.best) for decision in decisions] == [(True, None)] * 5


def test_a_random_model_abstains_in_the_format_of_another_judge(random_checkpoint: Path, tmp_path: Path) -> None:
    command = ["bench", "run", "llmbar", "--data", str(rows_of_llmbar(tmp_path)), "--out", str(tmp_path / "run")]
    model = ["--model", str(random_checkpoint), "--format", "mt-bench-pair", "--tools", "off", "--json"]
    done = run_command([*command, *model])
    assert done.status == 0, done.stderr
    decisions = [decision for judged in load_run(tmp_path / "run").judged for decision in judged.decisions]
    assert [decision.has_verdict for decision in decisions] == [False] * 5


def test_candidates_are_ranked_by_the_scores_of_another_judge(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        json.dumps({"id": "a", "prompt": "Which is longest?", "responses": ["one", "eleven", "six"]}) + "\n"
    )

    def score(conversation: str) -> str:
        response = conversation.partition("Response to evaluate:\n")[2].partition("\n")[0]
        return f"[RESULT] {min(5, len(response) - 1)}"

    command = ["rerank", str(rows), "--out", str(tmp_path / "out.jsonl"), "--method", "pointwise", "--tools", "off"]
    with serving_chat(score) as chat:
        done = run_command([*command, *model_of(chat, format="prometheus-2")])
    assert done.status == 0, done.stderr
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line)["best"] == 1
