"""The data types of one judgment, from request to verdict.

There are two families. Types that cross the wire (`JudgeRequest`, `Judgment` and their parts) are frozen pydantic
models that reject unknown fields. Server, client and files share one definition of each. Internal types (`Completion`,
`ExecResult`, `Turn`, `Rollout`) are frozen dataclasses over token ids.

A rollout as token ids, with its loss mask (1: sampled by the policy, carries loss; 0: inserted by the loop):

    prompt_ids              <|im_start|>user ... <|im_end|> <|im_start|>assistant
    turn 0   completion     We count words. ```python ... ``` ```output        1 1 1 1 1
             observation    \\nA 1/2\\nB 2/2\\n```\\n                          0 0 0 0 0
    turn 1   completion     B follows more. <preference> B </preference>       1 1 1 1 1
"""

from __future__ import annotations

import base64
import datetime
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    model_validator,
)
from pydantic_core import CoreSchema

MAX_RESPONSES = 1024
"""Maximum number of responses in one request. Listwise splits a large number into groups."""

PYTHON = "python"
"""Name of the tool that runs programs."""

MAX_CRITERIA = 64
"""Maximum number of criteria in one request."""

MAX_FUNCTIONS = 64
"""Maximum number of functions that a request may name."""

CandidateCode = Literal["flag", "refuse"]
"""What happens when a judge's program executes the text of a response in its own process: the judgment is flagged, or the
execution also fails."""

GOOD_SCORE = 6
"""Lowest score in the upper half of the 1 to 10 scale."""

TIE = "tie"
"""Label of a verdict that calls the responses equally good. Only formats of other judges have it."""

Basis = Literal["checked", "reasoned", "guessed"]
"""What a verdict rests on: values that a program printed, the model's reasoning, or hardly anything. `tirjudge.basis` defines
it."""


class Mode(StrEnum):
    """Judging task: a score for each response, a preference between two responses, the best of several, or a score for
    each response by the server's checks alone, without the model."""

    POINTWISE = "pointwise"
    PAIRWISE = "pairwise"
    LISTWISE = "listwise"
    RULES = "rules"

    @property
    def scores_each(self) -> bool:
        """Whether each response gets a score of its own."""
        return self in (Mode.POINTWISE, Mode.RULES)


MODEL_MODES = (Mode.POINTWISE, Mode.PAIRWISE, Mode.LISTWISE)
"""Modes in which a model judges."""


class StopReason(StrEnum):
    """Why a rollout ended."""

    VERDICT = "verdict"
    """The model wrote a well-formed verdict."""
    MALFORMED = "malformed_verdict"
    """The model closed a verdict tag around text that is not one of the offered labels."""
    NO_VERDICT = "no_verdict"
    """The model ended its turn with neither a program nor a verdict."""
    TOOL_BUDGET = "tool_budget"
    """The model made one tool call more than its budget allows. That call was not run."""
    LENGTH = "length"
    """The token budget of the rollout, or the context of the model, was used up."""
    DEADLINE = "deadline"
    """The deadline of the judgment was near. A turn that was being generated is discarded."""
    CONTENT_FILTER = "content_filter"
    """A content filter of the endpoint rejected the conversation, or ended the answer of the model."""

    @property
    def is_verdict(self) -> bool:
        """Whether the model itself gave a well-formed verdict."""
        return self is StopReason.VERDICT


class Outcome(StrEnum):
    """How a program ended. A sandbox failure has no outcome: it raises `tirjudge.errors.SandboxUnavailable`."""

    OK = "ok"
    """Exit code 0."""
    ERROR = "error"
    """A Python exception, or a non-zero exit code."""
    TIMEOUT = "timeout"
    """The wall-time or CPU-time limit was reached."""
    OOM = "oom"
    """The memory limit was reached."""
    CRASH = "crash"
    """The program was killed by a signal that was not sent to enforce a limit."""
    OUTPUT_LIMIT = "output_limit"
    """The program wrote more output than allowed."""
    REFUSED = "refused"
    """The program never started: it was too large, or the call contained no program."""
    SANDBOX_ERROR = "sandbox_error"
    """The sandbox failed, not the program. This outcome is used only on the wire of the sandbox service, whose client
    raises `SandboxUnavailable`."""

    @property
    def is_ok(self) -> bool:
        """Whether the program ended with exit code 0."""
        return self is Outcome.OK


class Unmet(StrEnum):
    """Requirement of a request that a verdict does not meet. The verdict is then an abstention with this reason."""

    NOT_CHECKED = "not_checked"
    """`require` is `checked`, and the basis of the verdict is not."""
    LOW_CONFIDENCE = "low_confidence"
    """The confidence is below `min_confidence`."""
    CONFIDENCE_UNKNOWN = "confidence_unknown"
    """`min_confidence` is given, and the model returns no probabilities."""


_UNMET = frozenset(each.value for each in Unmet)


