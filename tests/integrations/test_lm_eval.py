"""Evaluations in lm-eval, from a task's YAML file to its results, with the judge as the metric and as the model."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import MODEL, serving_chat
from tests.integrations.conftest import Serve
from tirjudge.integrations.lm_eval import JudgeMetric

MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]

QUESTION = "Write two sentences about the sea. Do not use any commas."
GOOD = "The sea is wide and never still. At night it sounds like breath."
BAD = "The sea is wide, deep and never still. At night, it sounds like breath."

JUDGE = """
from tirjudge.integrations.lm_eval import JudgeMetric

judge = JudgeMetric({url!r}, prompt="question"{options})
process_results, score, stderr, abstained = judge.process_results, judge.score, judge.stderr, judge.abstained
"""

JUDGED_TASK = """
task: judged
dataset_path: json
dataset_kwargs: {{data_files: {rows}, cache_dir: {cache}}}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: ""
generation_kwargs: {{until: ["###"], max_gen_toks: 64, temperature: 0}}
process_results: !function my_judge.process_results
metric_list:
  - {{metric: judge_score, aggregation: !function my_judge.score, higher_is_better: true}}
  - {{metric: judge_stderr, aggregation: !function my_judge.stderr, higher_is_better: false}}
  - {{metric: judge_abstained, aggregation: !function my_judge.abstained, higher_is_better: false}}
"""

JUDGING_TASK = """
task: judging
dataset_path: json
dataset_kwargs: {{data_files: {rows}, cache_dir: {cache}}}
test_split: train
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{verdict}}}}"
generation_kwargs: {{until: ["###"], max_gen_toks: 64, temperature: 0}}
metric_list:
  - {{metric: exact_match, aggregation: mean, higher_is_better: true}}
"""

PAIR = """[User Question]
{question}

