"""`tirjudge judge` with one request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.commands import MAIN, run_command
from tirjudge.types import JudgeRequest, Mode
from tirjudge_harness.items import InputError, JudgeSettings
from tirjudge_harness.single_request import read_request


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Paths of three responses."""
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path, text in zip(paths, ("Hello world\n", "\ufeffHello my world", "x"), strict=True):
        path.write_text(text, encoding="utf-8")
    return [str(path) for path in paths]


def read(*inputs: str, **settings: object) -> JudgeRequest:
    return read_request(inputs, settings=JudgeSettings(**settings))  # type: ignore[arg-type]


def test_a_prompt_and_files_are_a_request(texts: list[str], tmp_path: Path) -> None:
    request = read("Write two words.", *texts[:2], votes=3)
    assert (request.prompt, request.responses) == ("Write two words.", ["Hello world", "Hello my world"])
    assert (request.mode, request.votes) == (Mode.PAIRWISE, 3)
    assert [read("p", *texts[:num]).mode for num in (1, 3)] == [Mode.POINTWISE, Mode.LISTWISE]
    (tmp_path / "prompt.txt").write_text("From a file.\n")
    assert read(str(tmp_path / "prompt.txt"), texts[0]).prompt == "From a file."
    assert read("long " * 2000, texts[0]).prompt == "long " * 2000


def test_a_json_file_is_a_request_and_its_mode_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps({"prompt": "p", "responses": ["a", "b"], "votes": 2}))
    request = read(str(path))
    assert (request.mode, request.votes) == (Mode.PAIRWISE, 2)
    path.write_text(json.dumps({"mode": "pointwise", "prompt": "p", "responses": ["a", "b"]}), encoding="utf-8-sig")
    assert read(str(path)).mode is Mode.POINTWISE


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("Write two words.", "not a JSON request: .*for a prompt and responses, give PROMPT FILE FILE"),
        ("[]", "expected a JSON object with prompt and responses"),
        ('{"prompt": "p"}', "mode: not given"),
        ('{"prompt": "p", "responses": ["a", "b"], "mode": "best"}', "mode"),
        ("[" * 100_000, "not a JSON request"),
    ],
)
def test_other_files_are_refused_with_the_forms(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "request.json"
    path.write_text(content)
    with pytest.raises(InputError, match=says) as raised:
        read(str(path))
    assert str(raised.value).startswith(str(path))


def test_settings_of_a_request_file_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"prompt": "p", "responses": ["a", "b"]}')
    with pytest.raises(InputError, match="--votes, --seed cannot be combined with a request file"):
        read(str(tmp_path / "request.json"), votes=3, seed=1)


