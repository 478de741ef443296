"""CodeJudgeBench: pairs of programs, repairs or unit tests for contest problems. One of each pair passes hidden tests. In
CodeJudgeBench-Adversarial, a model rewrote the programs without changing what they compute, to mislead judges.

Each task has one split per model that wrote the answers. The official rule judges each pair in both orders and takes the
mean over the orders; a tie and a missing verdict count as wrong. The paper does not say whether the three tasks are averaged
or pooled; both values are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tirjudge.right import ScoringRule
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.columns import id_of, name, record, shown, text, whole
from tirjudge_harness.examples import Example, example
from tirjudge_harness.metric_tree import Mean, MeanMetric, cells_by
from tirjudge_harness.protocols import Official, OfficialSampling

TASKS = ("codegen", "coderepair", "testgen")
DIFFICULTIES = ("easy", "medium", "hard")

REPAIR = """The program below does not solve the problem. Correct it.

### Problem
{problem}

### Program
{program}

### What goes wrong
{error}"""

TEST = """Write one unit test for the problem below: an input, and the output that a right program gives for it.

### Problem
{problem}"""

KINDS_OF_ERROR = {
    -1: "It does not compile.",
    -2: "It gives a wrong answer.",
    -3: "It takes too long.",
    -4: "It stops with an error.",
}
"""Error code -> text in the prompt."""


def examples(row: Row, part: str) -> Iterator[Example]:
    """Convert a row of a task to one pair."""
    split = text(row, "split") if row.get("split") is not None else ""
    problem = text(row, "question_content")
    question = name(row, "question_id") if row.get("question_id") is not None else id_of(problem)
    yield example(
        id="/".join(filter(None, (part, split, question))),
        prompt=_prompt(row, part),
        responses=(_response(row, part, side="pos"), _response(row, part, side="neg")),
        correct=(0,),
        subset=part,
        cluster=question,
        tags={"difficulty": text(row, "difficulty"), "split": split},
    )


def _prompt(row: Row, task: str) -> str:
    problem = text(row, "question_content")
    if task == "coderepair":
        error = _error(record(row, "wrong_meta"))
        return REPAIR.format(problem=problem, program=_fenced(text(row, "wrong_code"), language="python"), error=error)
    return TEST.format(problem=problem) if task == "testgen" else problem


def _response(row: Row, task: str, *, side: str) -> str:
    response = text(row, f"{side}_response")
    if task != "testgen":
        return response
    return f"### Input\n{_fenced(shown(row, f'{side}_input'))}\n\n### Output\n{_fenced(response)}"


def _error(meta: Row) -> str:
    """Return the available details of a failure, as lines and code blocks."""
    code = whole(meta, "error_code")
    lines = [KINDS_OF_ERROR.get(code, f"Error {code}.")]
    if meta.get("inputs") is None and meta.get("error") is None:
        lines.append(shown(meta, "error_message") if meta.get("error_message") is not None else "")
    for column, title in (("error", "Error"), ("inputs", "Input"), ("output", "Its output"), ("expected", "Expected")):
        if meta.get(column) is not None:
            lines.append(f"{title}:\n{_fenced(shown(meta, column))}")
    return "\n".join(filter(None, lines))


def _fenced(content: str, *, language: str = "") -> str:
    return f"```{language}\n{content}\n```"


ALL_PAIRS = MeanMetric(name="all pairs", holds=lambda mark: True)
OFFICIAL: Mapping[Mode | None, Official] = {
    Mode.PAIRWISE: Official(
        orders="both",
        counting=ScoringRule(orders="mean", tie=0.0),
        sampling=OfficialSampling(temperature=0.6, top_p=0.95, max_tokens=32_768),
    ),
    Mode.POINTWISE: Official(counting=ScoringRule()),
}

BENCHMARK = Benchmark(
    name="codejudgebench",
    title="CodeJudgeBench",
    citation="arXiv:2507.10535",
    # The full commit hash on the hub is unknown, so no revision is pinned.
    sources={
        task: HubSource(id="mattymchen/codejudgebench", config=task, split="*", license="Apache-2.0") for task in TASKS
    },
    columns=("question_id", "question_content", "difficulty", "pos_response", "neg_response"),
    examples=examples,
    sheet=(
        ALL_PAIRS,
        Mean(name="mean of tasks", parts=cells_by("subset", TASKS)),
        *cells_by("difficulty", DIFFICULTIES),
    ),
    official=OFFICIAL,
)

ADVERSARIAL_SPLITS = ("gemini_2.5_pro", "claude_3.7_sonnet", "gemini_2.5_flash")

ADVERSARIAL = Benchmark(
    name="codejudgebench-adversarial",
    title="CodeJudgeBench-Adversarial",
    citation="arXiv:2507.10535",
    # The full commit hash on the hub is unknown, so no revision is pinned.
    sources={"codegen": HubSource(id="mattymchen/codejudgebench-adversarial", config="codegen", split="*")},
    columns=("question_content", "difficulty", "pos_response", "neg_response"),
    examples=examples,
    sheet=(
        ALL_PAIRS,
        Mean(name="mean of splits", parts=cells_by("split", ADVERSARIAL_SPLITS)),
        *cells_by("difficulty", DIFFICULTIES),
    ),
    official=OFFICIAL,
)
