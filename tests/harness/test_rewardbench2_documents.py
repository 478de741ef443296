"""RewardBench 2 with the documents of a local folder: rows in the columns of the data set, and a judge that searches.

The rows and documents are written for this test. The model is scripted and served by a chat endpoint; the sandbox, the store
and the command are real.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import MODEL, ChatServer, serving_chat
from tests.harness.commands import MAIN, CommandResult, run_command
from tirjudge_harness.run import load_run

Run = Callable[[Sequence[str]], CommandResult]

COUNTIES = {
    "Ardvale": ("Brenhold", "1412", "Lady Marrow"),
    "Corland": ("Costmere", "1388", "Osric Tann"),
    "Estmark": ("Dunfell", "1501", "Hild Varn"),
    "Fenshire": ("Eastrow", "1277", "Abbot Lorne"),
}
"""County -> its seat, the year of its charter, and who signed it."""

ASKED = (
    ("Which town is the seat of {}?", "It is {}.", 0),
    ("In which year did {} get its charter?", "In {}.", 1),
    ("Who signed the charter of {}?", "{} signed it.", 2),
)


def factuality_rows() -> list[dict[str, Any]]:
    """Return twelve rows of `Factuality`, each with one right and three wrong answers."""
    rows = []
    for county in COUNTIES:
        for question, answer, which in ASKED:
            facts = {name: answer.format(told[which]) for name, told in COUNTIES.items()}
            rows.append(
                row(len(rows), question.format(county), [facts.pop(county)], list(facts.values()), "Factuality")
            )
    return rows


def row(number: int, prompt: str, chosen: list[str], rejected: list[str], subset: str) -> dict[str, Any]:
    """Return a row with all columns of the data set."""
    return {
        "id": str(number), "prompt": prompt, "chosen": chosen, "rejected": rejected, "num_correct": len(chosen),
        "num_incorrect": len(rejected), "total_completions": len(chosen) + len(rejected),
        "models": ["a model"] * (len(chosen) + len(rejected)), "subset": subset,
        "additional_metadata": {"category": None, "correct": None, "index": None, "method": None},
    }  # fmt: skip


FOCUS = [row(12, "Describe a lighthouse.", ["A tall tower with a lamp."], ["A boat.", "A bird.", "A hill."], "Focus")]
"""A row that no document decides."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with rows and documents."""
    lines = [json.dumps(each) + "\n" for each in factuality_rows() + FOCUS]
    (tmp_path / "rows.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "documents").mkdir()
    for county, (seat, year, signer) in COUNTIES.items():
        text = (
            f"# The county of {county}\n\n{county} lies between two rivers. Its seat is {seat}, a town with a market.\n\n"
            f"The charter dates from {year}. It was signed by {signer} in the presence of the guilds.\n"
        )
        (tmp_path / "documents" / f"{county.lower()}.md").write_text(text, encoding="utf-8")
    return tmp_path


SEARCHING = """\
import json, re
hits = search("documents", prompt, 1) if any(s["name"] == "documents" for s in stores()) else []
text = " ".join(hit["text"] for hit in hits)
asked = re.findall(r"[A-Z][a-z]+", prompt)[-1]
def told(response):
    parts = re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+|[A-Z][a-z]{3,}|[0-9]{4}", response)
    return asked in text and any(part in text for part in parts)
print("CHECK", json.dumps({k: int(told(r)) for k, r in responses.items()}))
"""


def search(conversation: str) -> str:
    """Write a program that searches, then choose the first response that the found passage supports; without one, A."""
    if "We search." not in conversation:
        return f"We search.\n```python\n{SEARCHING}```\n```output\n"
    found = json.loads(conversation.rpartition("CHECK ")[2].partition("\n")[0])
    return f"<preference>{max(found, key=found.get)}</preference>"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")
    with serving_chat(search) as server:
        yield server


def process(given: Sequence[str]) -> CommandResult:
    """Run `tirjudge` as a process."""
    done = subprocess.run([*MAIN, *given], capture_output=True, text=True, check=False)
    return CommandResult(status=done.returncode, stdout=done.stdout, stderr=done.stderr)


def share_right(folder: Path, chat: ChatServer, *options: str, out: str, run: Run) -> float:
    """Run the benchmark and return the share of right choices in `Factuality`."""
    paths = ["--data", str(folder / "rows.jsonl"), "--out", str(folder / out)]
    model = ["--chat-url", chat.url, "--chat-model", MODEL, "--tools", "on", "--tool", "python", "--tool", "evidence"]
    done = run(["bench", "run", "rewardbench2", *paths, *model, "--json", *options])
    assert done.status == 0, done.stderr
    [result] = json.loads(done.stdout)
    assert (result["counts"]["examples"], result["num_missing"]) == (13, 0)
    return next(figure["value"] for figure in result["figures"] if figure["name"] == "Factuality")


def check_documents_decide(folder: Path, chat: ChatServer, run: Run) -> None:
    documents = ("--documents", str(folder / "documents"))
    assert share_right(folder, chat, *documents, out="with", run=run) == 1.0
    share = share_right(folder, chat, out="without", run=run)
    shown_first = [
        one.decisions[0].shown[0] in one.outline.correct
        for one in load_run(folder / "without").judged
        if one.outline.subset == "Factuality"
    ]
    assert share == sum(shown_first) / len(shown_first)
    assert share < 0.6
    assert all("documents (documents)" in prompt for prompt in prompts(chat)[:13])
    assert not any("documents (documents)" in prompt for prompt in prompts(chat)[-13:])


def prompts(chat: ChatServer) -> list[str]:
    return [json.dumps(body["messages"]) for body in chat.bodies]


@pytest.mark.slow  # 26 judgments with programs and queries
def test_documents_decide_factuality(folder: Path, chat: ChatServer) -> None:
    check_documents_decide(folder, chat, run_command)


@pytest.mark.slow  # two processes
def test_documents_decide_factuality_in_processes(folder: Path, chat: ChatServer) -> None:
    check_documents_decide(folder, chat, process)