@pytest.mark.parametrize("name", ["promt.txt", "Promt.MD", "prompts/frist", "./prompt", "/frist"])
def test_the_name_of_a_file_that_does_not_exist_is_not_a_prompt(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts").mkdir()
    with pytest.raises(InputError, match=f"^{name}: no such file; .* To judge this very text, give - as the prompt"):
        read(name, texts[0])


@pytest.mark.parametrize("prompt", ["1/2+1/3=?", "and/or", "What is promt.txt", "x" * 5000 + "/y", "prompt", "3.14"])
def test_a_text_is_a_prompt_although_no_file_has_this_name(texts: list[str], prompt: str) -> None:
    assert read(prompt, texts[0]).prompt == prompt


def test_the_name_of_a_file_is_a_prompt_on_standard_input(texts: list[str], fast: list[str]) -> None:
    done = subprocess.run([*MAIN, "judge", "-", texts[0], *fast], input=b"promt.txt", capture_output=True)
    assert b"Prompt\n  promt.txt\n" in done.stdout


def test_unreadable_responses_are_named(texts: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.txt: cannot be read: No such file"):
        read("p", texts[0], "missing.txt")
    (tmp_path / "latin.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"latin\.txt: not UTF-8 text"):
        read("p", str(tmp_path / "latin.txt"))
    with pytest.raises(InputError, match="give a JSON file with one request, or a prompt and files of responses"):
        read("Write two words.")
    with pytest.raises(InputError, match="give - once"):
        read("-", texts[0], "-")
    with pytest.raises(InputError, match="pairwise compares exactly 2 responses, 3 given"):
        read("p", *texts, mode=Mode.PAIRWISE)


@pytest.fixture
def fast(random_checkpoint: Path) -> list[str]:
    return ["--model", str(random_checkpoint), "--tools", "off"]


def test_the_verdict_is_printed_and_json_is_the_judgment(texts: list[str], fast: list[str]) -> None:
    done = run_command(["judge", "Write [bold]two\x1b[1m words.", *texts[:2], *fast])
    assert done.status == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1:5] == ["Prompt", "  Write [bold]two\\x1b[1m words.", "Response A", "  Hello world"]
    assert lines[-1].startswith("Verdict: response ")
    judgment = json.loads(run_command(["judge", "p", *texts[:2], *fast, "--json"]).stdout)
    assert (judgment["object"], judgment["mode"]) == ("judgment", "pairwise")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["items.jsonl"], "items.jsonl is a file of items; give --out FILE, or --out - for standard output"),
        (["p", "a.txt", "--limit", "3", "--min-accuracy", "1"], "--limit, --min-accuracy: only for a file of items"),
        (["p", "a.txt", "--out", "x.jsonl"], "--out: give one file of items"),
        (["items.jsonl", "--out", "-", "--json"], "--json prints the summary to standard output"),
    ],
)
def test_forms_cannot_be_mixed(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("items.jsonl").touch()
    done = run_command(["judge", *arguments])
    assert done.status == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_file_of_items_is_named_before_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_command(["judge", "missing.jsonl"])
    assert done.status == 2
    assert "missing.jsonl: cannot be read: No such file or directory" in done.stderr


def test_out_can_be_standard_output(write_lines, pairs, fast: list[str]) -> None:
    done = run_command(["judge", str(write_lines(pairs[:3])), "--out", "-", *fast])
    assert done.status == 0, done.stderr
    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == ["i0", "i1", "i2"]
    assert "judged" in done.stderr
    assert not Path("-").exists()


def test_a_csv_file_is_judged_to_standard_output(fast: list[str], tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text('prompt,chosen,rejected\nWrite one word.,yes,"yes, no"\n')
    done = run_command(["judge", str(path), "--out", "-", *fast])
    assert done.status == 0, done.stderr
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["label"], len(line["id"])) == (0, 16)
    assert "right" in done.stderr
    assert "a file of items" in run_command(["judge", str(path)]).stderr


READ = """
from tirjudge_harness.items import JudgeSettings
from tirjudge_harness.single_request import read_request
print(read_request(["-", {path!r}], settings=JudgeSettings()).prompt)
"""


def test_the_prompt_can_be_standard_input(texts: list[str]) -> None:
    read_it = [sys.executable, "-c", READ.format(path=texts[0])]
    assert (
        subprocess.run(read_it, input="Write two words.\n", capture_output=True, text=True).stdout
        == "Write two words.\n"
    )


@pytest.mark.slow
def test_standard_input_is_a_request_or_a_file_of_items(write_lines, pairs, fast: list[str]) -> None:
    items = write_lines(pairs[:2]).read_bytes()
    done = subprocess.run([*MAIN, "judge", "-", "--out", "-", *fast], input=items, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 2
    request = b'{"prompt": "p", "responses": ["a", "b"], "tools": "off"}'
    done = subprocess.run([*MAIN, "judge", "-", "--json", *fast[:2]], input=request, capture_output=True)
    assert json.loads(done.stdout)["mode"] == "pairwise"


def test_exit_statuses_of_a_file_of_items(write_lines, pairs, fast: list[str], tmp_path: Path) -> None:
    judge = ["judge", str(write_lines(pairs)), "--out", str(tmp_path / "out.jsonl"), *fast]
    assert run_command([*judge, "--min-accuracy", "0"]).status == 0
    unlabelled = [{key: value for key, value in pair.items() if key != "label"} for pair in pairs]
    judge = ["judge", str(write_lines(unlabelled, name="u.jsonl")), "--out", str(tmp_path / "u.out"), *fast]
    done = run_command([*judge, "--min-accuracy", "0.5"])
    assert done.status == 1
    assert done.stderr == "no item has a label, so the accuracy does not reach --min-accuracy 0.5\n"
