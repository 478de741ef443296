"""Inspect logs of runs, read by Inspect itself and bundled by its viewer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.reports.conftest import MakeRun, Pair
from tirjudge.types import Outcome
from tirjudge_harness.benchmark import BENCHMARKS
from tirjudge_harness.items import InputError
from tirjudge_harness.reports.inspect_log import inspect_log, write_inspect_log
from tirjudge_harness.reports.scored import score_run
from tirjudge_harness.reports.texts import texts_of
from tirjudge_harness.run import read_plan, sha256_of
from tirjudge_harness.sources import load_examples

PAIRS = [
    Pair(id="p1", subset="math", named=(0, 0), outcome=Outcome.OK),
    Pair(id="p2", subset="coding", named=(0, 1), outcome=Outcome.TIMEOUT),
    Pair(id="p3", subset="coding", named=(0, 0)),
]
if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

SOURCES = {"math": "livebench-math", "coding": "livecodebench"}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file with the benchmark rows of the pairs."""
    path = tmp_path / "rows.jsonl"
    lines = [
        {
            "pair_id": pair.id,
            "source": SOURCES[pair.subset],
            "question": f"question {pair.id}",
            "response_A": "right <b>",
            "response_B": "wrong",
            "label": "A>B",
        }
        for pair in PAIRS
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def sha256_in(rows: Path) -> str:
    return sha256_of(load_examples(BENCHMARKS.named("judgebench"), data=rows, on_bad=pytest.fail))


def exported(path: Path, *, out: Path, rows: Path | None = None) -> EvalLog:
    from inspect_ai.log import read_eval_log

    run = score_run(path)
    texts = {} if rows is None else texts_of(run, data=rows)
    write_inspect_log(inspect_log(run, planned=read_plan(path), texts=texts), out=out)
    return read_eval_log(str(out))


@pytest.mark.slow
def test_inspect_reads_samples_scores_and_figures(make_run: MakeRun, rows: Path, tmp_path: Path) -> None:
    path = make_run(PAIRS, data={"sha256": sha256_in(rows)})
    log = exported(path, out=tmp_path / "out" / "run.eval", rows=rows)
    assert (log.status, log.eval.task, log.eval.model) == ("success", "judgebench", "tirjudge/tiny")
    assert log.eval.metadata is not None
    assert log.eval.metadata["protocol"] == "both_orders"
    assert log.results is not None
    (score,) = log.results.scores
    assert score.metrics["overall"].value == pytest.approx(2 / 3)
    assert score.metrics["coding"].value == 0.5
    assert (score.metrics["overall"].metadata or {})["n"] == 3
    samples = {sample.id: sample for sample in log.samples or ()}
    assert list(samples) == ["p1", "p2", "p3"]
    sample = samples["p1"]
    assert (sample.input, sample.choices, sample.target) == ("question p1", ["right <b>", "wrong"], ["A"])
    assert {name: one.scores["credit"].value for name, one in samples.items() if one.scores} == {
        "p1": 1.0,
        "p2": 0.0,
        "p3": 1.0,
    }
    assert (sample.scores or {})["credit"].explanation == "A and B: right, credit 1"
    assert log.stats.model_usage["tirjudge/tiny"].output_tokens == 60


def test_turns_are_messages(make_run: MakeRun, tmp_path: Path) -> None:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageTool

    log = exported(make_run(PAIRS), out=tmp_path / "run.eval")
    first, second, third = log.samples or ()
    assert [message.role for message in first.messages] == ["user", "assistant", "tool", "assistant"] * 2
    assert first.messages[4].text == "Judge response B (shown as A) and response A (shown as B), pairwise."
    asked, ran = first.messages[1], first.messages[2]
    assert isinstance(asked, ChatMessageAssistant)
    assert isinstance(ran, ChatMessageTool)
    assert asked.tool_calls is not None
    assert asked.tool_calls[0].arguments == {"code": "print(1)\n"}
    assert (ran.text, ran.tool_call_id, ran.error) == ("1\n", asked.tool_calls[0].id, None)
    failed = second.messages[2]
    assert isinstance(failed, ChatMessageTool)
    assert failed.error is not None
    assert failed.error.type == "timeout"
    assert [message.role for message in third.messages] == ["user", "assistant"] * 2
    assert first.input == "p1 (the log was made without the texts)"


def test_an_example_without_a_judgment_has_an_error_and_no_score(make_run: MakeRun, tmp_path: Path) -> None:
    log = exported(make_run(PAIRS, unjudged=["p2"]), out=tmp_path / "run.eval")
    assert log.status == "error"
    assert log.error is not None
    assert log.error.message.startswith("1 of 3 examples have no score")
    missing = (log.samples or [])[1]
    assert missing.scores is None
    assert missing.error is not None
    assert log.results is not None
    assert (log.results.total_samples, log.results.completed_samples) == (3, 2)


def test_rows_that_differ_from_those_of_the_run_are_refused(make_run: MakeRun, rows: Path) -> None:
    run = score_run(make_run(PAIRS, data={"sha256": sha256_in(rows)}))
    rows.write_text(rows.read_text().replace("question p1", "another question"))
    with pytest.raises(InputError, match=r"rows.jsonl: rows differ from the rows of .*run; .* or --no-texts"):
        texts_of(run, data=rows)


def test_texts_are_read_from_the_data_of_the_run_by_default(make_run: MakeRun, rows: Path) -> None:
    kept = {"path": str(rows), "sha256": sha256_in(rows)}
    assert set(texts_of(score_run(make_run(PAIRS, data=kept)), data=None)) == {"p1", "p2", "p3"}
    gone = {"path": str(rows.with_name("gone.jsonl"))}
    with pytest.raises(InputError, match=r"gone.jsonl: the rows of .* are not here; give --data PATH, or --no-texts"):
        texts_of(score_run(make_run(PAIRS, folder="other", data=gone)), data=None)


def test_a_run_under_an_attack_is_logged_without_texts(make_run: MakeRun, rows: Path) -> None:
    run = score_run(make_run(PAIRS, attack="padding", data={"sha256": sha256_in(rows)}))
    assert texts_of(run, data=rows) == {}


def test_a_file_name_that_inspect_does_not_read_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.eval"):
        exported(make_run(PAIRS), out=tmp_path / "run.json")


@pytest.mark.slow
def test_inspects_viewer_bundles_the_log(make_run: MakeRun, tmp_path: Path) -> None:
    exported(make_run(PAIRS), out=tmp_path / "logs" / "run.eval")
    bundle = tmp_path / "bundle"
    command = [sys.executable, "-m", "inspect_ai", "view", "bundle", "--log-dir", str(tmp_path / "logs")]
    subprocess.run([*command, "--output-dir", str(bundle)], check=True, capture_output=True, timeout=300)
    listing = json.loads((bundle / "logs" / "listing.json").read_text())
    assert listing["run.eval"]["status"] == "success"
    assert (bundle / "index.html").is_file()
