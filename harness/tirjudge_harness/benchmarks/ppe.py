"""PPE Correctness: 32 responses of one model per prompt, checked for correctness, and five pairs of a right and a wrong one.

The authors sampled the pairs. A pair that was sampled twice counts twice. `ppe` judges the pairs. `ppe-best-of-k` scores all
32 responses, and also computes the metrics over complete sets of responses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

from tirjudge.right import scores_of
from tirjudge.types import Mode
from tirjudge_harness.benchmark import Benchmark, HubSource, Row
from tirjudge_harness.benchmarks.ppe_curves import (
    Correct,
    Scores,
    area_under_roc,
    best_of_k,
    ideal_best_of_k,
    loss,
)
from tirjudge_harness.columns import conversation, items, name, text, truths, wholes
from tirjudge_harness.decisions import JudgedExample
from tirjudge_harness.examples import Example, ExampleMetadata, example
from tirjudge_harness.metric_tree import FormulaMetric, FormulaOfMeans, Mean, cells_by

SETS = {
    part: HubSource(
        id=f"lmarena-ai/PPE-{name}-Best-of-K",
        split="train",
        revision=revision,
        license="prompts: CC-BY-4.0; answers: terms of the models",
        num_rows=507 if part == "mbpp_plus" else 512,
    )
    for part, name, revision in (
        ("mmlu_pro", "MMLU-Pro", "d3a309b95d5a3a34efdd2b01a9e3ee10565bf0c7"),
        ("math", "MATH", "c46ce3cda5417fe8d170e992d925f93856b5db40"),
        ("gpqa", "GPQA", "2f85cea6481db81daa2c8033c51b7811b7bbf648"),
        ("mbpp_plus", "MBPP-Plus", "afa814632c1df94e76b6af2c1d282511114cd2b7"),
        ("ifeval", "IFEval", "a4f7fae2443d96529dee6b65863a816a051b3a4d"),
    )
}
POINTS = (1, 2, 4, 8, 16)
"""Numbers of responses whose points of the curve are metrics. The whole curve counts in `best of any k` and `loss`."""

COLUMNS = ("question_id", "model_name", "prompt", "scores", "sampled_conflict_pairs", "response_1")


def pairs(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to its five sampled pairs."""
    whole_row = _all_responses(row, part)
    outline = whole_row.outline
    for number, (first, second) in enumerate(outline.facts["pairs"]):
        yield example(
            id=f"{outline.id}+{number}",
            prompt=whole_row.prompt,
            responses=(whole_row.responses[first], whole_row.responses[second]),
            correct=(0,) if first in outline.correct else (1,),
            subset=part,
            cluster=outline.id,
            tags=outline.tags,
        )


def all_responses(row: Row, part: str) -> Iterator[Example]:
    """Convert a row to one example with all responses."""
    yield _all_responses(row, part)


def sampled_pairs(outline: ExampleMetadata, mode: Mode) -> list[tuple[int, ...]]:
    """Return the pairs that the authors sampled."""
    return [tuple(pair) for pair in outline.facts.get("pairs", ())]


def _all_responses(row: Row, part: str) -> Example:
    is_right = truths(row, "scores")
    column = "sampled_conflict_pairs"
    sampled = [wholes({column: pair}, column, num=2) for pair in items(row, column)]
    for first, second in sampled:
        if not (0 <= first < len(is_right) and 0 <= second < len(is_right)):
            raise ValueError(f"{column}: {[first, second]} are not indexes of the {len(is_right)} responses")
        if is_right[first] == is_right[second]:
            raise ValueError(f"{column}: the responses {[first, second]} are both right or both wrong")
    model = text(row, "model_name")
    return example(
        id=f"{part}/{name(row, 'question_id')}/{model}",
        prompt=conversation(row, "prompt"),
        responses=tuple(text(row, f"response_{number}") for number in range(1, len(is_right) + 1)),
        correct=tuple(index for index, right in enumerate(is_right) if right),
        subset=part,
        tags={"model": model},
        facts={"pairs": sampled},
    )


def _metric(
    title: str,
    each: Callable[[Scores, Correct], Sequence[float] | None],
    value: Callable[[Sequence[float]], float] = itemgetter(0),
) -> Mean:
    """Return a metric with one value per data set, and their mean.

    Args:
        title: name of the metric.
        each: return numbers for one prompt, from the scores and the correctness of its responses.
        value: return the metric from the means of these numbers over prompts.
    """

    def of_example(one: JudgedExample) -> Sequence[float] | None:
        return each(*_scored(one)) if one.decisions else None

    def of_set(part: str) -> FormulaMetric:
        compute = FormulaOfMeans(each=of_example, value=value)
        return FormulaMetric(name=f"{title}: {part}", compute=compute, holds=lambda one: one.outline.subset == part)

    return Mean(name=title, parts=tuple(map(of_set, SETS)))


def _scored(one: JudgedExample) -> tuple[Scores, Correct]:
    """Return the scores and the correctness of the responses to a judged prompt."""
    scores, indexes = scores_of(one.decisions, expected=False), range(one.outline.num_responses)
    right = frozenset(one.outline.correct)
    return tuple(scores.get(index) for index in indexes), tuple(index in right for index in indexes)


def _area(scores: Scores, correct: Correct) -> tuple[float] | None:
    area = area_under_roc(scores, correct)
    return None if area is None else (area,)


def _best_of(k: int) -> Mean:
    """Return the metric of one point of the curve. A prompt with fewer responses does not count."""

    def each(scores: Scores, correct: Correct) -> tuple[float] | None:
        return (best_of_k(scores, correct)[k - 1],) if len(scores) >= k else None

    return _metric(f"best of {k}", each)


ACCURACY = Mean(name="average", parts=cells_by("subset", tuple(SETS)))

BENCHMARK = Benchmark(
    name="ppe",
    title="PPE Correctness",
    citation="arXiv:2410.14872",
    sources=SETS,
    columns=COLUMNS,
    examples=pairs,
    sheet=(ACCURACY,),
)

BEST_OF_K = Benchmark(
    name="ppe-best-of-k",
    title="PPE Correctness, best of k",
    citation="arXiv:2410.14872",
    sources=SETS,
    columns=COLUMNS,
    examples=all_responses,
    modes=(Mode.POINTWISE,),
    compared=sampled_pairs,
    sheet=(
        _metric("area under ROC", _area),
        _metric("best of all", lambda scores, correct: best_of_k(scores, correct)[-1:]),
        _metric("best of any k", best_of_k, max),
        _metric("loss", lambda scores, correct: (loss(best_of_k(scores, correct), ideal_best_of_k(correct)),)),
        *map(_best_of, POINTS),
        ACCURACY,
    ),
)
