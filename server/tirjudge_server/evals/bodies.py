"""Response bodies of the evals API, for the OpenAPI document. The endpoints write these bodies as dictionaries."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from tirjudge_server.evals.store import RunStatus
from tirjudge_server.evals.tally import RowStatus
from tirjudge_server.openai.bodies import ObjectPage


class EvalObject(BaseModel):
    """An eval."""

    id: str
    """Id of the eval."""
    object: Literal["eval"]
    """Always `eval`."""
    created_at: int
    """Unix time in seconds."""
    name: str
    """Name of the eval."""
    data_source_config: dict[str, Any]
    """Kind of the rows, with their JSON Schema in `schema`."""
    testing_criteria: list[dict[str, Any]]
    """The graders, as they were given."""
    metadata: dict[str, str]
    """The caller's notes."""


class EvalPage(ObjectPage):
    """A page of the caller's evals."""

    data: list[EvalObject]
    """The evals."""


class DeletedEval(BaseModel):
    """An eval was deleted."""

    object: Literal["eval.deleted"]
    """Always `eval.deleted`."""
    deleted: Literal[True]
    """Always true."""
    eval_id: str
    """Id of the eval."""


class RunResultCounts(BaseModel):
    """Numbers of graded rows."""

    total: int
    """All graded rows."""
    passed: int
    """Rows that passed all criteria."""
    failed: int
    """Rows that failed a criterion."""
    errored: int
    """Rows with an error."""


class CriterionResult(BaseModel):
    """Numbers of results of a criterion."""

    testing_criteria: str
    """Name of the criterion."""
    passed: int
    """Rows that passed it."""
    failed: int
    """Rows that failed it."""
    errored: int
    """Rows without a score: the grader, the model or the row has an error."""


class RunModelUsage(BaseModel):
    """Use of a model in a run. Counts that its endpoint does not report are 0."""

    model_name: str
    """Name of the model."""
    invocation_count: int
    """Number of answers of the model."""
    prompt_tokens: int
    """Number of tokens that it read."""
    completion_tokens: int
    """Number of tokens that it wrote."""
    total_tokens: int
    """Sum of both."""
    cached_tokens: int
    """Number of read tokens that came from a cache."""


class RunError(BaseModel):
    """The error that ended a run."""

    code: str
    """Name of the error."""
    message: str
    """What is wrong."""


class EvalRunObject(BaseModel):
    """A run of an eval."""

    id: str
    """Id of the run."""
    object: Literal["eval.run"]
    """Always `eval.run`."""
    created_at: int
    """Unix time in seconds."""
    eval_id: str
    """Id of the eval."""
    name: str
    """Name of the run. Empty: none."""
    status: RunStatus
    """State of the run."""
    model: str
    """Model that writes the samples. Empty: the rows have their samples."""
    data_source: dict[str, Any]
    """Where the rows come from, as it was given."""
    report_url: str
    """URL of the page of the run."""
    num_rows: int | None
    """An extension of OpenAI's format: number of rows. None: not known yet."""
    result_counts: RunResultCounts
    """Numbers of graded rows."""
    per_testing_criteria_results: list[CriterionResult]
    """Results of each criterion."""
    per_model_usage: list[RunModelUsage]
    """Use of each model."""
    error: RunError | None
    """The error that ended the run. None: no error."""
    metadata: dict[str, str]
    """The caller's notes."""


class EvalRunPage(ObjectPage):
    """A page of the runs of an eval."""

    data: list[EvalRunObject]
    """The runs."""


class DeletedEvalRun(BaseModel):
    """A run was deleted."""

    object: Literal["eval.run.deleted"]
    """Always `eval.run.deleted`."""
    deleted: Literal[True]
    """Always true."""
    run_id: str
    """Id of the run."""


class EvalOutputItem(BaseModel):
    """A graded row of a run."""

    id: str
    """Id of the output item."""
    object: Literal["eval.run.output_item"]
    """Always `eval.run.output_item`."""
    created_at: int
    """Unix time in seconds at which the row was graded."""
    run_id: str
    """Id of the run."""
    eval_id: str
    """Id of the eval."""
    status: RowStatus
    """Result of the row."""
    datasource_item_id: int
    """Position of the row, from 0."""
    datasource_item: dict[str, Any]
    """The row."""
    results: list[dict[str, Any]]
    """One result for each criterion, with `name`, `type`, `score` and `passed`."""
    sample: dict[str, Any]
    """The sample that was graded, with the model and its token counts."""


class EvalOutputItemPage(ObjectPage):
    """A page of the graded rows of a run."""

    data: list[EvalOutputItem]
    """The output items."""
