"""`tirjudge bench estimate`, `rank` and `power`: from files to tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.harness.reports.conftest import MakeRun, Pair
from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_verdict
from tirjudge_harness.examples import ExampleMetadata, model_facts
from tirjudge_harness.items import InputError
from tirjudge_harness.output import OutputRecord
from tirjudge_harness.reports.statistics_cli import estimate, power, rank

app = typer.Typer(pretty_exceptions_enable=False)
for command in (estimate, rank, power):
    app.command()(command)


def rows(*arguments: str | Path | float) -> dict[str, dict[str, Any]]:
    """Run a command, and return the rows of its table by their first entry."""
    done = CliRunner().invoke(
        app, [*(str(argument) for argument in arguments), "--format", "json"], catch_exceptions=False
    )
    found = json.loads(done.stdout)["rows"]
    return {next(iter(row.values())): row for row in found}


def shown(*arguments: str | Path | float) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return " ".join(done.stdout.split())


def write_csv(path: Path, header: str, lines: Sequence[str]) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def run(make_run: MakeRun) -> Path:
    """100 pairs of two models. The judge prefers the first response of the first 70; it flips on ten of these."""
    named = [(0, 1) if n < 10 else (0, 0) if n < 70 else (1, 1) for n in range(100)]
    return make_run([Pair(id=f"p{n}", named=each, models=("m", "other")) for n, each in enumerate(named)])


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Labels of every second pair, equal to the judge's choice, but for pairs 70 to 78: people prefer the first response."""
    chosen = ["A=B" if n < 10 else "A>B" if n < 79 else "B>A" for n in range(0, 100, 2)]
    return write_csv(tmp_path / "people.csv", "id,label", [f"p{2 * n},{label}" for n, label in enumerate(chosen)])


def output_record(id: str | int, *, best: int | None = 0, cluster: str = "", with_outline: bool = True) -> OutputRecord:
    """The record of a pair of the models m and other, without a label. `best`: the judge's choice. None: the item failed."""
    outline = ExampleMetadata(
        id=str(id), subset="", num_responses=2, correct=(), cluster=cluster or str(id), facts=model_facts("m", "other")
    )
    judgment = None
    if best is not None:
        verdict = build_rollout_verdict("AB"[best], best=best)
        judgment = build_judgment(build_verdict(best=best), rollouts=[build_rollout(verdict=verdict)])
    return OutputRecord(
        id=id,
        error="EngineUnavailable: gone" if best is None else None,
        judgment=judgment,
        item_sha256="0" * 16,
        configuration={"tools": "auto"},
        outline=outline if with_outline else None,
    )


def write_output(path: Path, records: Sequence[OutputRecord]) -> Path:
    path.write_text("".join(record.model_dump_json() + "\n" for record in records), encoding="utf-8")
    return path


def test_judgments_of_rows_without_labels_are_a_source(tmp_path: Path) -> None:
    """40 rows, of which 25 have a label of people, which is the judge's choice. The judge prefers m in every fourth row."""
    output = write_output(tmp_path / "out.jsonl", [output_record(n, best=int(n % 4 > 0)) for n in range(40)])
    sheet = [f"{n},{'model_b' if n % 4 else 'model_a'}" if n < 25 else f"{n}," for n in range(40)]
    given = write_csv(tmp_path / "people.csv", "id,label", sheet)
    found = rows("estimate", output, "--labels", given)
    assert list(found) == ["first response is better, %", "m wins, %", "other wins, %"]
    m = found["m wins, %"]
    assert (m["labeled"], m["all"], m["judge"]) == (25, 40, pytest.approx(25))
    assert m["tuning"] > 0
    assert m["effective"] > 25
    ranked = rows("rank", output)
    assert (ranked["m"]["wins"], ranked["other"]["wins"]) == (pytest.approx(25), pytest.approx(75))


