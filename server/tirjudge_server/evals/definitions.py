"""Definitions of evals and runs in OpenAI's format, parsed and validated."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, model_validator

from tirjudge.types import Number, Text
from tirjudge_server.openai.graders import (
    GraderInput,
    LabelModel,
    MultiGrader,
    Named,
    PythonGrader,
    ScoreModel,
    StringCheck,
    TextSimilarity,
)
from tirjudge_server.openai.placeholders import item_path
from tirjudge_server.openai.wire import Foreign, Metadata

MAX_CRITERIA = 32
"""Maximum number of testing criteria of an eval."""

MAX_MESSAGES = 256
"""Maximum number of messages in a template."""

Timestamp = Annotated[int, Field(ge=0, le=2**53)]
"""Unix time in seconds."""


# Testing criteria -------------------------------------------------------------------------------------------------------


class PassedByScore(Named):
    """A grader whose score passes from a threshold on."""

    pass_threshold: Number | None = None
    """Lowest score that passes. None: the middle of the scale."""


class SimilarityCriterion(TextSimilarity, PassedByScore):
    """Measures the similarity of two texts."""


class PythonCriterion(PythonGrader, PassedByScore):
    """Runs a Python program that returns the score."""


class ScoreModelCriterion(ScoreModel, PassedByScore):
    """Lets a model score the sample."""


class MultiCriterion(MultiGrader, PassedByScore):
    """Combines the scores of several graders by a formula."""


Criterion: TypeAlias = (
    StringCheck | SimilarityCriterion | PythonCriterion | ScoreModelCriterion | LabelModel | MultiCriterion
)


def threshold_of(criterion: Criterion) -> float:
    """Return the lowest score with which a criterion is passed."""
    given = criterion.pass_threshold if isinstance(criterion, PassedByScore) else None
    if given is not None:
        return given
    low, high = criterion.range if isinstance(criterion, ScoreModel) else (0.0, 1.0)
    return (low + high) / 2 if isinstance(criterion, PassedByScore) else high


def names_of(criteria: list[Criterion]) -> list[str]:
    """Return a unique name for each criterion: a repeated name gets a number."""
    taken: set[str] = set()
    names: list[str] = []
    for criterion in criteria:
        name, number = criterion.name, 1
        while name in taken:
            number += 1
            name = f"{criterion.name} ({number})"
        taken.add(name)
        names.append(name)
    return names


# Evals ------------------------------------------------------------------------------------------------------------------


class CustomConfig(Foreign):
    """Rows with the caller's own fields."""

    type: Literal["custom"]
    item_schema: dict[str, Any]
    """JSON schema of the field `item` of each row."""
    include_sample_schema: StrictBool = False
    """Whether rows are completed with samples of a model."""


class RecordsConfig(Foreign):
    """Rows from this server's own records."""

    type: Literal["logs", "stored_completions"]
    metadata: dict[Text, Any] | None = None
    """Filter. Records have no metadata, so a run with a filter is refused."""


DataSourceConfig = Annotated[CustomConfig | RecordsConfig, Field(discriminator="type")]


