"""`tirjudge show` on runs and on the output of `tirjudge judge`, with scripted judges."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.harness.commands import run_command
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import Mode
from tirjudge_harness.bench_run import RunContext, load_own_data, run_data
from tirjudge_harness.judges import OpenJudge
from tirjudge_harness.own_data.mapping import GivenColumns
from tirjudge_harness.planning import RunSettings
from tirjudge_harness.protocols import BOTH_ORDERS, PAPER
from tirjudge_sandbox import SandboxPool

ROWS = [
    {"prompt": "Say yes.", "response_a": "yes", "response_b": "no\x1b[31m", "winner": "A", "category": "plain"},
    {"prompt": "Say [b]no[/b].", "response_a": "no", "response_b": "yes", "winner": "A", "category": "plain"},
    {"prompt": "Say blue.", "response_a": "blue", "response_b": "red", "winner": "B", "category": "colors"},
    {"prompt": "Say red.", "response_a": "blue", "response_b": "red", "winner": "tie", "category": "colors"},
]


def script(sequence: str) -> str:
    """Choose "yes"; without it, the response that is shown first. A program runs before the verdict about "blue"."""
    a = re.findall(r"<response_a>\n(.*?)\n</response_a>", sequence, re.DOTALL)[-1]
    b = re.findall(r"<response_b>\n(.*?)\n</response_b>", sequence, re.DOTALL)[-1]
    if "yes" in (a, b):
        return f"I choose.<preference>{'A' if a == 'yes' else 'B'}</preference>"
    if "ran 2" not in sequence:
        return "I compute.\n```python\nprint('ran', 1 + 1)\n```\n```output\n"
    return "<preference>A</preference>"


@pytest.fixture
async def make_run(tmp_path: Path, pool: SandboxPool):
    """Judges `ROWS` with the scripted judge, and returns the folder of the run."""

    async def make(*, both_orders: bool = False) -> Path:
        path, out = tmp_path / "rows.jsonl", tmp_path / "run"
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        judge = Judge(engine=ScriptedEngine(script), tools=(PythonTool(pool),), profile=Profile(name="scripted"))
        opened = OpenJudge(judge=judge.judge, kind="local", url=None, model="scripted", fingerprint="0123")
        console = Console(file=io.StringIO())
        data = load_own_data(path, parts=(), given=GivenColumns(), max_error_rate=None, console=console)
        settings = RunSettings(protocol=BOTH_ORDERS if both_orders else PAPER, data=path, mode=Mode.PAIRWISE)
        context = RunContext(opened=opened, concurrency=4, console=console)
        await run_data(data, out=out, settings=settings, context=context)
        return out

    return make


def shown(folder: Path, *options: str) -> list[dict[str, Any]]:
    done = run_command(["show", str(folder), "--json", *options])
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)


async def test_items_have_texts_programs_outputs_and_results(make_run) -> None:
    folder = await make_run()
    found = {one["prompt"]: one for one in shown(folder)}
    assert [one["result"] for one in found.values()][:2] == ["right", "wrong"]
    assert (found["Say yes."]["right"], found["Say yes."]["row"], found["Say yes."]["subset"]) == (["A"], 1, "plain")
    assert found["Say yes."]["responses"] == ["yes", "no\x1b[31m"]
    (judged,) = found["Say blue."]["judgments"]
    assert judged["judgment"]["rollouts"][0]["turns"][0]["output"] == "ran 2"
    assert (found["Say red."]["judgments"], found["Say red."]["result"]) == ([], None)


@pytest.mark.slow
async def test_conditions_select_items(make_run) -> None:
    folder = await make_run(both_orders=True)
    assert [one["prompt"] for one in shown(folder, "--wrong")] == ["Say [b]no[/b]."]
    assert [one["prompt"] for one in shown(folder, "--flipped")] == ["Say blue."]
    assert [one["prompt"] for one in shown(folder, "--subset", "colors")] == ["Say blue.", "Say red."]
    assert shown(folder, "--forced") == []
    assert shown(folder, "--wrong", "--flipped") == []
    last = shown(folder)[-1]
    assert shown(folder, "--id", last["id"]) == [last]
    assert [one["prompt"] for one in shown(folder, "--limit", "1")] == ["Say yes."]


async def test_an_item_is_readable_and_harmless_in_a_terminal(make_run) -> None:
    folder = await make_run()
    done = run_command(["show", str(folder), "--subset", "plain"])
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert "\x1b" not in done.stdout
    assert "Response A (right)" in lines
    assert "  no\\x1b[31m" in lines
    assert "  Say [b]no[/b]." in lines
    assert "Verdict: response B is better" in " ".join(lines)
    assert max(map(len, lines)) <= 80
    programs = run_command(["show", str(folder), "--subset", "colors"]).stdout
    assert "  print('ran', 1 + 1)" in programs
    assert programs.index("Output (ok)") < programs.index("    ran 2")
    assert re.search(r"Turn 1, \d+ tokens, [\d.,]+ ms", programs)
    assert re.search(r"Output \(ok\), [\d.,]+ ms", programs)
    assert "Not judged" in programs


async def test_texts_come_from_the_data_of_the_run(make_run, tmp_path: Path) -> None:
    folder = await make_run()
    moved = (tmp_path / "rows.jsonl").rename(tmp_path / "moved.jsonl")
    refused = run_command(["show", str(folder)])
    assert refused.status == 2
    assert f"rows.jsonl: the rows of {folder} are not here; give --data PATH, or --no-texts" in refused.stderr
    assert shown(folder, "--data", str(moved))[0]["prompt"] == "Say yes."
    assert [one["prompt"] for one in shown(folder, "--no-texts")] == [None] * 4
    moved.write_text(json.dumps(ROWS[0] | {"prompt": "Say it."}) + "\n")
    refused = run_command(["show", str(folder), "--data", str(moved)])
    assert refused.status == 2
    assert "rows differ from the rows of" in refused.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--id", "x"], "--id: {run} has no item 'x'; an id looks like"),
        (["--subset", "x"], "--subset: {run} has no subset 'x'; choose colors, plain"),
    ],
)
async def test_unknown_conditions_are_refused(make_run, options: list[str], says: str) -> None:
    folder = await make_run()
    done = run_command(["show", str(folder), *options])
    assert done.status == 2
    assert says.format(run=folder) in done.stderr


def test_the_output_of_judge_is_shown_with_its_input(
    write_lines, pairs, random_checkpoint: Path, tmp_path: Path
) -> None:
    path, out = write_lines([pairs[0], {"id": "u", "prompt": "q", "responses": ["a", "b"]}]), tmp_path / "out.jsonl"
    judge = ["judge", str(path), "--out", str(out), "--model", str(random_checkpoint), "--tools", "off"]
    assert run_command(judge).status == 0
    without = run_command(["show", str(out)])
    assert "give the file that was judged with --data" in without.stderr
    found = {one["id"]: one for one in shown(out, "--data", str(path))}
    assert (found["i0"]["prompt"], found["i0"]["right"], found["i0"]["forced"]) == ("p0", ["A"], True)
    assert found["i0"]["result"] in ("right", "wrong")
    assert (found["u"]["result"], found["u"]["responses"]) == (None, ["a", "b"])
    other = write_lines([pairs[1]], name="other.jsonl")
    assert (
        "has no item 'i0' with the texts that were judged"
        in run_command(["show", str(out), "--data", str(other)]).stderr
    )
    missing = run_command(["show", str(tmp_path / "nothing")])
    assert (missing.status, missing.stderr.count("\n")) == (2, 1)


def test_a_run_from_another_folder_says_which_option_gives_its_rows(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    Path("mine.csv").write_text("prompt,chosen,rejected\nSay yes.,yes,no\nSay no.,no,yes\n")
    judge = ["--mode", "pairwise", "--model", str(random_checkpoint), "--tools", "off"]
    assert run_command(["bench", "run", "--data", "mine.csv", "--out", "run", *judge]).status == 0
    monkeypatch.chdir(tmp_path)
    refused = run_command(["show", "own/run"])
    assert refused.status == 2
    assert "mine.csv: the rows of own/run are not in this folder; give --data PATH, or --no-texts" in refused.stderr
    assert [one["prompt"] for one in shown(Path("own/run"), "--data", "own/mine.csv")] == ["Say yes.", "Say no."]


async def test_without_a_wrong_item_the_number_of_scored_items_is_printed(make_run) -> None:
    """Of the two items about colors, one is a tie by its label and not scored."""
    folder = await make_run(both_orders=True)
    none_wrong = run_command(["show", str(folder), "--subset", "colors", "--wrong"])
    assert none_wrong.stderr == "no item meets the conditions: 0 of 1 scored items are wrong\n"
    assert run_command(["show", str(folder), "--forced"]).stderr == "no item meets the conditions\n"


def test_wrong_needs_labels(write_lines, random_checkpoint: Path, tmp_path: Path) -> None:
    path, out = write_lines([{"id": "u", "prompt": "q", "responses": ["a", "b"]}]), tmp_path / "out.jsonl"
    judge = ["judge", str(path), "--out", str(out), "--model", str(random_checkpoint), "--tools", "off"]
    assert run_command(judge).status == 0
    done = run_command(["show", str(out), "--wrong"])
    assert (done.status, done.stdout) == (2, "")
    assert "no item of" in done.stderr
