"""Evals, runs and output items, as a server or an export of OpenAI's API has them. Other fields are kept."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

UNFINISHED = ("queued", "in_progress")
"""States of a run that has not ended."""


class EvalsObject(BaseModel):
    """Base class of the objects."""

    model_config = ConfigDict(frozen=True, extra="allow")


class EvalDefinition(EvalsObject):
    """An eval."""

    id: str
    object: Literal["eval"] = "eval"
    name: str | None = None
    created_at: int = 0
    """Unix time in seconds."""
    data_source_config: dict[str, Any]
    testing_criteria: list[dict[str, Any]]
    metadata: dict[str, str] | None = None

    @property
    def item_schema(self) -> dict[str, Any]:
        """JSON schema of the field `item` of rows."""
        schema = self.data_source_config.get("schema") or {}
        return schema.get("properties", {}).get("item") or {"type": "object"}

    @property
    def has_samples(self) -> bool:
        """Whether rows have a sample."""
        return "sample" in (self.data_source_config.get("schema") or {}).get("properties", {})


class ItemCounts(EvalsObject):
    """Numbers of rows by result."""

    total: int = 0
    passed: int = 0
    failed: int = 0
    errored: int = 0


class CriterionCounts(EvalsObject):
    """Results of one criterion."""

    testing_criteria: str
    passed: int = 0
    failed: int = 0
    errored: int = 0


class ModelCounts(EvalsObject):
    """The use of one model."""

    model_name: str
    invocation_count: int = 0
    total_tokens: int = 0


class EvalRun(EvalsObject):
    """A run of an eval."""

    id: str
    object: Literal["eval.run"] = "eval.run"
    eval_id: str
    name: str | None = None
    status: str
    model: str | None = None
    created_at: int = 0
    """Unix time in seconds."""
    data_source: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, str] | None = None
    report_url: str | None = None
    """URL of the page of the run. None: there is none."""
    num_rows: int | None = None
    """Number of rows. None: unknown."""
    result_counts: ItemCounts = ItemCounts()
    per_testing_criteria_results: list[CriterionCounts] | None = None
    per_model_usage: list[ModelCounts] | None = None
    error: dict[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the run is in a final state."""
        return self.status not in UNFINISHED


class OutputItem(EvalsObject):
    """A graded row."""

    id: str
    object: Literal["eval.run.output_item"] = "eval.run.output_item"
    run_id: str
    eval_id: str
    status: str
    datasource_item_id: int
    datasource_item: dict[str, Any]
    results: list[dict[str, Any]] = Field(default_factory=list)
    sample: dict[str, Any] | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The row with its sample, for another run."""
        output = (self.sample or {}).get("output") or []
        texts = [message.get("content") for message in output if isinstance(message, dict)]
        text = next((text for text in reversed(texts) if isinstance(text, str)), None)
        return {"item": self.datasource_item} | ({} if text is None else {"sample": {"output_text": text}})


class Listed(EvalsObject):
    """A page of objects."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    has_more: bool = False


class StoredUpload(EvalsObject):
    """An uploaded file."""

    id: str
