"""Grader definitions in OpenAI's format, parsed and validated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tirjudge.http.protocol import shown
from tirjudge.types import Number, Text
from tirjudge_server.openai.formula import Formula
from tirjudge_server.openai.placeholders import check_placeholders
from tirjudge_server.openai.similarity import METRICS, REFUSED
from tirjudge_server.openai.wire import Content, Foreign

MAX_PARTS = 32
"""Maximum number of graders in a multi grader."""


Template = Annotated[Text, Field(max_length=1_000_000)]
"""Text with placeholders such as `{{ item.answer }}`."""


class PlainMessage(Foreign):
    """A message whose text is taken as it is."""

    role: Literal["user", "assistant", "system", "developer"]
    """Author of the message. `developer` is read as `system`."""
    content: Content
    """Text, or parts that hold text, which are joined by line breaks. In a template, it can have placeholders such as
    `{{ item.answer }}`."""

    @property
    def chat_role(self) -> str:
        """The role that chat templates know."""
        return "system" if self.role == "developer" else self.role


class GraderInput(PlainMessage):
    """A message template."""

    @model_validator(mode="after")
    def _placeholders_are_paths(self) -> GraderInput:
        check_placeholders(self.content)
        return self


class SamplingParams(Foreign):
    """Sampling options of a model grader."""

    temperature: float | None = Field(default=None, ge=0.0, le=2.0, strict=True)
    """Sampling temperature. None: 0 (greedy)."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] | None = None
    """Seed of the sampling. None: 0 for the judge; another model gets no seed."""


class Named(Foreign):
    """Base of all graders."""

    name: Text = Field(min_length=1)
    """Name of the grader, which results repeat."""


class StringCheck(Named):
    """Compares two strings."""

    type: Literal["string_check"]
    """Always `string_check`."""
    input: Template
    """The text to check. It can have placeholders such as `{{ sample.output_text }}`."""
    reference: Template
    """The text to compare with. It can have placeholders such as `{{ item.answer }}`."""
    operation: Literal["eq", "ne", "like", "ilike"]
    """`eq`: both texts are equal. `ne`: they differ. `like`: the input contains the reference. `ilike`: the same,
    ignoring case. The reward is 1 if this holds, otherwise 0."""

    @model_validator(mode="after")
    def _placeholders_are_paths(self) -> StringCheck:
        check_placeholders(self.input)
        check_placeholders(self.reference)
        return self


class TextSimilarity(Named):
    """Measures the similarity of two texts."""

    type: Literal["text_similarity"]
    """Always `text_similarity`."""
    input: Template
    """The text to check. It can have placeholders such as `{{ sample.output_text }}`. With their values filled in, it has
    at most 50,000 characters."""
    reference: Template
    """The text to compare with. It can have placeholders such as `{{ item.answer }}`. With their values filled in, it has
    at most 50,000 characters."""
    evaluation_metric: Text
    """Metric of the reward, which is from 0 to 1: `fuzzy_match`, `bleu`, `gleu`, `rouge_1` to `rouge_5` or `rouge_l`.
    `meteor` and `cosine` are refused."""

    @model_validator(mode="after")
    def _is_supported(self) -> TextSimilarity:
        check_placeholders(self.input)
        check_placeholders(self.reference)
        if self.evaluation_metric not in METRICS:
            known, why = ", ".join(METRICS), REFUSED.get(self.evaluation_metric)
            reason = "" if why is None else f", but {why}"
            raise ValueError(
                f"evaluation_metric: {shown(self.evaluation_metric)} given{reason}; this server supports {known}"
            )
        return self


class PythonGrader(Named):
    """Runs a Python program that returns the reward."""

    type: Literal["python"]
    """Always `python`."""
    source: Text = Field(min_length=1, max_length=250_000)
    """Program that defines `grade(sample, item)`."""