def test_failed_items_and_rows_of_one_prompt_count_as_in_a_run(tmp_path: Path) -> None:
    """Four rows have the prompt of row 0, and the last item failed. A retried item has two lines."""
    records = [output_record(n, best=n % 2, cluster="0" if n < 4 else "") for n in range(40)]
    output = write_output(tmp_path / "out.jsonl", [output_record(5, best=None), *records, output_record(40, best=None)])
    given = write_csv(tmp_path / "people.csv", "id,label", [f"{n},{n % 2}" for n in range(30)])
    found = rows("estimate", output, "--labels", given)["first response is better, %"]
    assert (found["labeled"], found["all"]) == (30, 41)
    assert "1 example without a verdict" in shown("estimate", output, "--labels", given)
    assert "40 verdicts on 37 prompts; 1 without a verdict" in shown("rank", output)


def test_an_output_of_an_older_version_has_verdicts_and_no_models(tmp_path: Path) -> None:
    records = [output_record(n, best=None if n == 40 else n % 2, with_outline=False) for n in range(41)]
    output = write_output(tmp_path / "out.jsonl", records)
    given = write_csv(tmp_path / "people.csv", "id,label", [f"{n},{n % 2}" for n in range(30)])
    found = rows("estimate", output, "--labels", given)
    assert [(name, row["labeled"], row["all"]) for name, row in found.items()] == [
        ("first response is better, %", 30, 40)
    ]
    with pytest.raises(InputError, match=r"no example names two models; .* an output of `tirjudge judge` on such rows"):
        shown("rank", output)


def test_a_table_of_verdicts_is_refused_with_the_file_of_its_judgments(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "judged.csv", "row,id,best,confidence,basis,scores", ["1,a,A,0.9,checked,"])
    given = write_csv(tmp_path / "people.csv", "id,label", ["a,A"])
    for command in (["estimate", table, "--labels", given], ["rank", table]):
        with pytest.raises(
            InputError, match=r"a table of verdicts; give the file of its judgments, .*judged\.csv\.jsonl$"
        ):
            shown(*command)


def test_a_run_names_the_rows_without_a_label_that_it_left_out(run: Path, labels: Path, tmp_path: Path) -> None:
    manifest = run / "manifest.json"
    stored = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps(stored | {"data": stored["data"] | {"num_unlabeled": 15}}), encoding="utf-8")
    note = "The run left out 15 rows without a label. To count all rows, judge them with `tirjudge judge FILE --out"
    assert note in shown("estimate", run, "--labels", labels)
    other = write_csv(tmp_path / "other.csv", "id,label", ["p1,A>B", "q1,A>B"])
    with pytest.raises(InputError, match=f"unknown id 'q1'.*{note}"):
        shown("estimate", run, "--labels", other)


def test_labels_and_verdicts_give_an_estimate(run: Path, labels: Path) -> None:
    """People: 5 ties, 35 of 50 for the first. The judge: 10 ties and 60 of 100 for the first, on the labeled half as well."""
    found = rows("estimate", run, "--labels", labels)
    first = found["first response is better, %"]
    assert (first["people"], first["judge"], first["corrected"]) == (pytest.approx(75), 65, pytest.approx(75))
    assert (first["labeled"], first["all"]) == (50, 100)
    assert first["people_high"] - first["people_low"] > first["corrected_high"] - first["corrected_low"]
    assert first["effective"] > 50
    assert found["m wins, %"]["corrected"] == first["corrected"]
    assert found["other wins, %"]["corrected"] == pytest.approx(25)
    text = shown("estimate", run, "--labels", labels)
    assert "Judge and people agree on 90.0%" in text
    assert "WARNING" not in text


def test_labels_of_one_part_are_a_warning(run: Path, tmp_path: Path) -> None:
    some = write_csv(tmp_path / "some.csv", "id,label", [f"p{n},A>B" for n in range(60)])
    assert "WARNING, first response is better, %: labels are not a random sample" in shown(
        "estimate", run, "--labels", some
    )


def test_labels_of_unknown_examples_are_refused(run: Path, tmp_path: Path) -> None:
    other = write_csv(tmp_path / "other.csv", "id,label", ["p1,A>B", "q1,A>B"])
    with pytest.raises(
        InputError, match=r"other.csv: unknown id 'q1' \(1 unknown of 2\); ids of the 100 examples look like 'p0'"
    ):
        shown("estimate", run, "--labels", other)


