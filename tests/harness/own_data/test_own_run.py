"""Runs on a user's own file: `bench run`, `inspect`, and all reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_server import MODEL, serving_chat
from tests.harness.commands import run_command
from tirjudge_harness.own_data.raters import rater_pairs_of
from tirjudge_harness.reports.scored import score_run
from tirjudge_harness.run import load_run, read_manifest

ROWS = """question,response_a,response_b,rater_1,rater_2,topic
Write a sentence in lower case only.,the sea is wide.,The Sea is Wide.,A,A,case
Write a sentence in lower case only.,The Sky is Blue.,the sky is blue.,B,B,case
Do not use any commas.,"Well, yes, no.",Well yes no.,B,tie,commas
Write at least 3 sentences.,It rains. It snows. It shines.,It rains.,A,B,count
Write exactly two words.,Hello there world,Hello world,B,B,count
"""

RATED = [
    ("Write a sentence in lower case only.", "the sea is wide.", 5),
    ("Write a sentence in lower case only.", "The Sea is Wide.", 1),
    ("Do not use any commas.", "Well, yes, no.", 2),
    ("Do not use any commas.", "Well yes no.", 4.5),
    ("Write exactly two words.", "Hello there world", None),
]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(ROWS.replace("\n", "\r\n"), encoding="utf-8-sig", newline="")
    return path


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    path = tmp_path / "rated.jsonl"
    lines = [json.dumps({"prompt": prompt, "response": response, "score": score}) for prompt, response, score in RATED]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def weak(random_checkpoint: Path, tmp_path: Path) -> list[str]:
    """Options of a run by a random model without tools, which is fast."""
    return ["--out", str(tmp_path / "weak"), "--model", str(random_checkpoint), "--tools", "off"]


def test_a_file_is_a_run_and_its_columns_are_printed_and_recorded(mine: Path, weak: list[str], tmp_path: Path) -> None:
    done = run_command(["bench", "run", "--data", str(mine), *weak])
    assert done.status == 0, done.stderr
    assert "  label      rater_1, rater_2 (majority of the raters): 'a' = A, 'b' = B, 'tie' = tie" in done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["mine.csv"]
    assert "3 comparisons of 5 examples: " in done.stdout
    assert " 0 missing; 2 labeled as a tie, not scored" in " ".join(done.stdout.split())
    assert (lines[2][0], lines[2][-1]) == ("accuracy", "3")
    columns = read_manifest(tmp_path / "weak").data.columns
    assert columns is not None
    assert (columns.prompt, columns.responses, columns.subset) == (("question",), ("response_a", "response_b"), None)


def test_a_run_is_resumed_and_not_continued_with_other_columns(mine: Path, weak: list[str], tmp_path: Path) -> None:
    run = ["bench", "run", "--data", str(mine), *weak]
    named = [*run, "--subset-column", "topic"]
    assert run_command([*named, "--limit", "5"]).status == 0
    journal = (tmp_path / "weak" / "journal.jsonl").read_bytes()
    assert run_command([*named, "--limit", "5"]).status == 0
    assert (tmp_path / "weak" / "journal.jsonl").read_bytes() == journal
    refused = run_command([*named, "--limit", "5", "--label-column", "rater_1"])
    assert refused.status == 2
    assert "data.columns.labels was" in refused.stderr


def test_a_file_that_has_changed_since_the_run_began_is_refused_by_name(
    mine: Path, weak: list[str], tmp_path: Path
) -> None:
    run = ["bench", "run", "--data", str(mine), *weak]
    assert run_command(run).status == 0
    with mine.open("a", encoding="utf-8", newline="") as file:
        file.write("Say yes.,yes,no,A,A,plain\r\n")
    refused = run_command(run)
    assert refused.status == 2
    assert f"the rows of {mine} have changed (5 examples then, 6 now); give another --out" in refused.stderr
    other = tmp_path / "folder" / mine.name
    other.parent.mkdir()
    mine.rename(other)
    refused = run_command(["bench", "run", "--data", str(other), *weak])
    assert f"the rows of {other} are not those of {mine}, with which this run began (5 examples" in refused.stderr
    refused = run_command(["bench", "run", "--data", str(other), *weak, "--limit", "2"])
    assert "holds a run of another configuration (data.limit was null and is now 2); give another" in refused.stderr


def test_rows_whose_raters_disagree_are_not_judged_and_count_in_the_agreement(
    mine: Path, weak: list[str], tmp_path: Path
) -> None:
    assert run_command(["bench", "run", "--data", str(mine), *weak]).status == 0
    run = load_run(tmp_path / "weak")
    assert [len(one.asked) for one in run.planned] == [1, 1, 0, 0, 1]
    assert (len(run.judged), run.num_missing) == (5, 0)
    (pair,) = rater_pairs_of(run.manifest.data.columns, run.outlines)
    assert (pair.first, pair.second, pair.are_ratings) == ("rater_1", "rater_2", False)
    # The raters agree on A, B and B of 5. Shares: A 2/5 and 1/5, B 3/5 and 3/5, tie 0 and 1/5.
    assert pair.agreement.same.value == 3 / 5
    chance = 2 / 5 * 1 / 5 + 3 / 5 * 3 / 5
    assert pair.agreement.kappa == pytest.approx((3 / 5 - chance) / (1 - chance))
    table = run_command(["bench", "report", str(tmp_path / "weak")]).stdout
    assert "raters agree: rater_1 and rater_2" in table
    assert "Columns: prompt: question; responses: A = response_a, B = response_b" in table


def test_a_file_of_ties_fails_because_no_judgment_was_made(mine: Path, weak: list[str]) -> None:
    done = run_command(["bench", "run", "--data", str(mine), *weak, *["--label-value=a=tie", "--label-value=b=tie"]])
    assert (done.status, done.stderr.splitlines()[-1]) == (1, "mine.csv: no judgment was made")


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (["--min-accuracy", "0"], 0, ""),
        (["--min-accuracy", "1.0"], 1, "mine.csv: accuracy is "),
        (["--subset-column", "nothing"], 2, "--subset-column: no column 'nothing'; the columns are 'question'"),
        (["--mode", "rules"], 2, "--mode: 'rules' is not a mode of mine.csv; choose pairwise, pointwise, listwise"),
        (["--label-value", "A"], 2, "--label-value: expected VALUE=A"),
    ],
)
def test_exit_statuses(mine: Path, weak: list[str], options: list[str], status: int, says: str) -> None:
    # The random model prefers one label, whichever response has it: of two opposite rows, it gets one right.
    done = run_command(["bench", "run", "--data", str(mine), *weak, *options])
    assert done.status == status, done.stderr
    assert says in done.stderr.splitlines()[-1]


def test_too_many_invalid_rows_stop_the_run_before_it_judges(mine: Path, weak: list[str], tmp_path: Path) -> None:
    mine.write_text(ROWS + "Write a word.,,b,A,A,count\n")
    run = ["bench", "run", "--data", str(mine), *weak]
    refused = run_command(run)
    assert refused.status == 2
    *_, row, reason = refused.stderr.splitlines()
    assert row == f"{mine}: row 6: response_a: the cell is empty"
    assert reason.startswith("tirjudge bench: 1 of 6 rows are invalid, more than --max-error-rate 0.1")
    assert not (tmp_path / "weak").exists()
    assert run_command([*run, "--max-error-rate", "0.2"]).status == 0
    assert read_manifest(tmp_path / "weak").data.num_bad_rows == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a benchmark from `tirjudge bench list`, or give your own rows with --data"),
        (["llmbar", "--label-column", "x"], "llmbar has its own columns; to use other columns, remove the name"),
    ],
)
def test_a_run_needs_a_benchmark_or_a_file(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = run_command(["bench", "run", *arguments, "--out", str(tmp_path / "run")])
    assert done.status == 2
    assert says in done.stderr


def test_inspect_shows_the_columns_and_rows_without_judging(mine: Path) -> None:
    shown = run_command(["bench", "inspect", str(mine), "--num", "2", "--subset-column", "topic"])
    assert shown.status == 0
    assert "  prompt     question" in shown.stdout.splitlines()
    assert "  B (right)  the sky is blue." in shown.stdout.splitlines()
    assert "row 3" not in shown.stdout
    found = json.loads(run_command(["bench", "inspect", str(mine), "--json"]).stdout)
    assert found["columns"]["labels"] == ["rater_1", "rater_2"]
    assert [one["right"] for one in found["examples"]] == [["A"], ["B"], "tie"]
    mine.write_text("prompt,x,y\np,a,b\n")
    refused = run_command(["bench", "inspect", str(mine)])
    assert (refused.status, refused.stderr.count("\n")) == (2, 1)


def test_inspect_shows_the_valid_rows_if_too_many_are_invalid(mine: Path) -> None:
    mine.write_text(ROWS + "Write a word.,,b,A,A,count\n")
    shown = run_command(["bench", "inspect", str(mine)])
    assert shown.status == 2
    assert "  B (right)  the sky is blue." in shown.stdout.splitlines()
    assert f"{mine}: row 6: response_a: the cell is empty" in shown.stdout.splitlines()
    assert "1 of 6 rows are invalid, more than --max-error-rate 0.1" in shown.stderr
    as_json = run_command(["bench", "inspect", str(mine), "--json"])
    assert (as_json.status, json.loads(as_json.stdout)["num_bad_rows"]) == (2, 1)


@pytest.mark.slow
def test_ratings_have_rank_agreement(rated: Path, weak: list[str], tmp_path: Path) -> None:
    done = run_command(["bench", "run", "--data", str(rated), *weak, "--json"])
    assert done.status == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert [figure["name"] for figure in result["figures"]][:2] == [
        "pairs ranked right",
        "pairs of one prompt ranked right",
    ]
    assert (result["counts"]["examples"], result["manifest"]["data"]["num_unlabeled"]) == (4, 1)
    assert "rows without a label" in run_command(["bench", "report", str(tmp_path / "weak")]).stdout
    attacked = run_command(["bench", "attack", "--data", str(rated), *weak])
    assert attacked.status == 2
    assert "attacks change wrong responses, but no example has a right and a wrong one" in attacked.stderr


def test_models_that_the_rows_name_are_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge prefers `six` to `two`, `two` to `one`, and abstains on `none`. It judges both orders, also of ties."""
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")
    battles = [
        ("two", "one", "A"),
        ("one", "six", "tie"),
        ("six", "two", "B"),
        ("two", "none", "A"),
        ("six", "six", "A"),
    ]
    path = tmp_path / "battles.csv"
    lines = [
        f"prompt {n},{first} {n},{second} {n}.,{first},{second},{winner}"
        for n in range(6)
        for first, second, winner in battles
    ]
    path.write_text("\n".join(["prompt,response_a,response_b,model_a,model_b,winner", *lines]))

    def script(conversation: str) -> str:
        first, second = (
            conversation.partition(f"[The Start of Assistant {label}'s Answer]\n")[2].split()[0] for label in "AB"
        )
        if "none" in (first, second):
            return "I cannot say."
        order = ("one", "two", "six")
        return f"[[{'A' if order.index(first) > order.index(second) else 'B'}]]"

    with serving_chat(script) as chat:
        model = ["--chat-url", chat.url, "--chat-model", MODEL, "--format", "mt-bench-pair", "--tools", "off"]
        out = ["--out", str(tmp_path / "run"), "--protocol", "both_orders"]
        done = run_command(["bench", "run", "--data", str(path), *out, *model])
    assert done.status == 0, done.stderr
    assert "  models     A = model_a, B = model_b" in done.stderr
    ranked = json.loads(run_command(["bench", "rank", str(tmp_path / "run"), "--format", "json"]).stdout)
    rows = {row["figure"]: row for row in ranked["rows"]}
    assert list(rows)[:3] == ["six", "two", "one"]
    assert [(rows[name]["wins"], rows[name]["num"]) for name in ("six", "two", "one")] == [(100, 12), (50, 12), (0, 12)]
    # Six always wins against two, and two against one: the verdicts do not show how far they are apart.
    assert not {"separability, %", "agreement with confidence, %"} & rows.keys()
    assert rows["six"]["value"] > rows["one"]["value"]
    # The labels prefer `two`, and `one` and `six` are equal.
    assert rows["two"]["arena"] > rows["one"]["arena"] == rows["six"]["arena"]
    assert rows["Spearman's correlation with people's labels"]["value"] == pytest.approx(0)
    assert rows["pairs of models in the order of people's labels, %"]["value"] == 50
    # The judge is certain of each pair: right on two and one, wrong on six and two, and six equals one for people.
    assert rows["pair rank Brier score"]["value"] == pytest.approx((0 + 1 + 0.25) / 3)
    assert ranked["notes"][2].startswith("No interval for six, two, one: ")
    assert ranked["notes"][:2] == [
        "18 verdicts on 6 prompts; 6 without a verdict.",
        "6 examples left out, because they do not name two different models.",
    ]