# Internal types: token ids and the data attached to them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters of one turn. Every field is sent explicitly, so that server-side defaults have no effect."""

    max_tokens: int
    """Maximum number of tokens to generate."""
    temperature: float = 0.0
    """Sampling temperature. 0: greedy."""
    top_p: float = 1.0
    """Nucleus sampling mass. 1: the whole distribution."""
    seed: int | None = None
    """Seed of this turn. None: the engine chooses."""
    stop: tuple[str, ...] = ()
    """Strings that end the turn. The matched string is kept at the end of the text."""
    allowed_token_ids: tuple[int, ...] | None = None
    """Ids that can be sampled. None: the whole vocabulary."""
    logprob_token_ids: tuple[int, ...] = ()
    """Ids for which to return the log-probability at the first generated position, computed before any constraint is
    applied."""
    logprobs: bool = True
    """Whether to return the log-probability of each sampled id. Training needs them; a verdict does not, and engines
    are faster without them."""
    turn: int = 0
    """Index of the turn in its rollout. An engine with a queue gives priority to rollouts that are in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Token counts of one request as reported by an endpoint that does not expose its token ids."""

    prompt: int | None
    """Number of prompt tokens. None: not reported."""
    completion: int | None
    """Number of generated tokens. None: not reported."""
    cached: int | None = None
    """Number of prompt tokens that were prefix-cache hits. None: not reported."""
    cost_usd: float | None = None
    """Price in US dollars. None: the prices or the counts are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAlternatives:
    """One token of a completion with the log-probabilities of its alternatives."""

    start: int
    """Offset of the token in the text of the completion, in characters."""
    text: str
    """Text of the sampled token."""
    logprobs: dict[str, float]
    """Token text -> log-probability, for the most likely tokens and the sampled token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Output of an engine for one turn. `decode(token_ids) == text`, except for hidden tokens such as end-of-turn."""

    text: str
    """Generated text, ending with the matched stop string if there is one."""
    token_ids: tuple[int, ...]
    """Generated ids, including the end-of-turn token if the model wrote one."""
    logprobs: tuple[float, ...]
    """Log-probability of each id under the model at temperature 1, natural logarithm; 0.0 for the ids that
    `num_appended` counts. Empty if they were not requested, or if the engine does not provide them."""
    finish_reason: Literal["stop", "length", "repetition", "content_filter"]
    """`stop`: a stop string or the end-of-turn token. `length`: max_tokens. `repetition`: the engine detected a
    loop. `content_filter`: a filter of the endpoint; the text is not used."""
    stop: str | None = None
    """The stop string that matched. None: the end-of-turn token or a limit ended the turn."""
    num_appended: int = 0
    """Number of trailing ids that were re-encoded because the last sampled token reached past the stop string."""
    token_logprobs: dict[int, float] = field(default_factory=dict)
    """Id -> log-probability at the first position, for the ids in `Sampling.logprob_token_ids`."""
    num_cached: int = 0
    """Number of prompt tokens that were prefix-cache hits."""
    places: tuple[TokenAlternatives, ...] = ()
    """Alternatives to each token, from an engine that asks for the verdict as text. Empty: the engine returned
    none."""
    counted: TokenUsage | None = None
    """Token counts reported by the endpoint. None: count the ids instead."""

    @property
    def num_generated(self) -> int | None:
        """Number of generated tokens. None: the endpoint does not report it."""
        return len(self.token_ids) if self.counted is None else self.counted.completion


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The tool call at the end of a turn."""

    tool: str
    """Name of the tool, such as `python`."""
    source: str | None
    """Source text of the call, such as a program. None: the model made a call without any source that can be run."""
    problem: str | None = None
    """Error shown to the model if `source` is None."""
    opening: str = ""
    """Text that the format inserts before the output because the model did not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Result of one tool call."""

    outcome: Outcome
    """How the call ended."""
    stdout: str = ""
    """Output of the tool. For a program: its standard output, cut to the output limit."""
    error: str | None = None
    """Last line of the error, at most 500 characters. None: the call succeeded."""
    wall_s: float = 0.0
    """Wall time from the start of the call to its end, in seconds. 0: not measured by the tool; then the loop measures it."""
    queue_s: float = 0.0
    """Time spent waiting for a free slot, in seconds; not part of `wall_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult(ToolResult):
    """Result of one program. The outcome comes from the operating system, never from the program's own output."""

    truncated: bool = False
    """Whether stdout was cut."""
    exit_code: int | None = None
    """Exit code of the program. None: a signal or a limit ended it."""
    signal: int | None = None
    """Signal that ended the program. None: the program exited normally."""
    cpu_s: float = 0.0
    """CPU time of the program, in seconds."""
    max_rss_kb: int = 0
    """Peak resident memory, in KiB."""
    level: str = ""
    """Isolation level of this run, such as `namespaces`. `unsafe`: no isolation."""
    preset: str = ""
    """Modules preloaded in the interpreter, such as `sympy`. The preset never decides which modules can be imported."""
    stderr: str = ""
    """Tail of the standard error, at most 16 KiB."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Path -> content of each requested file that exists."""
    calls: tuple[CallRecord, ...] = ()
    """Function calls of the program, in the order they ended."""
    stores: tuple[StoreCard, ...] = ()
    """Stores of evidence that the calls queried."""
    in_process: tuple[str, ...] = ()
    """Each way in which the program executed the text of a response in its own process, such as `exec`. Its output may
    then be the candidate's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One completion with its tool call and the result of that call."""

    completion: Completion
    """Output of the engine."""
    call: ToolCall | None = None
    """Tool call at the end of the turn, whether or not it was within the budget. None: the turn makes no call."""
    result: ToolResult | None = None
    """Result of the call. None: the turn makes no call, or the call was over the budget."""
    output: str | None = None
    """Text of the result that the model was shown. None exactly when `result` is None."""
    observation_ids: tuple[int, ...] = ()
    """The output between its delimiters, encoded once. These ids follow the completion."""
    engine_s: float = 0.0
    """Time until the engine returned the completion, in seconds, including its queue."""
    is_thought: bool = False
    """Whether the turn is a thought of the model, or a part of one. Nothing in it is run or counted as a verdict. Its
    `observation_ids` close a thought that used up its token budget."""

    @property
    def probability(self) -> float | None:
        """Probability of the text of a call, at temperature 1. None: no call, or the engine returned no log-probabilities."""
        is_known = self.call is not None and self.completion.logprobs
        return math.exp(math.fsum(self.completion.logprobs)) if is_known else None

    @property
    def code(self) -> str | None:
        """Source of the call. None: no call, a call over the budget, or a call without a source."""
        return None if self.call is None or self.result is None else self.call.source

    @property
    def record(self) -> TurnRecord:
        """The wire form of the turn."""
        return TurnRecord(
            text=self.completion.text,
            code=self.code,
            output=self.output,
            outcome=None if self.result is None else self.result.outcome,
            tool=None if self.call is None or self.result is None or self.call.tool == PYTHON else self.call.tool,
            is_thought=self.is_thought,
            calls=[] if self.program is None else list(self.program.calls),
            in_process=[] if self.program is None else list(self.program.in_process),
            num_tokens=self.completion.num_generated,
            engine_ms=round(1000 * self.engine_s, 3),
            tool_ms=None if self.result is None else round(1000 * self.result.wall_s, 3),
            probability=None if self.probability is None else float(f"{self.probability:.4g}"),
        )

    @property
    def program(self) -> ExecResult | None:
        """Result of the program of this turn. None: the turn ran no program."""
        return self.result if isinstance(self.result, ExecResult) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One run of the loop over one prompt, as token ids of the engine."""

    prompt_ids: tuple[int, ...]
    """Ids of the rendered prompt."""
    turns: tuple[Turn, ...]
    """Turns in the order they were generated."""
    stop_reason: StopReason
    """Why the rollout ended."""
    model: str
    """Name of the model."""
    forced_ids: tuple[int, ...] = ()
    """Ids of a forced verdict (tag and label). Empty: the model gave its own verdict, or gave none."""
    label: str | None = None
    """Label of the verdict as the model saw it. None: no verdict."""
    written: str | None = None
    """Text that the model wrote for the label, on its own scale. None: the label itself."""
    points: tuple[float, ...] | None = None
    """Points of each shown response, in the order shown. None: the format does not join opposite orders by points, or the
    rollout has no verdict."""
    label_logprobs: dict[str, float] = field(default_factory=dict)
    """Label -> log-probability at the verdict position, over the full vocabulary. Empty: no verdict, or the engine does
    not return probabilities."""
    asked: Completion | None = None
    """Completion of a model that was asked for its verdict as text. None: it was not asked."""
    is_unsure: bool = False
    """Whether the model was not sure of its programs (`Profile.checked_from`). The verdict is then not `checked`."""

    @property
    def program_probability(self) -> float | None:
        """Probability of the texts of all calls, at temperature 1. None: no call, or not known."""
        found = [turn.probability for turn in self.turns if turn.call is not None]
        known = [each for each in found if each is not None]
        return math.prod(known) if known and len(known) == len(found) else None

    @property
    def label_probabilities(self) -> dict[str, float]:
        """Label -> probability, normalized over the labels to sum to 1; empty if not known."""
        if not self.label_logprobs:
            return {}
        top = max(self.label_logprobs.values())
        weights = {label: math.exp(logprob - top) for label, logprob in self.label_logprobs.items()}
        total = math.fsum(weights.values())
        return {label: weight / total for label, weight in weights.items()}

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All ids after the prompt."""
        parts = [i for turn in self.turns for i in (*turn.completion.token_ids, *turn.observation_ids)]
        return (*parts, *self.forced_ids)

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """1 for each id the policy sampled, 0 for each id the loop inserted; same length as `token_ids`."""
        mask: list[int] = []
        for turn in self.turns:
            num_ours = turn.completion.num_appended + len(turn.observation_ids)
            mask += [1] * (len(turn.completion.token_ids) - turn.completion.num_appended) + [0] * num_ours
        return (*mask, *(0 for _ in self.forced_ids))

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Log-probability of each sampled id, 0.0 for inserted ids. Same length as `token_ids` if the turns were
        sampled with `logprobs`."""
        parts = [p for t in self.turns for p in (*t.completion.logprobs, *(0.0 for _ in t.observation_ids))]
        return (*parts, *(0.0 for _ in self.forced_ids))

    @property
    def completions(self) -> tuple[Completion, ...]:
        """The completions of all turns, followed by `asked` if there is one."""
        turns = tuple(turn.completion for turn in self.turns)
        return turns if self.asked is None else (*turns, self.asked)

    @property
    def num_calls(self) -> int:
        """Number of tool calls within the budget."""
        return sum(turn.result is not None for turn in self.turns)

    @property
    def num_programs(self) -> int:
        """Number of calls that ran. Refused calls do not count."""
        return sum(turn.result is not None and turn.result.outcome is not Outcome.REFUSED for turn in self.turns)

    @property
    def num_failed_calls(self) -> int:
        """Number of calls with an outcome other than `ok`. Refused calls count."""
        return sum(turn.result is not None and not turn.result.outcome.is_ok for turn in self.turns)

    @property
    def forced(self) -> bool:
        """Whether the verdict was forced."""
        return bool(self.forced_ids)


# Wire types.

_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(value: Any) -> Any:
    """Replace each lone surrogate in a string by U+FFFD and keep the rest. JSON can contain lone surrogates, but
    neither tokenizers nor UTF-8 files accept them."""
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


Text = Annotated[str, BeforeValidator(encodable)]
"""A string that can always be encoded as UTF-8."""


def encodable_json(value: Any) -> Any:
    """Return a JSON value that can be encoded: with U+FFFD in place of each lone surrogate in texts and names, and None in
    place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {encodable(name): encodable_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [encodable_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else encodable(value)


def whole(value: Any) -> Any:
    """Convert an integral float to an int. JSON has one number type, so 5.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[StrictInt, BeforeValidator(whole)]
"""An integer. Strings and booleans are rejected."""


MAX_NUMBER = 1e100
"""Largest absolute value of a caller's number that enters a computation. It keeps sums and products finite."""

Number = Annotated[StrictFloat | StrictInt, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
"""A score, a reward, or a bound of their scale."""


def is_none(value: Any) -> bool:
    """Whether a field is omitted from JSON. Records from before the field keep their hashes."""
    return value is None


_CONTAINERS = ("list", "tuple", "set", "frozenset", "dict")
_NO_SCHEMAS = ("metadata", "default", "config", "serialization")


def _failing_fast(schema: Any) -> Any:
    """Return a copy of a pydantic core schema whose containers stop at their first invalid element."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_failing_fast, schema))
    if not isinstance(schema, dict):
        return schema
    changed = {name: part if name in _NO_SCHEMAS else _failing_fast(part) for name, part in schema.items()}
    return changed | {"fail_fast": True} if schema.get("type") in _CONTAINERS else changed


class Received(BaseModel):
    """Base of untrusted input: validation of a list or a dict stops at its first invalid element.

    Otherwise, a list of a million invalid elements would produce a million error objects.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _failing_fast(handler(source))


class Wire(Received):
    """Base of every wire type: frozen, and unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_TURN = re.compile(r"(?<=\n\n)(?=(?:system|user|assistant|tool): )")
"""The start of a paragraph that begins like a turn in the output of `prompt_text`."""


class ChatMessage(Wire):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    """Author of the message."""
    content: Text
    """Text of the message."""


class Criterion(Wire):
    """One criterion for judging the responses."""

    text: Text = Field(min_length=1)
    """Description of the criterion."""
    name: Text | None = None
    """Short name. None: no name is shown."""
    weight: Annotated[StrictFloat, Field(gt=0.0, le=MAX_NUMBER, allow_inf_nan=False)] = 1.0
    """Weight relative to the other criteria."""


StoreKind = Literal["table", "graph", "documents"]
"""Kind of a store of evidence."""

World = Literal["open", "closed"]
"""Whether what a store does not contain is unknown (`open`) or false (`closed`)."""

MAX_ATTACHED_STORES = 16
"""Maximum number of stores that come with a request."""

MAX_ATTACHED_BYTES = 4 << 20
"""Maximum total size of the stores that come with a request."""


class AttachedFile(Wire):
    """A file of a store that comes with a request: its `text`, or its bytes as `base64`."""

    name: Annotated[Text, Field(min_length=1, max_length=255)]
    """Name of the file. A table is called after it, without the suffix."""
    format: Literal[
        "csv", "json", "jsonl", "parquet", "sqlite", "turtle", "n-triples", "json-ld", "text", "markdown", "pdf"
    ]
    """Format of the file."""
    text: Text | None = None
    """Content of a text format. None: `base64` has it."""
    base64: Text | None = None
    """Content as base64. None: `text` has it."""
    part: Literal["files", "ontology", "shapes"] = "files"
    """For graphs: facts, classes and properties, or SHACL shapes."""

    @model_validator(mode="after")
    def _check_content(self) -> AttachedFile:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("expected `text` or `base64`, one of them")
        self.content  # noqa: B018 - raises ValueError for invalid base64
        return self

    @property
    def content(self) -> bytes:
        """Content of the file."""
        if self.text is not None:
            return self.text.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise ValueError(f"base64: {error}") from None


def check_period(*, valid_from: datetime.date | None, valid_until: datetime.date | None) -> None:
    """Check that a store is valid on at least one day. None: no limit.

    Raises:
        ValueError: The first day is after the last one.
    """
    if valid_from and valid_until and valid_from > valid_until:
        raise ValueError(f"valid_from: {valid_from} is after valid_until: {valid_until}")


class AttachedStore(Wire):
    """A store of evidence that comes with a request. Only the judgment of this request can query it."""

    name: Annotated[Text, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    """Name of the store in programs."""
    kind: StoreKind
    """Kind of the store."""
    files: list[AttachedFile] = Field(min_length=1, max_length=256)
    """Its files."""
    authority: Integer = 0
    """Rank of the store where sources conflict: a higher one wins."""
    valid_from: datetime.date | None = None
    """First day on which its contents are valid. None: no limit."""
    valid_until: datetime.date | None = None
    """Last day on which its contents are valid. None: no limit."""
    world: World = "open"
    """Whether what the store does not contain is unknown or false."""


class StoreCard(Wire):
    """What is known about an open store of evidence."""

    name: str
    """Name in programs."""
    kind: StoreKind
    """Kind of the store."""
    sha256: str
    """SHA-256 of its files with their names, parts and formats."""
    authority: int = 0
    """Rank where sources conflict: a higher one wins."""
    valid_from: datetime.date | None = None
    """First day on which its contents are valid. None: no limit."""
    valid_until: datetime.date | None = None
    """Last day on which its contents are valid. None: no limit."""
    world: World = "open"
    """Whether what the store does not contain is unknown or false."""
    num_bytes: int
    """Total size of its files."""
    lines: list[str] = Field(default_factory=list)
    """Contents for the prompt: a line for each table, the classes and properties of a graph, or the documents."""
    size: dict[str, int] = Field(default_factory=dict)
    """Number of rows, triples or documents, by name."""


_FIT: list[JsonValue] = [
    {
        "anyOf": [
            {"properties": {"mode": {"enum": ["pointwise", "rules"]}}},
            {"properties": {"mode": {"const": "pairwise"}, "responses": {"minItems": 2, "maxItems": 2}}},
            {"properties": {"mode": {"const": "listwise"}, "responses": {"minItems": 2}}},
        ]
    },
    {
        "anyOf": [
            {"properties": {"tools": {"enum": ["auto", "off"]}}},
            {"properties": {"max_tool_calls": {"minimum": 1}}},
        ]
    },
]
"""Constraints between the fields of a request, for its JSON schema."""


class JudgeRequest(Wire):
    """One request to the judge. HTTP, files and the library use the same object."""

    model_config = ConfigDict(json_schema_extra={"allOf": _FIT})

    mode: Mode
    """Judging task."""
    prompt: Text | Annotated[list[ChatMessage], Field(min_length=1)]
    """The question that the responses answer: a text or a conversation."""
    responses: list[Text] = Field(min_length=1, max_length=MAX_RESPONSES)
    """The candidates: exactly 2 for pairwise, at least 2 for listwise, 1 or more (each judged alone) for pointwise and
    rules."""
    model: Text | None = None
    """Name of the judge. None: the server's default."""
    reference: Text | None = None
    """A known good answer. It is shown to the judge, and programs find it in the variable `reference`. None: no
    reference."""
    criteria: list[Criterion] | None = Field(default=None, min_length=1, max_length=MAX_CRITERIA)
    """Weighted criteria to judge by. None: the judge chooses."""
    rubric: Text | None = None
    """Judging instructions as text: what earns which score, or what makes a response better. None: the judge
    chooses."""
    tools: Literal["auto", "on", "off"] = "auto"
    """`auto`: the model may run Python. `on`: the model may run Python, and a verdict only counts if a program ran.
    `off`: the prompt without tools; no sandbox is used."""
    orders: Literal["single", "both"] = "single"
    """`single`: one order, derived from the content of the request. `both`: two opposite orders; if their verdicts
    disagree, the result is a tie."""
    votes: Integer = Field(default=1, ge=1, le=64)
    """Maximum number of rollouts per order. The majority wins. Voting stops once the remaining votes cannot change the
    outcome."""
    max_tool_calls: Integer = Field(default=3, ge=0, le=16)
    """Maximum number of tool calls per rollout. 0 is the same as `tools="off"`."""
    force_verdict: StrictBool = True
    """Whether to force a verdict (marked `forced`) from a rollout without one. False: that rollout abstains."""
    require: Literal["checked"] | None = Field(default=None, exclude_if=is_none)
    """`checked`: the judgment abstains with reason `not_checked` unless the basis of its verdict is `checked`. None (omitted
    from JSON): any basis."""
    min_confidence: StrictFloat | None = Field(default=None, ge=0.0, le=1.0, allow_inf_nan=False, exclude_if=is_none)
    """Minimum confidence of the verdict. Below it, the judgment abstains with reason `low_confidence`; without
    probabilities from the model, with reason `confidence_unknown`. None (omitted from JSON): any confidence."""
    temperature: StrictFloat | None = Field(default=None, ge=0.0, le=2.0)
    """Sampling temperature. None: 0 (greedy) for one vote, the profile's `vote_temperature` for several votes."""
    seed: Integer = Field(default=0, ge=0, lt=2**63)
    """Seed of the response order and of sampling."""
    deadline_s: Annotated[StrictFloat, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Time limit of the whole judgment, in seconds. Near the limit, verdicts are forced from the turns written so far.
    None: no limit."""
    functions: list[Text] | None = Field(default=None, max_length=MAX_FUNCTIONS, exclude_if=is_none)
    """Names of the functions that programs may call, of those that the operator enabled. Empty: none. None (omitted from
    JSON): all."""
    candidate_code: CandidateCode = Field(default="flag", exclude_if=lambda value: value == "flag")
    """What happens when a program executes the text of a response in its own process, where the response can forge the
    output. `flag` (omitted from JSON): the judgment says so in `ran_candidate_in_process`. `refuse`: the execution also
    fails with an error."""
    evidence: list[AttachedStore] | None = Field(default=None, max_length=MAX_ATTACHED_STORES, exclude_if=is_none)
    """Stores of evidence for this judgment, in addition to those that the operator registered. None (omitted from JSON):
    none."""
    stream: StrictBool = False
    """Over HTTP: send each turn when it ends, as a server-sent event."""

    @model_validator(mode="after")
    def _check_combinations(self) -> JudgeRequest:
        given = len(self.responses)
        if self.mode is Mode.PAIRWISE and given != 2:
            raise ValueError(f"responses: pairwise compares exactly 2 responses, {given} given")
        if self.mode is Mode.LISTWISE and given < 2:
            raise ValueError(f"responses: listwise compares at least 2 responses, {given} given")
        if self.tools == "on" and self.max_tool_calls == 0:
            raise ValueError('max_tool_calls: 0 given with tools "on", which requires a program run; give at least 1')
        if self.evidence is not None:
            _check_attached(self.evidence)
        return self

    @property
    def offers_tools(self) -> bool:
        """Whether the prompt offers tools to the model."""
        return self.tools != "off" and self.max_tool_calls > 0


def _check_attached(stores: Sequence[AttachedStore]) -> None:
    names = Counter(store.name for store in stores)
    twice = next((name for name, number in names.items() if number > 1), None)
    if twice is not None:
        raise ValueError(f"evidence: two stores named {twice!r}")
    num_bytes = sum(len(file.content) for store in stores for file in store.files)
    if num_bytes > MAX_ATTACHED_BYTES:
        raise ValueError(f"evidence: {num_bytes:,} bytes given, the limit is {MAX_ATTACHED_BYTES:,}")


Severity = Literal["info", "warning", "violation"]
"""Severity of what a check found, from the lowest to the highest."""


class CheckReason(Wire):
    """One finding of a check."""

    message: Text
    """What is wrong."""
    row: Annotated[dict[str, JsonValue] | None, BeforeValidator(encodable_json)] = Field(
        default=None, exclude_if=is_none
    )
    """Row of a table that shows it. None (omitted from JSON): no row."""
    focus: Text | None = Field(default=None, exclude_if=is_none)
    """Node of a graph that the finding is about. None (omitted from JSON): no node."""
    path: Text | None = Field(default=None, exclude_if=is_none)
    """Property of the node, or place in the response's JSON as a JSON pointer. None (omitted from JSON): not known."""
    value: Annotated[JsonValue, BeforeValidator(encodable_json)] = Field(default=None, exclude_if=is_none)
    """Value at the path. None (omitted from JSON): no value."""
    store: Text | None = Field(default=None, exclude_if=is_none)
    """Store of evidence that was asked. None (omitted from JSON): no store."""
    store_sha256: str | None = Field(default=None, exclude_if=is_none)
    """SHA-256 of that store. None (omitted from JSON): no store."""


class CheckResult(Wire):
    """Result of one check of one response."""

    check: str
    """Name of the check."""
    kind: str
    """Kind of the check, such as `sql`."""
    severity: Severity
    """Severity of a failure; of several findings, the highest."""
    passed: bool
    """Whether the response passed. A skipped check did not pass."""
    reasons: list[CheckReason] = Field(default_factory=list, exclude_if=lambda reasons: not reasons)
    """Findings. Empty is omitted from JSON."""
    skipped: Text | None = Field(default=None, exclude_if=is_none)
    """Why the check does not apply to the response. It then counts for nothing. None (omitted from JSON): it applies."""

    @property
    def failed(self) -> bool:
        """Whether the check applies and the response did not pass."""
        return not self.passed and self.skipped is None


class GateRecord(Wire):
    """Change of a verdict by a failed check."""

    check: str
    """Name of the check."""
    response: int
    """Index of the response that failed it."""
    effect: Literal["cap", "decides"]
    """`cap`: the score was lowered. `decides`: the response lost to those that passed."""
    before: float | None
    """Score, or index of the best response, without the gate. None: there was no best response."""
    after: float | None
    """Score, or index of the best response, with the gate. None: there is no best response."""


RULE = "rule"
"""Reason of a verdict that a gate decided."""


class Verdict(Wire):
    """Final verdict of a judgment. Indexes and lists follow the order of the responses in the request."""

    status: Literal["decided", "tie", "abstained"]
    """`decided`: one response is best, or the one response has a score. `abstained`: no verdict."""
    best: int | None
    """Index of the best response. None: a tie, an abstention, or pointwise with one response."""
    label: str | None
    """Letter of the best response. For pointwise with one response: its score as the judge wrote it."""
    scores: list[float | None] | None
    """Pointwise: the expected score of each response, 1 to 10, or the score as written if the model returns no
    probabilities (None: no verdict on that response); of a scalar reward model, its raw scores. None in other modes."""
    probabilities: list[float] | None
    """One probability per response. Pairwise and listwise: P(it is the best), summing to 1. Pointwise: P(its score is 6
    or more). None: an abstention, the model returns no probabilities, or raw scores in pointwise mode."""
    confidence: float | None
    """P(top label) x label_mass. None: no probabilities."""
    label_mass: float | None
    """Total probability of the offered labels at the verdict position, mean over rollouts. None: not known."""
    forced: bool
    """Whether the verdict of any counted rollout was forced."""
    reason: str | None = None
    """Reason for a tie or an abstention. `rule`: a gate decided, against the model. None: the model decided."""
    basis: Basis | None = Field(default=None, exclude_if=is_none)
    """What the verdict rests on: `guessed` if any counted rollout was guessed, `checked` if all were checked, otherwise
    `reasoned`. A verdict that a gate or the rules decided is `checked`. None (omitted from JSON): an abstention, the
    verdict of a scalar reward model, or a judgment from before this field."""
    gates: list[GateRecord] = Field(default_factory=list, exclude_if=lambda gates: not gates)
    """Changes by failed checks. The probabilities and the confidence stay those of the model. Empty is omitted from JSON."""

    @property
    def final_probabilities(self) -> list[float] | None:
        """Probabilities after the gates. Rewards and rankings use these.

        Pointwise, 0 and 1 replace those of the responses that a gate changed. Otherwise the responses that a gate made lose
        have 0, and the others' are scaled to a sum of 1.
        """
        if not self.gates or self.probabilities is None:
            return self.probabilities
        if self.scores is not None:
            changed = {gate.response for gate in self.gates}
            of_scores = zip(self.probabilities, self.scores, strict=True)
            return [
                float(score is not None and score >= GOOD_SCORE) if index in changed else p
                for index, (p, score) in enumerate(of_scores)
            ]
        lost = {gate.response for gate in self.gates if gate.effect == "decides"}
        left = [0.0 if index in lost else p for index, p in enumerate(self.probabilities)]
        if not any(left):
            left = [float(index not in lost) for index in range(len(left))]
        if self.best is not None and left[self.best] < max(left):  # a record that names only the response that was best
            left = [float(index == self.best) for index in range(len(left))]
        total = math.fsum(left)
        return [p / total for p in left]

    @property
    def is_withheld(self) -> bool:
        """Whether there was a verdict that does not meet the requirements of the request."""
        return self.status == "abstained" and self.reason in _UNMET


class CallRecord(Wire):
    """One function call of a program, as the host recorded it. The program cannot change it."""

    function: str
    """Name of the function."""
    version: str
    """Version of the function."""
    arguments: dict[str, JsonValue] | None
    """Arguments. None: larger than 64 KiB as JSON."""
    arguments_sha256: str
    """SHA-256 of the arguments as JSON, in hexadecimal digits."""
    result: JsonValue = None
    """Result. None: an error, larger than 64 KiB as JSON, or the result is null."""
    result_sha256: str | None
    """SHA-256 of the result as JSON, in hexadecimal digits. None: an error."""
    num_bytes: int
    """Size of the result as JSON. 0: an error."""
    error: str | None = Field(default=None, exclude_if=is_none)
    """Message of the error. None (omitted from JSON): the call returned a result."""
    ms: float
    """Duration of the call in milliseconds."""
    sources: dict[str, str] = Field(default_factory=dict, exclude_if=lambda sources: not sources)
    """Store of evidence that the call queried -> SHA-256 of the store. Empty is omitted from JSON."""


ClaimStatus = Literal["supported", "contradicted", "violates_rule", "not_in_evidence"]
"""What the evidence says about a part of a response."""


class CitedCall(Wire):
    """A function call that a claim rests on."""

    rollout: int
    """Index of the rollout."""
    turn: int
    """Index of the turn in the rollout."""
    call: int
    """Index of the call in the turn."""
    rows: list[int] = Field(default_factory=list, exclude_if=lambda rows: not rows)
    """Indexes of the cited items of its result. Empty (omitted from JSON): the whole result."""


class ClaimRecord(Wire):
    """What a program claimed about a part of a response. The host checked that the part and the cited calls exist."""

    response: int
    """Index of the response in the request."""
    start: int
    """Start of the part in the response, in characters."""
    end: int
    """End of the part in the response, in characters."""
    text: str
    """The part."""
    status: ClaimStatus
    """What the evidence says about it."""
    rule: str | None = Field(default=None, exclude_if=is_none)
    """Name of the violated rule. None (omitted from JSON): no rule."""
    made: CitedCall
    """The call that made the claim."""
    calls: list[CitedCall] = Field(default_factory=list)
    """Calls that the claim rests on. With status `not_in_evidence`: calls that searched for it."""
    sources: dict[str, str] = Field(default_factory=dict, exclude_if=lambda sources: not sources)
    """Store that the cited calls queried -> SHA-256 of the store. Empty is omitted from JSON."""
    overruled_by: int | None = Field(default=None, exclude_if=is_none)
    """Index of a claim on the same text that rests on better stores and says the opposite. None (omitted from JSON): no such
    claim."""
    overruled_for: Literal["validity", "authority", "date"] | None = Field(default=None, exclude_if=is_none)
    """Why: the other stores are valid on the day of the judgment, have a higher authority, or begin later. None (omitted from
    JSON): not overruled."""


class ClaimConflict(Wire):
    """Two claims on the same text that say the opposite, from stores of the same rank."""

    claims: list[int]
    """Indexes of the two claims."""
    stores: list[str]
    """Names of the stores that both rest on."""


class TurnRecord(Wire):
    """One turn of a rollout, as text."""

    text: str
    """Text that the model wrote, including the program."""
    code: str | None
    """Source of the tool call. None: the turn made no call within the budget, or the call had no source."""
    output: str | None
    """Tool output that the model was shown. None: nothing was run."""
    outcome: Outcome | None
    """How the call ended. None: nothing was run."""
    tool: str | None = Field(default=None, exclude_if=is_none)
    """Name of the tool. None (omitted from JSON): Python, or nothing was run."""
    is_thought: bool = Field(default=False, exclude_if=lambda is_thought: not is_thought)
    """Whether the text is a thought of the model. False is omitted from JSON."""
    calls: list[CallRecord] = Field(default_factory=list, exclude_if=lambda calls: not calls)
    """Function calls of the program, in the order they ended. Empty is omitted from JSON."""
    in_process: list[str] = Field(default_factory=list, exclude_if=lambda ways: not ways)
    """Each way in which the program executed the text of a response in its own process. Empty is omitted from JSON."""
    num_tokens: int | None = Field(default=None, exclude_if=is_none)
    """Number of tokens that the model generated. None (omitted from JSON): not known, as in older judgments."""
    engine_ms: float | None = Field(default=None, exclude_if=is_none)
    """Time until the engine returned the text, in milliseconds, including its queue. None (omitted from JSON): not known."""
    tool_ms: float | None = Field(default=None, exclude_if=is_none)
    """Duration of the tool call in milliseconds, without its wait for a free slot. None (omitted from JSON): no call, or not
    known."""
    probability: float | None = Field(default=None, exclude_if=is_none)
    """Probability of the text up to the end of its tool call, as the model gives it at temperature 1. None (omitted from
    JSON): no call, or not read, as for most models."""

    @property
    def was_called(self) -> bool:
        """Whether the turn made a tool call within the budget."""
        return self.outcome is not None

    @property
    def ran(self) -> bool:
        """Whether a program ran. A refused program did not."""
        return self.outcome not in (None, Outcome.REFUSED)


class RolloutVerdict(Wire):
    """Verdict of one rollout."""

    label: str
    """The label as the model saw it; `tie` if it called the responses equally good. Scores of other judges are mapped to
    1 to 10."""
    written: str | None = Field(default=None, exclude_if=is_none)
    """Text that the model wrote for the label, such as a score on its own scale. None (omitted from JSON): the label."""
    points: list[float] | None = Field(default=None, exclude_if=is_none)
    """Points of each shown response, in the order shown, if the format joins opposite orders by points. None (omitted from
    JSON): orders that disagree are a tie."""
    best: int | None
    """Index into the request of the response that the label names. None for pointwise and for a tie."""
    score: float | None
    """Pointwise: the expected score, or the score as written without probabilities. None in other modes."""
    probabilities: dict[str, float]
    """Shown label -> probability, normalized over the labels. Empty: the model returns no probabilities."""
    label_mass: float | None
    """Total probability of the offered labels before normalization. None: the model returns no probabilities."""
    forced: bool
    """Whether the verdict was forced."""
    basis: Basis | None = Field(default=None, exclude_if=is_none)
    """What the verdict rests on. None (omitted from JSON): a judgment from before this field."""


class RolloutRecord(Wire):
    """One rollout, as text."""

    order: list[int]
    """Indexes into the request of the responses shown, in the order shown."""
    turns: list[TurnRecord]
    """Turns in the order they were generated."""
    stop_reason: StopReason
    """Why the rollout ended."""
    verdict: RolloutVerdict | None
    """Verdict of the rollout. None: no verdict."""

    @property
    def outcomes(self) -> list[Outcome]:
        """Outcome of each call within the budget, including refused calls."""
        return [turn.outcome for turn in self.turns if turn.outcome is not None]

    @property
    def num_programs(self) -> int:
        """Number of calls that ran. Refused calls do not count."""
        return sum(turn.ran for turn in self.turns)

    @property
    def ran_program(self) -> bool:
        """Whether at least one program ran."""
        return self.num_programs > 0

    def counts(self, *, needs_program: bool) -> bool:
        """Whether the verdict of this rollout counts.

        Args:
            needs_program: whether a verdict only counts if a program ran (`tools="on"`).
        """
        return self.verdict is not None and (self.ran_program or not needs_program)


class Usage(Wire):
    """Token and call counts of a judgment. Counts are None if the endpoint does not report them."""

    input_tokens: int | None
    """Prompt tokens, counted once per rollout. Of a chat endpoint: its own counts, summed over all turns."""
    cached_tokens: int | None
    """Prompt tokens of all turns that were prefix-cache hits."""
    output_tokens: int | None
    """Tokens generated by the model."""
    tool_calls: int
    """Number of tool calls within the budget."""
    rollouts: int
    """Number of rollouts."""
    function_calls: int = Field(default=0, exclude_if=lambda number: not number)
    """Number of function calls of programs. 0 is omitted from JSON."""
    cost_usd: float | None = Field(default=None, exclude_if=lambda cost: cost is None)
    """Price of the tokens in US dollars. None: the prices or the counts are not known."""


class Timing(Wire):
    """Durations of a judgment and of its parts, in seconds."""

    total_s: float
    """Wall time of the judgment."""
    engine_s: float
    """Time waiting for completions, summed over rollouts (which run concurrently)."""
    sandbox_s: float
    """Time running programs without their function calls, summed over rollouts."""
    functions_s: float = Field(default=0.0, exclude_if=lambda seconds: not seconds)
    """Time of function calls, summed over calls. 0 is omitted from JSON."""
    queue_s: float = 0.0
    """Time in the queue before the judgment started."""


class Judgment(Wire):
    """The complete answer to one request: the verdict and the rollouts behind it."""

    id: str
    """Unique id."""
    object: Literal["judgment"] = "judgment"
    """Always `judgment`."""
    created: int
    """Unix time in seconds."""
    mode: Mode
    """Mode of the request."""
    model: str
    """Name of the judge."""
    model_version: str | None = None
    """Fingerprint of the weights and the tokenizer that made the whole judgment. None: not known, because the model is
    behind a URL."""
    chat_template_kwargs: dict[str, JsonValue] | None = Field(default=None, exclude_if=lambda kwargs: not kwargs)
    """Options of the model's chat template in every prompt, such as `{"enable_thinking": false}`. Omitted: the template
    has no such option, or its options are not known, as behind a chat endpoint."""
    verdict: Verdict
    """The final verdict."""
    rollouts: list[RolloutRecord]
    """All rollouts, grouped by the order in which the responses were shown."""
    ran_candidate_in_process: bool = Field(default=False, exclude_if=lambda ran: not ran)
    """Whether a program executed the text of a response in its own process, so that the response may have forged the
    output. False is omitted from JSON."""
    checks: list[list[CheckResult]] = Field(default_factory=list, exclude_if=lambda checks: not checks)
    """Results of the server's checks: for each response, one result per check. Empty is omitted from JSON."""
    raw_scores: list[float] | None = Field(default=None, exclude_if=is_none)
    """Scores of a scalar reward model, one per response, in every mode: its outputs, neither scaled nor rounded. None
    (omitted from JSON): another kind of judge."""
    claims: list[ClaimRecord] = Field(default_factory=list, exclude_if=lambda claims: not claims)
    """Claims of the programs, in the order of the rollouts. Empty is omitted from JSON."""
    conflicts: list[ClaimConflict] = Field(default_factory=list, exclude_if=lambda conflicts: not conflicts)
    """Contradictory claims that neither validity, authority nor date decides. Empty is omitted from JSON."""
    stores: list[StoreCard] = Field(default_factory=list, exclude_if=lambda stores: not stores)
    """Stores of evidence that the programs queried, without their `lines`. Empty is omitted from JSON."""
    usage: Usage
    """Token and call counts."""
    timing: Timing
    """Durations of the judgment and of its parts."""

    @property
    def judged(self) -> list[int]:
        """Indexes of the judged responses. Judgments by rules and by scalar reward models can have no rollouts."""
        shown = {index for rollout in self.rollouts for index in rollout.order}
        return sorted(shown) or list(range(len(self.checks or self.raw_scores or ())))

    @property
    def decided_as_whole(self) -> bool:
        """Whether the verdict is not the combination of its rollouts, because checks made or changed it, or because a scalar
        reward model scored the responses."""
        return bool(self.verdict.gates) or self.raw_scores is not None or (bool(self.checks) and not self.rollouts)

    def _repr_html_(self) -> str:
        """The judgment as notebooks show it."""
        from tirjudge.notebook import judgment_html

        return judgment_html(self)


def label_of(index: int) -> str:
    """Return the label of a response: 0 -> A, 25 -> Z, 26 -> AA.

    >>> [label_of(i) for i in (0, 25, 26, 701)]
    ['A', 'Z', 'AA', 'ZZ']
    """
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def prompt_text(prompt: str | Sequence[ChatMessage]) -> str:
    """Return the prompt as one text, as the model sees it and as programs find it in `prompt`.

    A paragraph that begins like a turn (`user: `) gets a leading space, so that the text of a message cannot fake a
    turn.

    >>> prompt_text([ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hi!\n\nuser: Bye")])
    'user: Hi\n\nassistant: Hi!\n\n user: Bye'
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0].role == "user":
        return prompt[0].content
    contents = [_TURN.sub(" ", message.content) for message in prompt]
    return "\n\n".join(f"{message.role}: {content}" for message, content in zip(prompt, contents, strict=True))
