"""Counts of a run: results of rows and of criteria, and the use of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from tirjudge_server.openai.grading import ModelCall

RowStatus = Literal["pass", "fail", "error"]


class ResultTally(BaseModel):
    """Numbers of results."""

    passed: int = 0
    failed: int = 0
    errored: int = 0
    """Results without a score: the grader, the model or the row has an error."""

    def add(self, status: RowStatus) -> None:
        """Count a result."""
        self.passed += status == "pass"
        self.failed += status == "fail"
        self.errored += status == "error"


class UsageTally(BaseModel):
    """The use of one model."""

    invocation_count: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0

    def add(self, *, prompt: int | None, completion: int | None, cached: int | None) -> None:
        """Count one answer of the model. Counts that its endpoint does not report are 0."""
        self.invocation_count += 1
        self.prompt_tokens += prompt or 0
        self.completion_tokens += completion or 0
        self.total_tokens += (prompt or 0) + (completion or 0)
        self.cached_tokens += cached or 0


class Tally(BaseModel):
    """Counts of a run."""

    rows: ResultTally = ResultTally()
    criteria: dict[str, ResultTally] = {}
    """Name of a criterion -> its results."""
    models: dict[str, UsageTally] = {}
    """Name of a model -> its use."""

    def add(
        self,
        status: RowStatus,
        *,
        results: Sequence[Mapping[str, Any]],
        calls: Iterable[ModelCall],
        sampled: tuple[str, Mapping[str, int]] | None,
    ) -> None:
        """Count a row.

        Args:
            status: Result of the row.
            results: Its results, one per criterion.
            calls: Uses of models by its graders.
            sampled: The model that wrote its sample, and the token counts. None: no model did.
        """
        self.rows.add(status)
        for result in results:
            self.criteria.setdefault(result["name"], ResultTally()).add(status_of(result))
        for call in calls:
            used = self.models.setdefault(call.model, UsageTally())
            used.add(prompt=call.input_tokens, completion=call.output_tokens, cached=call.cached_tokens)
        if sampled is not None:
            model, usage = sampled
            self.models.setdefault(model, UsageTally()).add(
                prompt=usage["prompt_tokens"], completion=usage["completion_tokens"], cached=usage["cached_tokens"]
            )


def status_of(result: Mapping[str, Any]) -> RowStatus:
    """Return the status of one result."""
    return "error" if result.get("error") else "pass" if result["passed"] else "fail"


def row_status(results: Sequence[Mapping[str, Any]]) -> RowStatus:
    """Return the status of a row: an error of one criterion is an error of the row, and all must pass."""
    statuses = [status_of(result) for result in results]
    return "error" if "error" in statuses else "fail" if "fail" in statuses else "pass"