def test_too_few_labels_are_refused(run: Path, tmp_path: Path) -> None:
    few = write_csv(tmp_path / "few.csv", "id,label", ["p1,A>B", "p2,A>B"])
    with pytest.raises(
        InputError, match=r"few.csv, first response is better, %: labels: 2 prompts have labels; give at least 20"
    ):
        shown("estimate", run, "--labels", few)


def test_a_model_with_too_few_labels_is_left_out_with_a_note(make_run: MakeRun, tmp_path: Path) -> None:
    """Of 60 labeled pairs, 3 are of the model `rare` and 57 of `other`. `unlabeled` has 5 pairs without a label."""
    opponents = ["rare"] * 3 + ["other"] * 57 + ["unlabeled"] * 5
    run = make_run([Pair(id=f"p{n}", models=("m", name)) for n, name in enumerate(opponents)])
    given = write_csv(tmp_path / "people.csv", "id,label", [f"p{n},{'A>B' if n % 4 else 'B>A'}" for n in range(60)])
    assert list(rows("estimate", run, "--labels", given)) == [
        "first response is better, %",
        "m wins, %",
        "other wins, %",
    ]
    text = shown("estimate", run, "--labels", given)
    assert "Left out, fewer than 20 prompts with labels: rare wins, % (3); unlabeled wins, % (0)." in text


def test_pairs_of_one_model_count_in_no_win_rate(make_run: MakeRun, tmp_path: Path) -> None:
    """People prefer the first response of all pairs: m wins against `other`, and 20 pairs of m alone tell nothing."""
    run = make_run([Pair(id=f"p{n}", models=("m", "m" if n < 20 else "other")) for n in range(60)])
    given = write_csv(tmp_path / "people.csv", "id,label", [f"p{n},A>B" for n in range(60)])
    found = rows("estimate", run, "--labels", given)
    assert {name: (one["people"], one["labeled"]) for name, one in found.items()} == {
        "first response is better, %": (100, 60),
        "m wins, %": (100, 40),
        "other wins, %": (0, 40),
    }


def test_a_model_without_a_verdict_has_the_labels_of_people_alone(make_run: MakeRun, tmp_path: Path) -> None:
    """The judge gives no verdict on the 30 pairs of `silent`. People prefer m in 20 of its pairs, and in all of `other`."""
    opponents = ["silent"] * 30 + ["other"] * 60
    pairs = [
        Pair(id=f"p{n}", models=("m", name), named=(None if name == "silent" else n % 2,))
        for n, name in enumerate(opponents)
    ]
    lines = [f"p{n},{'B>A' if 20 <= n < 30 else 'A>B'}" for n in range(60)]
    given = write_csv(tmp_path / "people.csv", "id,label", lines)
    run = make_run(pairs)
    found = rows("estimate", run, "--labels", given)
    assert list(found) == ["first response is better, %", "m wins, %", "other wins, %", "silent wins, %"]
    silent = found["silent wins, %"]
    assert (silent["people"], silent["labeled"], silent["all"]) == (pytest.approx(100 / 3), 30, 30)
    assert silent["people_low"] < 100 / 3 < silent["people_high"]
    assert {silent[key] for key in ("judge", "corrected", "effective", "correlation", "tuning")} == {None}
    assert found["other wins, %"]["corrected"] == 0
    text = shown("estimate", run, "--labels", given)
    assert "silent wins, %: the judge gave no verdict, so the labels of people count alone." in text
    assert "m wins, %: 30 examples without a verdict: counted as the mean verdict." in text


def test_a_judge_without_any_verdict_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run([Pair(id=f"p{n}", models=("m", "other"), named=(None,)) for n in range(40)])
    given = write_csv(tmp_path / "people.csv", "id,label", [f"p{n},A>B" for n in range(40)])
    with pytest.raises(InputError, match=r"people.csv, first response is better, %: the judge gave no verdict"):
        shown("estimate", run, "--labels", given)