class EvalCreation(Foreign):
    """Body of a request that creates an eval."""

    data_source_config: DataSourceConfig
    testing_criteria: list[Annotated[Criterion, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_CRITERIA
    )
    metadata: Metadata | None = None
    name: Text = Field(default="", max_length=512)


class EvalUpdate(Foreign):
    """Body of a request that changes an eval. A field that is not given stays as it is."""

    metadata: Metadata | None = None
    name: Text | None = Field(default=None, max_length=512)


# Runs -------------------------------------------------------------------------------------------------------------------


class RowContent(Foreign):
    """A row: the variables `item` and `sample` of templates and graders."""

    item: dict[Text, Any]
    sample: dict[Text, Any] | None = None
    """None: the row has no sample."""


class InlineSource(Foreign):
    """Rows in the request."""

    type: Literal["file_content"]
    content: list[RowContent]


class FileSource(Foreign):
    """Rows in an uploaded file, one JSON object per line."""

    type: Literal["file_id"]
    id: Text


class RecordsSource(Foreign):
    """Rows from this server's own records, newest first."""

    type: Literal["stored_completions", "responses"]
    model: Text | None = None
    created_after: Timestamp | None = None
    created_before: Timestamp | None = None
    limit: int | None = Field(default=None, ge=1)
    metadata: dict[Text, Any] | None = None
    instructions_search: Text | None = None
    reasoning_effort: Text | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Text] | None = None
    users: list[Text] | None = None

    @property
    def unsupported(self) -> list[str]:
        """Names of given filters that records do not support."""
        names = ("metadata", "instructions_search", "reasoning_effort", "temperature", "top_p", "tools", "users")
        return [name for name in names if getattr(self, name)]


Source = Annotated[InlineSource | FileSource | RecordsSource, Field(discriminator="type")]


class TemplateMessages(Foreign):
    """Messages with placeholders."""

    type: Literal["template"]
    template: list[GraderInput] = Field(min_length=1, max_length=MAX_MESSAGES)


class ItemReference(Foreign):
    """Messages that a row holds."""

    type: Literal["item_reference"]
    item_reference: Annotated[Text, Field(max_length=1000), AfterValidator(item_path)]
    """Path of the messages, such as `item.input`."""


InputMessages = Annotated[TemplateMessages | ItemReference, Field(discriminator="type")]


class TextFormat(Foreign):
    """Format of the answer, as the Responses API names it."""

    format: dict[str, Any] | None = None


class SampleParams(Foreign):
    """Sampling parameters of a run. The defaults are those of OpenAI's service."""

    temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    seed: int = Field(default=42, ge=0, lt=2**31)
    max_completion_tokens: int = Field(default=2048, ge=1, le=1_000_000)
    reasoning_effort: Text | None = Field(default=None, max_length=32)
    response_format: dict[str, Any] | None = None
    text: TextFormat | None = None
    tools: list[Any] | None = None
    """Refused, with the names of the tools."""

    @property
    def extra(self) -> dict[str, Any]:
        """The fields that are passed on to the endpoint as they are."""
        named = self.text.format if self.text is not None else None
        format = self.response_format or (None if named is None else chat_format(named))
        fields = {"reasoning_effort": self.reasoning_effort, "response_format": format}
        return {name: value for name, value in fields.items() if value is not None}


def chat_format(format: dict[str, Any]) -> dict[str, Any]:
    """Convert a format of the Responses API to `response_format` of chat completions."""
    if format.get("type") != "json_schema":
        return format
    return {"type": "json_schema", "json_schema": {name: format[name] for name in format if name != "type"}}


class JsonlData(Foreign):
    """Rows that are graded as they are."""

    type: Literal["jsonl"]
    source: Annotated[InlineSource | FileSource, Field(discriminator="type")]


class SampledData(Foreign):
    """Rows for which a model writes the sample. Without a model, the samples of the rows are graded."""

    type: Literal["completions", "responses"]
    source: Source
    model: Text | None = None
    input_messages: InputMessages | None = None
    """None: the messages of a record."""
    sampling_params: SampleParams = SampleParams()

    @model_validator(mode="after")
    def _has_messages(self) -> SampledData:
        if self.model is None and self.input_messages is not None:
            raise ValueError("model: not given; expected: the name of the model that answers `input_messages`")
        if self.model is not None and self.input_messages is None and not isinstance(self.source, RecordsSource):
            raise ValueError("input_messages: not given; expected: the messages that `model` answers")
        return self


DataSource = JsonlData | SampledData


class RunCreation(Foreign):
    """Body of a request that starts a run."""

    data_source: Annotated[DataSource, Field(discriminator="type")]
    metadata: Metadata | None = None
    name: Text = Field(default="", max_length=512)
