"""Response bodies in OpenAI's format, for the OpenAPI document.

The endpoints write these bodies as dictionaries. A test compares the responses with these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from tirjudge.types import Verdict
from tirjudge_server.openai.batchstore import LineErrors, Status
from tirjudge_server.openai.filestore import Purpose

# Chat and text completions.


class PromptTokensDetails(BaseModel):
    """Parts of the prompt tokens."""

    cached_tokens: int | None
    """Number of prompt tokens that came from the engine's cache. None: the endpoint of the model does not report it."""


class CompletionTokensDetails(BaseModel):
    """Parts of the completion tokens."""

    reasoning_tokens: int | None
    """Number of tokens that the model wrote before the answer. None: the endpoint of the model does not report it."""


class CompletionUsage(BaseModel):
    """Token counts of all choices."""

    prompt_tokens: int
    """Number of tokens that the model read. A prompt that was read several times counts each time."""
    completion_tokens: int
    """Number of tokens that the model wrote."""
    total_tokens: int
    """Sum of both."""
    prompt_tokens_details: PromptTokensDetails
    """Parts of the prompt tokens."""
    completion_tokens_details: CompletionTokensDetails
    """Parts of the completion tokens."""


FinishReason = Literal["stop", "length", "content_filter"]


class JudgedChoice(BaseModel):
    """Fields that the choices of all completions share."""

    index: int
    """Index of the choice."""
    logprobs: None
    """Always null. The probabilities of labels are in `verdict`."""
    judgment_id: str = ""
    """An extension of OpenAI's format: id of the judgment. Absent in a conversation, and before the last chunk of a
    stream."""
    verdict: Verdict | None = None
    """An extension of OpenAI's format: the verdict. Absent in a conversation, and before the last chunk of a stream."""


class WholeChoice(JudgedChoice):
    """Fields that the choices of completions without a stream share."""

    finish_reason: FinishReason
    """Why the model stopped."""


class ChunkChoice(JudgedChoice):
    """Fields that the choices of chunks share."""

    finish_reason: FinishReason | None
    """Why the model stopped. None: more chunks of the choice follow."""


class AssistantMessage(BaseModel):
    """The answer of the model."""

    role: Literal["assistant"]
    """Always `assistant`."""
    content: str | None
    """The verdict in the form that the request asks for, or the text of a conversation. None: `refusal` has the reason."""
    refusal: str | None
    """Reason why there is no content. None: there is a content."""
    reasoning_content: str | None
    """An extension of OpenAI's format: the turns before the answer, with their programs and the programs' output."""


class ChatCompletionChoice(WholeChoice):
    """One choice of a chat completion."""

    message: AssistantMessage
    """The answer."""


class WholeCompletion(BaseModel):
    """Fields that chat and text completions share."""

    id: str
    """Id of the completion."""
    created: int
    """Unix time in seconds."""
    model: str
    """Name of the judge."""
    system_fingerprint: str | None
    """Version of the weights. None: not known."""
    usage: CompletionUsage | None
    """Token counts of all choices. None: the endpoint of the model does not report them."""


class ChatCompletion(WholeCompletion):
    """A chat completion."""

    object: Literal["chat.completion"]
    """Always `chat.completion`."""
    choices: list[ChatCompletionChoice]
    """The choices. Each is a judgment, or an answer in a conversation."""


class MessageDelta(BaseModel):
    """The new part of a message. An empty delta ends the choice."""

    role: Literal["assistant"] = "assistant"
    """Only in the first chunk."""
    content: str | None = None
    """The content: empty in the first chunk, and whole in the chunk with the answer."""
    refusal: str = ""
    """Reason why there is no content."""
    reasoning_content: str = ""
    """Text of a turn that has ended."""


class ChatChunkChoice(ChunkChoice):
    """The choice of a chunk."""

    delta: MessageDelta
    """The new part of the message."""


class CompletionChunk(BaseModel):
    """Fields that all chunks share."""

    id: str
    """Id of the completion, the same in all chunks."""
    created: int
    """Unix time in seconds."""
    model: str
    """Name of the judge."""
    usage: CompletionUsage | None = None
    """Token counts, in the last chunk if `stream_options` asks for them."""