def test_a_response_without_a_score_does_not_stop_the_others(tmp_path: Path) -> None:
    decisions = tmp_path / "scores.jsonl"
    lines = [{"id": n, "scores": [None, 1 + n % 4]} for n in range(80)]
    decisions.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    people = [f"{n},{response},{score}" for n in range(40) for response, score in ((0, 3), (1, 2 + n % 4))]
    found = rows("estimate", decisions, "--labels", write_csv(tmp_path / "p.csv", "id,response,score", people))
    assert (found["score of response 0"]["people"], found["score of response 0"]["corrected"]) == (3, None)
    assert found["score of response 1"]["corrected"] == pytest.approx(3.5)
    assert found["score of response 0 less 1"]["people"] == pytest.approx(-0.5)


def test_scores_give_means_and_their_difference(tmp_path: Path) -> None:
    decisions = tmp_path / "scores.jsonl"
    lines = [{"id": n, "scores": [2 + n % 4, 1 if n % 10 else None]} for n in range(80)]
    decisions.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    people = [f"{n},{response},{score}" for n in range(40) for response, score in ((0, 4 + n % 4), (1, 1))]
    given = write_csv(tmp_path / "people.csv", "id,response,score", people)
    found = rows("estimate", decisions, "--labels", given)
    assert found["score of response 0"]["corrected"] == pytest.approx(5.5)  # two more than the judge
    assert found["score of response 0"]["judge"] == 3.5
    assert found["score of response 1"]["corrected"] == 1
    assert found["score of response 0 less 1"]["corrected"] == pytest.approx(4.5)
    text = shown("estimate", decisions, "--labels", given)
    assert "score of response 1: 8 examples without a verdict: counted as the mean verdict." in text
    assert "No interval, because all labels are equal: score of response 1." in text
    assert found["score of response 1"]["corrected_low"] is None
    assert found["score of response 0"]["corrected_low"] < 5.5 < found["score of response 0"]["corrected_high"]


def test_models_of_a_run_are_ranked(run: Path) -> None:
    found = rows("rank", run)
    assert list(found) == ["m", "other", "separability, %"]
    assert found["m"]["wins"] == 65  # 60 wins, and 10 flips with 1/2 each
    assert found["m"]["value"] > 1000 > found["other"]["value"]
    assert found["separability, %"]["value"] == 100


def test_labels_that_do_not_rate_three_models_are_a_note(make_run: MakeRun) -> None:
    """Only the pairs of a and b have a label."""
    pairs = [Pair(id=f"p{n}", models=("a", "b")) for n in range(20)]
    pairs += [Pair(id=f"q{n}", models=("b", "c"), correct=(0, 1)) for n in range(20)]
    run = make_run(pairs)
    assert list(rows("rank", run)) == ["a", "b", "c"]
    text = shown("rank", run)
    assert "No agreement with people's labels: arena: 2 of the 3 rated models have a score in the table" in text


def test_a_ranking_says_which_models_have_no_interval(tmp_path: Path) -> None:
    """large wins both times."""
    verdicts = write_csv(tmp_path / "v.csv", "model_a,model_b,winner", ["large,small,model_a", "small,large,model_b"])
    text = shown("rank", verdicts)
    assert "No interval for large, small: only wins, only losses or only ties" in text
    assert "leave out 1 of 1 pair of models" in text
    assert list(rows("rank", verdicts)) == ["large", "small"]


def test_labels_that_do_not_separate_models_do_not_count_as_certain(make_run: MakeRun) -> None:
    """By the labels of people, a always beats b, and b always beats c. The judge prefers each model in half of the pairs."""
    pairs = [
        Pair(id=f"{first}{n}", models=(first, second), named=(n % 2,), correct=(0,))
        for first, second in ("ab", "bc")
        for n in range(20)
    ]
    found = rows("rank", make_run(pairs))
    assert found["a"]["arena"] > found["b"]["arena"]
    assert "separability, %" in found
    assert "agreement with confidence, %" not in found


def test_a_run_without_models_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(
        InputError,
        match=r"no example names two models; give a run on your own rows with the columns model_a and model_b",
    ):
        shown("rank", make_run([Pair(id="p")]))