class ScoreModel(Named):
    """Lets the judge score the sample."""

    type: Literal["score_model"]
    """Always `score_model`."""
    model: Text
    """The model that scores: the served judge, or a chat model that the operator added with `--sample-url`."""
    input: list[GraderInput] = Field(min_length=1)
    """Templates of the messages. The judge scores the sample as the response to them. If an eval's row has no sample,
    it scores the last message. Another model answers the messages, with the instruction to reply with a score."""
    range: Annotated[list[Number], Field(min_length=2, max_length=2)] = Field(default_factory=lambda: [0.0, 1.0])
    """Lowest and highest score. The expected score of the judge is mapped from its scale of 1 to 10."""
    sampling_params: SamplingParams | None = None
    """Sampling options. None: the defaults."""

    @model_validator(mode="after")
    def _range_ascends(self) -> ScoreModel:
        if not self.range[0] < self.range[1]:
            raise ValueError(f"range: {self.range} given; expected: [lower, higher]")
        return self


class LabelModel(Named):
    """Lets the judge choose a label."""

    type: Literal["label_model"]
    """Always `label_model`."""
    model: Text
    """The model that chooses: the served judge, or a chat model that the operator added with `--sample-url`."""
    input: list[GraderInput] = Field(min_length=1)
    """Templates of the messages. If none of them names the sample, the judge sees it as the assistant's last message.
    Another model answers the messages, with the instruction to reply with a label."""
    labels: list[Text] = Field(min_length=2, max_length=255)
    """The labels to choose from. Each must be unique."""
    passing_labels: list[Text]
    """Those of `labels` for which the reward is 1. It is 0 for the others."""
    sampling_params: SamplingParams | None = None
    """Sampling options. None: the defaults."""

    @model_validator(mode="after")
    def _labels_fit(self) -> LabelModel:
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels: a label is given twice; each must be unique")
        unknown = sorted(set(self.passing_labels) - set(self.labels))
        if unknown:
            raise ValueError(f"passing_labels: {unknown[0]!r} is not one of `labels`")
        return self


Part = Annotated[StringCheck | TextSimilarity | PythonGrader | ScoreModel | LabelModel, Field(discriminator="type")]


def _by_name(value: Any) -> Any:
    """Convert a list of graders, or a single grader, to a dict by name."""
    if isinstance(value, Mapping) and "type" in value and not isinstance(value["type"], Mapping):
        value = [value]
    if isinstance(value, list):
        names = [part.get("name") if isinstance(part, Mapping) else None for part in value]
        if len(set(map(str, names))) < len(names):
            raise ValueError("two graders have the same name")
        return dict(zip(map(str, names), value, strict=True))
    return value


class MultiGrader(Named):
    """Combines the rewards of several graders by a formula."""

    type: Literal["multi"]
    """Always `multi`."""
    graders: Annotated[dict[Text, Part], BeforeValidator(_by_name), Field(min_length=1, max_length=MAX_PARTS)]
    """Name in the formula -> grader. A list of graders, or one grader, is also accepted: the formula then uses their
    own names."""
    calculate_output: Text
    """Formula of the reward over the names in `graders`: numbers, `+ - * / % ^`, `abs`, `ceil`, `exp`, `floor`, `log`,
    `max`, `min` and `sqrt`. At most 2,000 characters."""

    @model_validator(mode="after")
    def _formula_is_arithmetic(self) -> MultiGrader:
        try:
            Formula(self.calculate_output, names=frozenset(self.graders))
        except ValueError as error:
            raise ValueError(f"calculate_output: {error}") from None
        return self

    @property
    def parts(self) -> Mapping[str, StringCheck | TextSimilarity | PythonGrader | ScoreModel | LabelModel]:
        """The combined graders, by name."""
        return self.graders


Grader = StringCheck | TextSimilarity | PythonGrader | ScoreModel | LabelModel | MultiGrader
AnyGrader = Annotated[Grader, Field(discriminator="type")]


class RunRequest(Foreign):
    """Body of a request that runs a grader on one sample."""

    grader: AnyGrader
    """The grader to run."""
    model_sample: Text
    """The sample: the text of `{{ sample.output_text }}`. If it is JSON, `sample.output_json` is its value."""
    item: Any = None
    """JSON value of the variable `item` in templates and programs. None: an empty object."""


class ValidateRequest(Foreign):
    """Body of a request that validates a grader."""

    grader: AnyGrader
    """The grader to check. It is not run, and its models are not looked up."""