[The Start of Assistant A's Answer]
{a}
[The End of Assistant A's Answer]

[The Start of Assistant B's Answer]
{b}
[The End of Assistant B's Answer]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `tirjudge serve` with the bundled judge."""
    process = subprocess.Popen(
        [*MAIN, "serve", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))},
    )
    try:
        assert process.stdout is not None
        ready = re.match(r"tirjudge is ready at (\S+)", process.stdout.readline())
        assert ready
        yield ready[1]
    finally:
        process.terminate()
        process.communicate()


def evaluated(
    task: str, *, folder: Path, rows: Iterable[Mapping[str, str]], model: str, url: str, name: str
) -> dict[str, Any]:
    """Return the results of lm-eval, with samples."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    from lm_eval.tasks import TaskManager

    evaluate: Any = lm_eval.simple_evaluate

    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(task.format(rows=file, cache=folder / "cache"))
    found = evaluate(
        model=model,
        model_args={
            "base_url": url,
            "model": name,
            "tokenizer_backend": None,
            "num_concurrent": 4,
            "max_retries": 1,
        },
        tasks=[re.search(r"task: (\w+)", task)[1]],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        apply_chat_template="chat" in model,
        bootstrap_iters=10,
    )
    assert found is not None
    return dict(found)


def judged(folder: Path, *, url: str, answers: Iterable[str], **options: Any) -> dict[str, Any]:
    """Return the results of a chat model that gives these answers, judged by the server at the URL."""
    (folder / "my_judge.py").write_text(
        JUDGE.format(url=url, options="".join(f", {name}={value!r}" for name, value in options.items()))
    )
    by_question = {f"{QUESTION} ({number})": answer for number, answer in enumerate(answers)}

    def answer_of(conversation: str) -> str:
        return next(answer for question, answer in by_question.items() if question in conversation)

    rows = [{"question": question} for question in by_question]
    with serving_chat(answer_of) as chat:
        return evaluated(
            JUDGED_TASK,
            folder=folder,
            rows=rows,
            model="local-chat-completions",
            url=f"{chat.url}/chat/completions",
            name=MODEL,
        )


@pytest.mark.slow
def test_a_judge_is_the_metric_of_a_task(served: str, tmp_path: Path) -> None:
    found = judged(tmp_path, url=served, answers=[GOOD, BAD, GOOD, BAD])
    results = found["results"]["judged"]
    answers = [sample["judge_score"] for sample in found["samples"]["judged"]]
    scores = [answer["score"] for answer in answers]
    assert [answer["response"] for answer in answers] == [GOOD, BAD, GOOD, BAD]
    assert scores[0] > scores[1]
    assert all(answer["judgments"][0].startswith("jdg_") for answer in answers)
    mean = sum(scores) / 4
    assert results["judge_score,none"] == pytest.approx(mean)
    variance = sum((score - mean) ** 2 for score in scores) / 3
    assert results["judge_stderr,none"] == pytest.approx(math.sqrt(variance / 4))
    assert results["judge_abstained,none"] == 0.0


@pytest.mark.slow
def test_the_metric_judges_answers_concurrently(serve: Serve) -> None:
    """More than one judgment starts before the first one ends. The second call of the engine is therefore not the label
    read of the first judgment."""
    with serve("<score>9</score>", delay_s=0.5) as judge:
        metric = JudgeMetric(judge.url, tools="off")
        answers = [metric.process_results({"question": str(n)}, ["yes"])["judge_score"] for n in range(16)]
        assert metric.score(answers) == pytest.approx(8 / 9)
        assert (metric.stderr(answers), metric.abstained(answers)) == (pytest.approx(0.0), 0.0)
    assert len(judge.prompts) == 16
    assert judge.engine.calls[1][1].allowed_token_ids is None


@pytest.mark.slow
def test_answers_without_a_verdict_are_counted_and_left_out_of_the_mean(serve: Serve, tmp_path: Path) -> None:
    def output_of(sequence: str) -> str:
        needs_program = "counted" in sequence and "\n42\n```" not in sequence
        return "```python\nprint(6 * 7)\n```\n```output" if needs_program else "<score>9</score>"

    with serve(output_of, sandbox="real") as judge:
        found = judged(tmp_path, url=judge.url, answers=["counted", "plain", "counted", "plain"], tools="on")
    results = found["results"]["judged"]
    assert results["judge_abstained,none"] == 0.5
    assert results["judge_score,none"] == pytest.approx(8 / 9)
    assert results["judge_stderr,none"] == pytest.approx(0.0)
    reasons = [sample["judge_score"]["reason"] for sample in found["samples"]["judged"]]
    assert reasons == [None, "abstained: no_program_ran"] * 2


@pytest.mark.slow
def test_an_unreachable_server_gives_no_scores(nowhere: str, tmp_path: Path) -> None:
    found = judged(tmp_path, url=nowhere, answers=["one", "two"], deadline_s=0.2)
    results = found["results"]["judged"]
    assert results["judge_abstained,none"] == 1.0
    assert math.isnan(results["judge_score,none"])
    assert found["samples"]["judged"][0]["judge_score"]["reason"].startswith("server: ")


PAIRS = [
    {"prompt": PAIR.format(question=QUESTION, a=BAD, b=GOOD), "verdict": "[[B]]"},
    {"prompt": PAIR.format(question=QUESTION, a=GOOD, b=BAD), "verdict": "[[A]]"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "path"),
    [("local-completions", "/v1/completions"), ("local-chat-completions", "/v1/chat/completions")],
)
def test_the_server_can_be_evaluated_as_a_model(served: str, tmp_path: Path, model: str, path: str) -> None:
    found = evaluated(JUDGING_TASK, folder=tmp_path, rows=PAIRS, model=model, url=served + path, name="tirjudge-tiny")
    assert [sample["resps"][0][0] for sample in found["samples"]["judging"]] == ["[[B]]", "[[A]]"]
    assert found["results"]["judging"]["exact_match,none"] == 1.0
