"""lm-evaluation-harness: a server's judge as a metric of a task.

    # my_judge.py, beside the task's YAML
    from tirjudge.integrations.lm_eval import JudgeMetric

    judge = JudgeMetric("http://judge:8400", prompt="question", reference="answer")
    process_results, score, stderr, abstained = judge.process_results, judge.score, judge.stderr, judge.abstained

    # my_task.yaml
    process_results: !function my_judge.process_results
    metric_list:
      - {metric: judge_score, aggregation: !function my_judge.score, higher_is_better: true}
      - {metric: judge_stderr, aggregation: !function my_judge.stderr, higher_is_better: false}
      - {metric: judge_abstained, aggregation: !function my_judge.abstained, higher_is_better: false}

lm-eval goes through its answers one by one, and only then adds them up. So an answer is put by, and all of them are judged
side by side when the first of the metrics is wanted. An answer without a verdict is left out of the mean; `judge_abstained`
is the share of those. What each got stands in the log of samples, with the ids of its judgments.
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
    """One answer of the model, and what it got once it is judged."""

    prompt: Required[Prompt]
    response: Required[str]
    reference: Required[str | None]
    score: float | None
    """From 0 to 1; None: there is no verdict."""
    reason: str | None
    """Why there is none."""
    judgments: list[str]


class JudgeMetric:
    """Functions that a task names: one that takes an answer, and three that add them up.

    Args:
        url: of the server.
        prompt: the column of the data set that holds what was asked, or a function from the row to that.
        reference: the column that holds answers known to be good; None: there is none.
        scorer: other fields of `Scorer`, such as `api_key_file`, `tools`, `votes`, `rubric`, `deadline_s` or `concurrency`.
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
        """The answer to a row, put by under the name of each metric.

        Raises:
            KeyError: the row has no such column.
        """
        prompt = doc[self._prompt] if isinstance(self._prompt, str) else self._prompt(doc)
        reference = None if self._reference is None else doc[self._reference]
        answer = LmEvalAnswer(prompt=prompt, response=results[0], reference=reference)
        return dict.fromkeys(("judge_score", "judge_stderr", "judge_abstained"), answer)

    def score(self, answers: Sequence[LmEvalAnswer]) -> float:
        """The mean score, 0 to 1, of the answers with a verdict; not a number if there is none.

        Raises:
            RequestRefused: the set-up is at fault.
        """
        scores = self._scores(answers)
        return statistics.fmean(scores) if scores else math.nan

    def stderr(self, answers: Sequence[LmEvalAnswer]) -> float:
        """The standard error of that mean; not a number for fewer than two scores. Raises as `score` does."""
        scores = self._scores(answers)
        return statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan

    def abstained(self, answers: Sequence[LmEvalAnswer]) -> float:
        """The share of answers without a verdict. Raises as `score` does."""
        return 1 - len(self._scores(answers)) / len(answers)

    def _scores(self, answers: Sequence[LmEvalAnswer]) -> list[float]:
        """The scores that there are; what was not judged yet is judged first."""
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
    """The result of some work, wherever this is called from: a notebook has an event loop already."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
