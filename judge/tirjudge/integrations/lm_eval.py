"""Adapter for lm-evaluation-harness: a judge as a metric of a task.

    # my_judge.py, next to the task's YAML
    from tirjudge.integrations.lm_eval import JudgeMetric

    judge = JudgeMetric("http://judge:8400", prompt="question", reference="answer")
    process_results, score, stderr, abstained = judge.process_results, judge.score, judge.stderr, judge.abstained

    # my_task.yaml
    process_results: !function my_judge.process_results
    metric_list:
      - {metric: judge_score, aggregation: !function my_judge.score, higher_is_better: true}
      - {metric: judge_stderr, aggregation: !function my_judge.stderr, higher_is_better: false}
      - {metric: judge_abstained, aggregation: !function my_judge.abstained, higher_is_better: false}

lm-eval processes its answers one by one and aggregates them at the end. The adapter therefore collects the answers, and
judges all of them concurrently when the first metric is aggregated. An answer without a verdict is excluded from the
mean; `judge_abstained` is the share of such answers. The log of samples has the score of each answer and the ids of its
judgments.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Required, TypedDict, TypeVar

from tirjudge.integrations.scoring import Prompt, Scorer, ScoringSample

T = TypeVar("T")


class LmEvalAnswer(TypedDict, total=False):
    """One answer of the model. The optional keys are set when it has been judged."""

    prompt: Required[Prompt]
    response: Required[str]
    reference: Required[str | None]
    score: float | None
    """Score from 0 to 1. None: no verdict."""
    reason: str | None
    """Reason for a missing verdict. None: a verdict was given."""
    judgments: list[str]
    """Ids of the judgments."""


class JudgeMetric:
    """Functions for a task: `process_results` collects answers; `score`, `stderr` and `abstained` aggregate them.

    Args:
        url: URL of the server.
        prompt: column of the dataset with the question, or a function from the row to the question.
        reference: column with known good answers. None: no references.
        scorer: other fields of `Scorer`, such as `api_key_file`, `tools`, `votes`, `rubric`, `deadline_s` or
            `concurrency`.
    """

    def __init__(
        self,
        url: str,
        *,
        prompt: str | Callable[[Mapping[str, Any]], Prompt] = "question",
        reference: str | None = None,
        **scorer: Any,
    ) -> None:
        self._scorer = Scorer(url=url, **scorer)
        self._prompt = prompt
        self._reference = reference

    def process_results(self, doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, LmEvalAnswer]:
        """Return the answer to a row under the name of each metric. The answer is judged later.

        Raises:
            KeyError: the row does not have the column of the prompt or the reference.
        """
        prompt = doc[self._prompt] if isinstance(self._prompt, str) else self._prompt(doc)
        reference = None if self._reference is None else doc[self._reference]
        answer = LmEvalAnswer(prompt=prompt, response=results[0], reference=reference)
        return dict.fromkeys(("judge_score", "judge_stderr", "judge_abstained"), answer)

    def score(self, answers: Sequence[LmEvalAnswer]) -> float:
        """Return the mean score, 0 to 1, of the answers with a verdict; NaN if there are none.

        Raises:
            RequestRefused: the server rejects the configuration, such as the key or the model.
        """
        scores = self._scores(answers)
        return statistics.fmean(scores) if scores else math.nan

    def stderr(self, answers: Sequence[LmEvalAnswer]) -> float:
        """Return the standard error of the mean score; NaN for fewer than two scores. Raises the same errors as
        `score`."""
        scores = self._scores(answers)
        return statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan

    def abstained(self, answers: Sequence[LmEvalAnswer]) -> float:
        """Return the share of answers without a verdict. Raises the same errors as `score`."""
        return 1 - len(self._scores(answers)) / len(answers)

    def _scores(self, answers: Sequence[LmEvalAnswer]) -> list[float]:
        """Judge all answers that have not been judged yet, and return all scores."""
        waiting = [answer for answer in answers if "score" not in answer]
        if waiting:
            candidates = [
                ScoringSample(prompt=answer["prompt"], response=answer["response"], reference=answer["reference"])
                for answer in waiting
            ]
            for answer, scored in zip(waiting, _run(self._scorer.score(candidates)), strict=True):
                answer.update(score=scored.score, reason=scored.reason, judgments=list(scored.judgment_ids))
        return [score for answer in answers if (score := answer.get("score")) is not None]


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new thread, because the caller may be inside a running event loop, such as in a notebook."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