@pytest.mark.slow
def test_rows_without_a_verdict_are_counted_and_in_no_figure(
    rated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first judge gives no score to the row rated 2, the second none to the row rated 1. The others get their ratings."""
    monkeypatch.setenv("TIRJUDGE_CHAT_API_KEY", "sk-test")
    scores = {
        "the sea is wide.": "[[5]]",
        "The Sea is Wide.": "[[1]]",
        "Well, yes, no.": "[[2]]",
        "Well yes no.": "[[4]]",
    }

    def judged(silent: str, out: str, *more: str) -> str:
        def script(conversation: str) -> str:
            return next(
                said if text != silent else "I cannot say." for text, said in scores.items() if text in conversation
            )

        with serving_chat(script) as chat:
            model = ["--chat-url", chat.url, "--chat-model", MODEL, "--format", "mt-bench-single", "--tools", "off"]
            done = run_command(["bench", "run", "--data", str(rated), "--out", str(tmp_path / out), *model, *more])
        assert done.status == 0, done.stderr
        return done.stdout

    (result,) = json.loads(judged("Well, yes, no.", "first", "--json"))
    counts = result["counts"]
    assert (counts["examples"], counts["without_verdict"], counts["unjudged"]) == (4, 1, 0)
    # Ratings 5, 1 and 4.5: three pairs, and one pair of a prompt.
    assert [(one["num_marks"], one["value"]) for one in result["figures"]][:2] == [(3, 1.0), (3, 1.0)]
    shown = judged("The Sea is Wide.", "second")
    assert "4 examples without comparisons: 3 with a verdict, 1 without a verdict, 0 not judged" in shown
    assert "coverage" not in shown
    table = json.loads(run_command(["bench", "report", str(tmp_path / "first"), "--format", "json"]).stdout)
    rows = {row["figure"]: row for row in table["rows"]}
    assert (rows["pairs ranked right"]["n"], rows["judged without a verdict"]["value"]) == (3, 1)
    both = [str(tmp_path / "first"), str(tmp_path / "second"), "--format", "json"]
    compared = json.loads(run_command(["bench", "compare", *both]).stdout)["rows"]
    assert [row["n"] for row in compared] == [2, 2, 2, 2]  # both judges score the rows rated 5 and 4.5


def test_an_edited_copy_is_compared_on_the_rows_that_are_equal(
    random_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{n},Write {n} words.,red fox,the red fox,{'AB'[n % 2]}" for n in range(4)]
    edited = [rows[0].replace("red fox", "Red Fox"), rows[1].replace(",B", ",A"), *rows[2:]]
    for folder, lines in (("first", rows), ("second", edited)):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        Path("mine.csv").write_text("\n".join(["id,prompt,response_a,response_b,winner", *lines]))
        judge = ["--model", str(random_checkpoint), "--tools", "off"]
        assert run_command(["bench", "run", "--data", "mine.csv", "--out", "run", *judge]).status == 0
    runs = [str(tmp_path / folder / "run") for folder in ("first", "second")]
    table = json.loads(run_command(["bench", "compare", *runs, "--format", "json"]).stdout)
    assert [row["n"] for row in table["rows"]] == [2]
    says = f"Left out of {runs[0]} and {runs[1]}: 1 row with different texts and 1 row with different labels."
    assert says in table["notes"]


@pytest.mark.slow
def test_the_bundled_judge_on_a_file_with_every_report(mine: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "run", tmp_path / "again"
    run = ["bench", "run", "--data", str(mine), "--subset-column", "topic"]
    done = run_command([*run, "--out", str(out), "--min-accuracy", "1.0", "--json"])
    assert done.status == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert {figure["name"]: figure["value"] for figure in result["figures"]} == {
        "accuracy": 1.0, "case": 1.0, "commas": None, "count": 1.0,
    }  # fmt: skip
    assert run_command([*run, "--out", str(again), "--seed", "1", "--protocol", "both_orders"]).status == 0
    for protocol in ("paper", "official", "both_orders"):
        table = json.loads(
            run_command(["bench", "report", str(again), "--protocol", protocol, "--format", "json"]).stdout
        )
        assert next(row["value"] for row in table["rows"] if row["figure"] == "accuracy") == 100.0
    compared = run_command(["bench", "compare", str(out), str(again), "--protocol", "paper"])
    assert compared.status == 0, compared.stderr
    assert "accuracy  mine.csv" in compared.stdout
    plots = run_command(["bench", "plot", str(out), "--out", str(tmp_path / "plots")])
    assert plots.status == 0, plots.stderr
    assert (tmp_path / "plots" / "accuracy-tokens.svg").is_file()
    exported = run_command(["bench", "export", str(out), "--out", str(tmp_path / "mine.eval")])
    assert "5 samples, 5 of them with prompts and responses" in exported.stdout
    attacked = run_command(
        ["bench", "attack", "--data", str(mine), "--attack", "colon", "--out", str(tmp_path / "attack"), "--json"]
    )
    assert attacked.status == 0, attacked.stderr
    assert run_command(["bench", "report", str(tmp_path / "attack")]).status == 0


@pytest.mark.slow
def test_the_bundled_judge_on_ratings_with_every_report(rated: Path, tmp_path: Path) -> None:
    inspect_log = pytest.importorskip("inspect_ai.log")
    out = tmp_path / "run"
    assert run_command(["bench", "run", "--data", str(rated), "--out", str(out)]).status == 0
    # The judge scores 10, 1, 1 and 10; the ratings are 5, 1, 2 and 4.5. Pairs with equal scores: 10-10 and 1-1.
    run = score_run(out)
    values = {figure.name: figure.value for figure in run.figures}
    assert values["pairs ranked right"] == pytest.approx(5 / 6)
    assert values["pairs of one prompt ranked right"] == 1.0
    assert run_command(["bench", "compare", str(out), str(out)]).status == 0
    assert run_command(["bench", "plot", str(out), "--out", str(tmp_path / "plots")]).status == 0
    assert run_command(["bench", "export", str(out), "--out", str(tmp_path / "run.eval")]).status == 0
    log = inspect_log.read_eval_log(str(tmp_path / "run.eval"))
    assert log.status == "success"
    scores = {sample.metadata["rating"]: sample.scores["credit"].value for sample in log.samples}
    assert scores == {5.0: 10.0, 1.0: 1.0, 2.0: 1.0, 4.5: 10.0}


@pytest.mark.slow
def test_shards_of_a_file_are_merged(mine: Path, random_checkpoint: Path, tmp_path: Path) -> None:
    run = ["bench", "run", "--data", str(mine), "--model", str(random_checkpoint), "--tools", "off"]
    for number in (1, 2):
        shard = [*run, "--shard", f"{number}/2", "--out", str(tmp_path / f"part{number}")]
        assert run_command(shard).status in (0, 1)
    done = run_command(["bench", "merge", *(str(tmp_path / name) for name in ("merged", "part1", "part2"))])
    assert done.status == 0, done.stderr
    assert run_command(["bench", "report", str(tmp_path / "merged")]).status == 0