class ChatCompletionChunk(CompletionChunk):
    """A part of a chat completion in a stream."""

    object: Literal["chat.completion.chunk"]
    """Always `chat.completion.chunk`."""
    choices: list[ChatChunkChoice]
    """The choice. Empty in the chunk with the token counts."""


class TextCompletionChoice(WholeChoice):
    """One choice of a text completion."""

    text: str
    """The verdict, in the form that the judge prompt asks for. Empty: the judge abstained."""


class TextCompletion(WholeCompletion):
    """A text completion."""

    object: Literal["text_completion"]
    """Always `text_completion`."""
    choices: list[TextCompletionChoice]
    """The choices. Each is a judgment."""


class TextChunkChoice(ChunkChoice):
    """The choice of a chunk."""

    text: str
    """The new part of the text. Empty in the last chunk of the choice."""


class TextCompletionChunk(CompletionChunk):
    """A part of a text completion in a stream."""

    object: Literal["text_completion"]
    """Always `text_completion`."""
    choices: list[TextChunkChoice]
    """The choice. Empty in the chunk with the token counts."""


# Decisions.


class NamedAnswer(BaseModel):
    """Fields that all answers share."""

    name: str | None
    """Name of the question. None: it has none."""


class PredicateAnswer(NamedAnswer):
    """Answer to a predicate."""

    type: Literal["predicate"]
    """Always `predicate`."""
    probability: float = Field(ge=0.0, le=1.0)
    """Probability that the statement is true."""


class ChoiceProbability(BaseModel):
    """Probability of an option."""

    value: str | bool
    """The option."""
    probability: float = Field(ge=0.0, le=1.0)
    """Probability that it is right."""


class ChoiceAnswer(NamedAnswer):
    """Answer to a choice."""

    type: Literal["choice"]
    """Always `choice`."""
    choice: str | bool
    """The most probable option."""
    confidence: float = Field(ge=0.0, le=1.0)
    """Its probability, times the probability of all labels together."""
    probabilities: list[ChoiceProbability]
    """The probability of each option, in the order of the request."""


class LevelProbability(BaseModel):
    """Probability of a level."""

    value: int
    """Number of the level, from 0."""
    label: str
    """Name of the level."""
    probability: float = Field(ge=0.0, le=1.0)
    """Probability that it is right."""


class ScoreAnswer(NamedAnswer):
    """Answer to a score."""

    type: Literal["score"]
    """Always `score`."""
    score: float
    """The expected number of the level."""
    confidence: float = Field(ge=0.0, le=1.0)
    """Probability of the most probable level, times the probability of all labels together."""
    probabilities: list[LevelProbability]
    """The probability of each level, in the order of the request."""


class RefusedAnswer(NamedAnswer):
    """The judge abstained."""

    type: Literal["refusal"]
    """Always `refusal`."""


class InputTokensDetails(BaseModel):
    """Parts of the input tokens."""

    cached_tokens: int | None
    """Number of input tokens that came from the engine's cache. None: the endpoint of the model does not report it."""
    cache_write_tokens: int
    """Always 0."""


class OutputTokensDetails(BaseModel):
    """Parts of the output tokens."""

    reasoning_tokens: int
    """All output tokens, because the answers are computed from the verdicts."""


class DecisionUsage(BaseModel):
    """Token counts of all questions."""

    input_tokens: int
    """Number of tokens that the model read."""
    input_tokens_details: InputTokensDetails
    """Parts of the input tokens."""
    output_tokens: int
    """Number of tokens that the model wrote."""
    output_tokens_details: OutputTokensDetails
    """Parts of the output tokens."""
    total_tokens: int
    """Sum of both."""


class DecisionAnswers(BaseModel):
    """Answers to all questions."""

    model: str
    """Name of the judge."""
    answers: list[PredicateAnswer | ChoiceAnswer | ScoreAnswer | RefusedAnswer]
    """One answer for each question, in order."""
    usage: DecisionUsage | None
    """Token counts of all questions. None: the endpoint of the model does not report them."""


# Graders.