def test_a_file_of_verdicts_is_compared_with_an_arena(tmp_path: Path) -> None:
    """a beats b, and b beats c, mostly. Ties and empty winners are read."""
    lines = ["a,b,model_a", "b,c,A>B", "c,a,B>A", "a,b,tie", "b,c,"] * 60 + [
        "a,b,model_b",
        "c,b,model_a",
        "c,a,model_a",
    ]
    verdicts = write_csv(tmp_path / "verdicts.csv", "model_a,model_b,winner", lines)
    arena = write_csv(tmp_path / "arena.csv", "model,score", ["a,1200", "b,1100", "c,1000", "d,900"])
    found = rows("rank", verdicts, "--arena", arena)
    assert list(found)[:3] == ["a", "b", "c"]
    assert found["Spearman's correlation with arena"]["value"] == 1
    assert found["pairs of models in the order of arena, %"]["value"] == 100
    assert found["agreement with confidence, %"]["value"] == pytest.approx(200 / 3)  # the intervals of a and b overlap
    assert found["a"]["arena"] == 1200
    assert "243 verdicts on 243 prompts; 60 without a verdict." in shown("rank", verdicts)


def test_the_command_says_how_many_comparisons_show_a_difference() -> None:
    arguments = ["power", "--difference", "5", "--agreement", "90", "--items", "350", "--format", "json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    needed, smallest = json.loads(done.stdout)["rows"]
    assert (needed["difference"], needed["comparisons"], needed["discordant"]) == (
        pytest.approx(5),
        337,
        pytest.approx(10),
    )
    assert 80 <= needed["power"] < 81
    assert (smallest["comparisons"], 4.5 < smallest["difference"] < 5) == (350, True)


def test_a_difference_that_is_not_possible_is_named() -> None:
    text = shown("power", "--difference", 20, "--agreement", 90)
    assert "not possible" in text
    assert "20 points: difference: judges that differ on 10.0% of comparisons cannot have a difference of 20.0%" in text


def test_two_runs_say_how_often_judges_differ(make_run: MakeRun) -> None:
    """The second is better on 20 of 100 pairs and worse on 10."""
    first = make_run([Pair(id=f"p{n}", named=(int(n < 20),)) for n in range(100)], folder="a")
    second = make_run([Pair(id=f"p{n}", named=(int(20 <= n < 30),)) for n in range(100)], folder="b")
    found = rows("power", first, second, "--difference", 5)
    observed = found["power for the observed difference"]
    assert (observed["difference"], observed["discordant"]) == (pytest.approx(10), pytest.approx(30))
    assert (observed["comparisons"], 30 < observed["power"] < 60) == (100, True)
    one = rows("power", first, "--agreement", 80, "--difference", 5)
    assert one["smallest difference that these comparisons show"]["comparisons"] == 100
    with pytest.raises(InputError, match="give at most two runs, got 3"):
        shown("power", first, second, first)


def test_scores_of_people_need_scores_of_the_judge(run: Path, tmp_path: Path) -> None:
    scores = write_csv(tmp_path / "scores.csv", "id,score", [f"p{n},{n % 7}" for n in range(60)])
    with pytest.raises(InputError, match="labels with a score need a pointwise run"):
        shown("estimate", run, "--labels", scores)


@pytest.mark.parametrize("num_runs", [1, 2])
def test_runs_without_right_responses_have_no_power(make_run: MakeRun, num_runs: int) -> None:
    runs = [make_run([Pair(id=f"p{n}", correct=(0, 1)) for n in range(3)], folder=str(n)) for n in range(num_runs)]
    with pytest.raises(
        InputError, match=r"judgebench has no comparison that is right or wrong among 3 judged examples, .* --accuracy"
    ):
        shown("power", *runs)


def test_a_run_that_has_not_started_has_no_power(make_run: MakeRun) -> None:
    with pytest.raises(InputError, match="nothing was judged; continue the run"):
        shown("power", make_run([Pair(id="p")], unjudged=["p"]))
