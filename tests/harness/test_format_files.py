"""Format files of users, for judges that are not part of the package: `formats test`, `judge` and `bench run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import MODEL, serving_chat
from tests.command_line import run_command as run_formats
from tests.harness.commands import run_command

POINTWISE = """
[[pointwise.prompt]]
[[pointwise.prompt.message]]
content = "Q: {{prompt}}\\nA: {{response}}\\nEND"
"""

PAIRWISE = """
[[pairwise.prompt]]
[[pairwise.prompt.message]]
content = "Q: {{prompt}}\\nA: {{response_a}}\\nB: {{response_b}}\\nEND"
"""

FILES = {
    "yes_no": f"""
title = "Yes or no"
{POINTWISE}
[[pointwise.verdict]]
form = "label"
labels = {{ Yes = 1, No = 0 }}
scale = {{ low = 0, high = 1 }}
[[pointwise.example]]
text = "Yes"
label = 10
[[pointwise.example]]
text = "No, it is not."
label = 1
[[pointwise.example]]
text = "Nothing."
""",
    "json": f"""
title = "0 to 100 in JSON"
{POINTWISE}
[[pointwise.verdict]]
form = "json"
scale = {{ low = 0, high = 100 }}
scores = ["score"]
[[pointwise.example]]
text = '''
```json
{{"reason": "fine", "score": 50}}
```'''
label = 5.5
""",
    "thought": f"""
title = "Letter after the thought"
{PAIRWISE}
[pairwise]
verdict_after = "</think>"
[[pairwise.verdict]]
form = "line"
labels = {{ A = "A", B = "B" }}
[[pairwise.example]]
text = '''
<think>
A
</think>

B'''
label = "B"
""",
    "boxed": f"""
title = "Boxed, with ties"
{PAIRWISE}
[[pairwise.verdict]]
form = "label"
before = ['\\boxed{{']
after = ["}}"]
labels = {{ A = "A", B = "B", tie = "tie" }}
[[pairwise.example]]
text = 'So it is \\boxed{{B}}.'
label = "B"
[[pairwise.example]]
text = '\\boxed{{tie}}'
label = "tie"
""",
    "chinese": f"""
title = "中文评分"
{POINTWISE}
[[pointwise.verdict]]
form = "number"
before = ["最终评分：", "最终评分:"]
scale = {{ low = 1, high = 10 }}
[[pointwise.example]]
text = "理由很充分。最终评分：7"
label = 7
""",
    "two_scores": f"""
title = "Two scores in tags"
{PAIRWISE}
[[pairwise.verdict]]
form = "numbers"
before = ["<answer>"]
after = ["</answer>"]
pick = "first"
scale = {{ low = 0, high = 10 }}
[[pairwise.example]]
text = "<answer>3</answer><answer> 5</answer>"
label = "B"
[[pairwise.example]]
text = "<answer>5</answer>"
[[pairwise.example]]
text = "<answer>5</answer><answer>11</answer>"
""",
}
"""Name -> content of a file."""

ITEMS = [
    {"id": "a", "prompt": "Which is longer?", "responses": ["one", "three"], "label": 1},
    {"id": "b", "prompt": "Which is longer?", "responses": ["three", "two"], "label": 0},
]


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")


def answer(name: str, conversation: str) -> str:
    """Judge in the form of a file: the longer response is better, and `three` is good."""
    is_first = conversation.partition("\nB: ")[0].endswith("three")
    is_good = conversation.endswith("\nA: three\nEND")
    return {
        "yes_no": "Yes." if is_good else "No",
        "json": f'{{"score": {90 if is_good else 15}}}',
        "thought": f"<think>\nB\n</think>\n\n{'A' if is_first else 'B'}",
        "boxed": f"\\boxed{{{'A' if is_first else 'B'}}}",
        "chinese": f"最终评分：{9 if is_good else 2}。",
        "two_scores": "<answer>8</answer><answer>5</answer>" if is_first else "<answer>4</answer><answer>6</answer>",
    }[name]


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_user_is_tested_judged_and_benchmarked(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.toml"
    file.write_text(FILES[name])
    tested = run_formats("formats", "test", str(file))
    assert tested.returncode == 0, tested.stderr
    mode = "pointwise" if "pointwise" in FILES[name] else "pairwise"
    items, rows = tmp_path / "items.jsonl", tmp_path / "rows.jsonl"
    items.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    rows.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    with serving_chat(lambda conversation: answer(name, conversation)) as chat:
        model = ["--chat-url", chat.url, "--chat-model", MODEL, "--format", str(file), "--tools", "off", "--json"]
        model += ["--mode", mode]
        judged = run_command(["judge", str(items), "--out", str(tmp_path / "out.jsonl"), *model])
        ran = run_command(["bench", "run", "--data", str(rows), "--out", str(tmp_path / "run"), *model])
    assert judged.status == 0, judged.stderr
    assert json.loads(judged.stdout)["accuracy"] == 1.0
    assert ran.status == 0, ran.stderr
    assert json.loads(ran.stdout)[0]["figures"][0]["value"] == 1.0


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("boxed", (r"['\boxed{']", r'["\boxed{"]'), r"control character: in double quotes, TOML reads \b as one"),
        ("json", ("'''", "'"), "write a text of several lines between three quotes"),
        ("chinese", ("label = 7", "label = 8"), "example 1: the label '7' is read, but '8' is expected"),
        ("chinese", ("最终评分：7", "7"), "example 1: no verdict is read, but '7' is expected"),
        ("two_scores", ('before = ["<answer>"]', ""), "verdict.1.numbers.before: Field required"),
        ("yes_no", ('form = "label"', 'form = "numbers"\nbefore = ["x"]'), "unknown field labels"),
    ],
)  # fmt: skip
def test_mistakes_are_explained(name: str, change: tuple[str, str], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(FILES[name].replace(*change))
    tested = run_formats("formats", "test", str(file))
    assert tested.returncode == 2
    assert problem in " ".join(tested.stderr.split())