class GraderMetadata(BaseModel):
    """How a grader came to its reward."""

    name: str
    """Name of the grader."""
    type: str
    """Type of the grader."""
    execution_time: float
    """Duration in seconds."""
    scores: dict[str, float]
    """Name of each part -> its reward. A grader without parts has its own name and reward."""
    sampled_model_name: str | None
    """The first model that was used. None: no model was used."""
    token_usage: int | None
    """Number of tokens of all models. None: no model was used."""
    errors: dict[str, bool | str | None]
    """OpenAI's flags for errors, and the texts of their details. Null: no details."""


class GraderRun(BaseModel):
    """Result of a grader."""

    reward: float
    """The reward. 0 if the grader failed."""
    sub_rewards: dict[str, float]
    """Name of each part of a multi grader -> its reward. Empty for other graders."""
    model_grader_token_usage_per_model: dict[str, int]
    """Name of a model -> number of its tokens."""
    metadata: GraderMetadata
    """How the grader came to its reward."""


class ValidGrader(BaseModel):
    """A grader that is valid."""

    grader: dict[str, Any]
    """The grader, with the fields that this server reads."""


# Files and batches.


class ObjectPage(BaseModel):
    """Fields that all lists share."""

    object: Literal["list"]
    """Always `list`."""
    first_id: str | None
    """Id of the first object of this page. None: the page is empty."""
    last_id: str | None
    """Id of the last object of this page, for the parameter `after` of the next. None: the page is empty."""
    has_more: bool
    """Whether there are more objects after this page."""


class FileObject(BaseModel):
    """Metadata of a file."""

    id: str
    """Id of the file."""
    object: Literal["file"]
    """Always `file`."""
    bytes: int
    """Size in bytes."""
    created_at: int
    """Unix time in seconds."""
    expires_at: int | None
    """Unix time in seconds at which the file is deleted. None: never."""
    filename: str
    """Name of the file."""
    purpose: Purpose
    """Use of the file. `batch_output`: written by a batch."""
    status: Literal["processed"]
    """Always `processed`."""


class FilePage(ObjectPage):
    """A page of the caller's files."""

    data: list[FileObject]
    """The files."""


class DeletedFile(BaseModel):
    """A file was deleted."""

    id: str
    """Id of the file."""
    object: Literal["file"]
    """Always `file`."""
    deleted: Literal[True]
    """Always true."""


class RequestCounts(BaseModel):
    """Numbers of requests of a batch."""

    total: int
    """All requests. 0 until the input file is checked."""
    completed: int
    """Requests with a response of status 200."""
    failed: int
    """Requests with an error."""


class BatchObject(BaseModel):
    """State of a batch. Times are Unix time in seconds."""

    id: str
    """Id of the batch."""
    object: Literal["batch"]
    """Always `batch`."""
    endpoint: str
    """Path of all requests."""
    model: str | None
    """Name of the model in the requests. None: not known."""
    errors: LineErrors | None
    """Errors in the input file. None: no errors."""
    input_file_id: str
    """Id of the file with the requests."""
    completion_window: str
    """Time until the batch expires, as in the request that created it."""
    status: Status
    """State of the batch."""
    output_file_id: str | None
    """Id of the file with the responses. None: not written."""
    error_file_id: str | None
    """Id of the file with the errors. None: not written."""
    created_at: int
    """When the batch was created."""
    in_progress_at: int | None
    """When the first request ran. None: not yet."""
    expires_at: int
    """When the batch expires."""
    finalizing_at: int | None
    """When the output files were begun. None: not yet."""
    completed_at: int | None
    """When the batch was completed. None: it is not."""
    failed_at: int | None
    """When the input file was rejected. None: it was not."""
    expired_at: int | None
    """When the batch expired. None: it did not."""
    cancelling_at: int | None
    """When the batch was asked to stop. None: it was not."""
    cancelled_at: int | None
    """When the batch was cancelled. None: it was not."""
    request_counts: RequestCounts
    """Numbers of requests."""
    usage: dict[str, Any] | None
    """Token counts of all requests. None: not known."""
    metadata: dict[str, str] | None
    """The caller's notes. None: none."""


class BatchPage(ObjectPage):
    """A page of the caller's batches."""

    data: list[BatchObject]
    """The batches."""
