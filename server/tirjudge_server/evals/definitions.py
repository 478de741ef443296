"""Definitions of evals and runs in OpenAI's format, parsed and validated."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, model_validator

from tirjudge.types import Integer, Number, Text
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

Timestamp = Annotated[Integer, Field(ge=0, le=2**53)]
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
    """Always `custom`."""
    item_schema: dict[str, Any]
    """JSON schema of the field `item` of each row."""
    include_sample_schema: StrictBool = False
    """Whether rows are completed with samples of a model."""


class RecordsConfig(Foreign):
    """Rows from this server's own records."""

    type: Literal["logs", "stored_completions"]
    """Both names select this server's records."""
    metadata: dict[Text, Any] | None = None
    """Filter. Records have no metadata, so a run with a filter is refused."""


DataSourceConfig = Annotated[CustomConfig | RecordsConfig, Field(discriminator="type")]


class EvalCreation(Foreign):
    """Body of a request that creates an eval."""

    data_source_config: DataSourceConfig
    """Shape of the rows."""
    testing_criteria: list[Annotated[Criterion, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_CRITERIA
    )
    """The graders of each row. A row passes if all of them pass."""
    metadata: Metadata | None = None
    """Notes on the eval, which responses repeat: at most 16, with names of up to 64 and texts of up to 512 characters.
    None: none."""
    name: Text = Field(default="", max_length=512)
    """Name of the eval. It need not be unique."""


class EvalUpdate(Foreign):
    """Body of a request that changes an eval. A field that is not given stays as it is."""

    metadata: Metadata | None = None
    """New notes, which take the place of all earlier ones. An explicit null removes them."""
    name: Text | None = Field(default=None, max_length=512)
    """New name. None: the name stays as it is."""


# Runs -------------------------------------------------------------------------------------------------------------------


class RowContent(Foreign):
    """A row: the variables `item` and `sample` of templates and graders."""

    item: dict[Text, Any]
    """The variable `item`. It must match the `item_schema` of the eval, if the eval has one."""
    sample: dict[Text, Any] | None = None
    """The variable `sample`, whose text is in `output_text`. None: the row has no sample."""


class InlineSource(Foreign):
    """Rows in the request."""

    type: Literal["file_content"]
    """Always `file_content`."""
    content: list[RowContent]
    """The rows: 1 to 50,000."""


class FileSource(Foreign):
    """Rows in an uploaded file, one JSON object per line."""

    type: Literal["file_id"]
    """Always `file_id`."""
    id: Text
    """Id of an uploaded file. An output file of a batch is refused."""


class RecordsSource(Foreign):
    """Rows from this server's own records, newest first."""

    type: Literal["stored_completions", "responses"]
    """Both names select this server's records."""
    model: Text | None = None
    """Only judgments of the model with this name. None: of all models."""
    created_after: Timestamp | None = None
    """Only judgments stored at this time or later. None: no bound."""
    created_before: Timestamp | None = None
    """Only judgments stored at this time or earlier. None: no bound."""
    limit: Annotated[Integer, Field(ge=1)] | None = None
    """Maximum number of rows, which is never above 50,000. None: 50,000."""
    metadata: dict[Text, Any] | None = None
    """Refused unless empty: records have no metadata."""
    instructions_search: Text | None = None
    """Refused unless empty: records cannot be searched."""
    reasoning_effort: Text | None = None
    """Refused unless empty: records have no such field."""
    temperature: Number | None = None
    """Refused unless None: records cannot be filtered by it."""
    top_p: Number | None = None
    """Refused unless None: records have no such field."""
    tools: list[Text] | None = None
    """Refused unless empty: records cannot be filtered by it."""
    users: list[Text] | None = None
    """Refused unless empty: a run reads the records of the caller's own key."""

    @property
    def unsupported(self) -> list[str]:
        """Names of given filters that records do not support."""
        names = ("metadata", "instructions_search", "reasoning_effort", "temperature", "top_p", "tools", "users")
        return [name for name in names if getattr(self, name) not in (None, "", {}, [])]


Source = Annotated[InlineSource | FileSource | RecordsSource, Field(discriminator="type")]


class TemplateMessages(Foreign):
    """Messages with placeholders."""

    type: Literal["template"]
    """Always `template`."""
    template: list[GraderInput] = Field(min_length=1, max_length=MAX_MESSAGES)
    """Templates of the messages."""


class ItemReference(Foreign):
    """Messages that a row holds."""

    type: Literal["item_reference"]
    """Always `item_reference`."""
    item_reference: Annotated[Text, Field(max_length=1000), AfterValidator(item_path)]
    """Path of the messages, such as `item.input`."""


InputMessages = Annotated[TemplateMessages | ItemReference, Field(discriminator="type")]


class TextFormat(Foreign):
    """Format of the answer, as the Responses API names it."""

    format: dict[str, Any] | None = None
    """Format of the answer. It is sent to the model as `response_format`. None: no format is sent."""


class SampleParams(Foreign):
    """Sampling parameters of a run. The defaults are those of OpenAI's service."""

    temperature: float = Field(default=1.0, ge=0.0, le=2.0, strict=True)
    """Sampling temperature. It is left out for a model that rejects it."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0, strict=True)
    """Nucleus sampling mass. 1: the whole vocabulary. It is left out for a model that rejects it."""
    seed: Annotated[Integer, Field(ge=0, lt=2**31)] = 42
    """Seed of the sampling. It is left out for a model that rejects it."""
    max_completion_tokens: Annotated[Integer, Field(ge=1, le=1_000_000)] = 2048
    """Maximum number of tokens of a sample. It is lowered for a model that allows less."""
    reasoning_effort: Text | None = Field(default=None, max_length=32)
    """Reasoning effort in the model's terms, which is sent as it is. None: not sent."""
    response_format: dict[str, Any] | None = None
    """Format of the answer, which is sent as it is. None: that in `text`."""
    text: TextFormat | None = None
    """Another place for the format, as in the Responses API. Ignored if `response_format` is given. None: no format."""
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
    """Always `jsonl`."""
    source: Annotated[InlineSource | FileSource, Field(discriminator="type")]
    """The rows."""


class SampledData(Foreign):
    """Rows for which a model writes the sample. Without a model, the samples of the rows are graded."""

    type: Literal["completions", "responses"]
    """Both names have the same effect."""
    source: Source
    """The rows."""
    model: Text | None = None
    """The model that writes the samples: one that the operator added with `--sample-url`. None: the samples of the rows
    are graded."""
    input_messages: InputMessages | None = None
    """The messages that `model` answers. None: the messages of a record."""
    sampling_params: SampleParams = SampleParams()
    """Sampling parameters of the model. Without `model` they have no effect."""

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
    """The rows, and how their samples are made."""
    metadata: Metadata | None = None
    """Notes on the run, which responses repeat: at most 16, with names of up to 64 and texts of up to 512 characters.
    None: none."""
    name: Text = Field(default="", max_length=512)
    """Name of the run. It need not be unique."""
