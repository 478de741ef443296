"""The data of one judgment, from request to verdict.

Two families live here. What crosses a wire (`JudgeRequest`, `Judgment` and their parts) is pydantic, frozen, and refuses
unknown fields; there is one definition of each, shared by server, client and files. What stays inside (`Completion`,
`ExecResult`, `Turn`, `Rollout`) is a frozen dataclass over token ids.

A rollout on token ids, with its loss mask (1: sampled by the policy, carries loss; 0: put there by us):

    prompt_ids              <|im_start|>user ... <|im_end|> <|im_start|>assistant
    turn 0   completion     We count words. ```python ... ``` ```output        1 1 1 1 1
             observation    \\nA 1/2\\nB 2/2\\n```\\n                          0 0 0 0 0
    turn 1   completion     B follows more. <preference> B </preference>       1 1 1 1 1
"""

from __future__ import annotations

import re
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
"""The most responses one request may carry; listwise judges them in groups."""

PYTHON = "python"
"""Name of the tool that runs programs."""

MAX_CRITERIA = 64
"""The most criteria one request may carry."""


class Mode(StrEnum):
    """What is asked of the judge: a score for each response, a preference between two, or the best of many."""

    POINTWISE = "pointwise"
    PAIRWISE = "pairwise"
    LISTWISE = "listwise"


class StopReason(StrEnum):
    """Why a rollout ended."""

    VERDICT = "verdict"
    """The model wrote a well-formed verdict."""
    MALFORMED = "malformed_verdict"
    """The model closed a verdict tag around something that was not offered."""
    NO_VERDICT = "no_verdict"
    """The model ended its turn with neither a program nor a verdict."""
    TOOL_BUDGET = "tool_budget"
    """The model asked for one program more than it was allowed; that program was not run."""
    LENGTH = "length"
    """The token budget of the rollout, or the context of the model, was used up."""
    DEADLINE = "deadline"
    """The time of the judgment was nearly up; a turn that was being written is lost."""

    @property
    def is_verdict(self) -> bool:
        return self is StopReason.VERDICT


class Outcome(StrEnum):
    """How a program ended. A sandbox that does not work is no outcome: it raises `tirjudge.errors.SandboxUnavailable`."""

    OK = "ok"
    ERROR = "error"
    """A Python exception, or a non-zero exit."""
    TIMEOUT = "timeout"
    OOM = "oom"
    CRASH = "crash"
    """Killed by a signal that no limit of ours sent."""
    OUTPUT_LIMIT = "output_limit"
    REFUSED = "refused"
    """Never started: too large, or there was no program to run."""
    SANDBOX_ERROR = "sandbox_error"
    """On the wire of the sandbox service alone: no program's fault. Its client raises `SandboxUnavailable`."""

    @property
    def is_ok(self) -> bool:
        return self is Outcome.OK


# Inside: token ids, and what belongs to them.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one turn is sampled. Every field is sent explicitly, so that no server-side default changes a judgment."""

    max_tokens: int
    """Most tokens to generate."""
    temperature: float = 0.0
    """0 is greedy."""
    top_p: float = 1.0
    """Nucleus mass; 1 keeps everything."""
    seed: int | None = None
    """Seed of this turn; None leaves it to the engine."""
    stop: tuple[str, ...] = ()
    """Strings that end the turn. The matched one is kept at the end of the text."""
    allowed_token_ids: tuple[int, ...] | None = None
    """When given, only these ids can be sampled; None allows the whole vocabulary."""
    logprob_token_ids: tuple[int, ...] = ()
    """Ids whose log-probability at the first generated position is wanted, before any constraint is applied."""
    logprobs: bool = True
    """Whether the log-probability of each sampled id is wanted: training learns from them, a verdict needs none, and
    engines are faster without."""
    turn: int = 0
    """Which turn of its rollout it is; an engine with a queue lets rollouts that have begun go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The tokens of one request, as the endpoint counts them that has its own ids to itself."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAlternatives:
    """A token of a completion, and what the model might have written there."""

    start: int
    """Where in the text it begins."""
    text: str
    logprobs: dict[str, float]
    """Text of a token -> log-probability: the likeliest ones, and the one that stands here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine generated in one turn. `decode(token_ids) == text` up to hidden tokens, such as the end of a turn."""

    text: str
    """Generated text, ending with the matched stop string if there is one."""
    token_ids: tuple[int, ...]
    """Generated ids, the end-of-turn token included if the model wrote one."""
    logprobs: tuple[float, ...]
    """Log-probability of each id under the model at temperature 1, natural logarithm; 0.0 where `num_appended` covers it.
    Empty if they were not asked for, or the engine cannot know them."""
    finish_reason: Literal["stop", "length", "repetition"]
    """`stop`: a stop string or the end-of-turn token. `length`: max_tokens. `repetition`: the engine detected a loop."""
    stop: str | None = None
    """The stop string that matched; None when the end-of-turn token or a limit ended the turn."""
    num_appended: int = 0
    """How many ids at the end were re-encoded by us because the last sampled token spilled past the stop string."""
    token_logprobs: dict[int, float] = field(default_factory=dict)
    """The answer to `Sampling.logprob_token_ids`: id -> log-probability at the first position."""
    num_cached: int = 0
    """How many of the prompt's tokens the engine did not have to compute again."""
    places: tuple[TokenAlternatives, ...] = ()
    """The alternatives to each token, from an engine that is asked for its verdict in words; empty if there are none."""
    counted: TokenUsage | None = None
    """What it cost; None: an id is a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """What a turn asks to be run."""

    tool: str
    """Name of the tool, such as `python`."""
    source: str | None
    """What the model wrote for it, such as a program; None: it asked for a run and wrote nothing that can be run."""
    problem: str | None = None
    """What the model is told where there is no source."""
    opening: str = ""
    """What the format puts before the output because the model did not write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How one call of a tool went."""

    outcome: Outcome
    stdout: str = ""
    """What the tool gives back; of a program what it printed, cut to the output limit."""
    error: str | None = None
    """The last line of the error, at most 500 characters; None when the call ended well."""
    wall_s: float = 0.0
    """From the start of the call to its end."""
    queue_s: float = 0.0
    """Time spent waiting for a free slot, not part of `wall_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult(ToolResult):
    """How one program went. The outcome comes from the operating system, never from the program's own output."""

    truncated: bool = False
    """Whether stdout was cut."""
    exit_code: int | None = None
    """None when a signal or a limit ended the program."""
    signal: int | None = None
    """The signal that ended the program; None when it exited by itself."""
    cpu_s: float = 0.0
    max_rss_kb: int = 0
    level: str = ""
    """The isolation the program really ran under, such as `namespaces`; `unsafe` when there was none."""
    preset: str = ""
    """What was warm in the interpreter that it ran in, such as `sympy`; it never decides what can be imported."""
    stderr: str = ""
    """The end of what went to the standard error, at most 16 KiB."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Path -> content of the files that were asked for and that there were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One completion, and the tool call that it asked for."""

    completion: Completion
    call: ToolCall | None = None
    """What the turn asks for; None when it asks for nothing. `result` says whether it was allowed."""
    result: ToolResult | None = None
    """How the call went; None when there is none, or when it was not allowed."""
    output: str | None = None
    """What the model was shown of that; None exactly when `result` is."""
    observation_ids: tuple[int, ...] = ()
    """The output between its delimiters, encoded once; follows the completion."""
    engine_s: float = 0.0
    """How long the engine took for the completion, its own queue included."""

    @property
    def code(self) -> str | None:
        """The source that was run, or could not be; None when nothing was allowed to run."""
        return None if self.call is None or self.result is None else self.call.source

    @property
    def record(self) -> TurnRecord:
        """What goes on record."""
        return TurnRecord(
            text=self.completion.text,
            code=self.code,
            output=self.output,
            outcome=None if self.result is None else self.result.outcome,
            tool=None if self.call is None or self.result is None or self.call.tool == PYTHON else self.call.tool,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One pass of the loop over one prompt, as the engine saw it."""

    prompt_ids: tuple[int, ...]
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    model: str
    """Name and version of what generated it."""
    forced_ids: tuple[int, ...] = ()
    """Verdict tag and label that we forced onto the end; empty when the model gave its own verdict."""
    label: str | None = None
    """The label of the verdict, as shown to the model; None when there is no verdict."""
    label_logprobs: dict[str, float] = field(default_factory=dict)
    """Label -> log-probability at the verdict position, over the full vocabulary; empty when there is no verdict, or when
    the engine does not tell."""
    asked: Completion | None = None
    """The answer of a model that was asked for its verdict in words; None: it was not."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Everything after the prompt."""
        parts = [i for turn in self.turns for i in (*turn.completion.token_ids, *turn.observation_ids)]
        return (*parts, *self.forced_ids)

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """1 for each id the policy sampled, 0 for each id that we put there; as long as `token_ids`."""
        mask: list[int] = []
        for turn in self.turns:
            num_ours = turn.completion.num_appended + len(turn.observation_ids)
            mask += [1] * (len(turn.completion.token_ids) - turn.completion.num_appended) + [0] * num_ours
        return (*mask, *(0 for _ in self.forced_ids))

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Log-probability of each sampled id, 0.0 for ours; as long as `token_ids` if the turns were sampled with them."""
        parts = [p for t in self.turns for p in (*t.completion.logprobs, *(0.0 for _ in t.observation_ids))]
        return (*parts, *(0.0 for _ in self.forced_ids))

    @property
    def completions(self) -> tuple[Completion, ...]:
        """All that was generated."""
        turns = tuple(turn.completion for turn in self.turns)
        return turns if self.asked is None else (*turns, self.asked)

    @property
    def num_calls(self) -> int:
        """How often the model asked for a run, within its budget."""
        return sum(turn.result is not None for turn in self.turns)

    @property
    def num_programs(self) -> int:
        """How many programs really ran."""
        return sum(turn.result is not None and turn.result.outcome is not Outcome.REFUSED for turn in self.turns)

    @property
    def num_failed_calls(self) -> int:
        """How many of the calls did not end well, the refused ones included."""
        return sum(turn.result is not None and not turn.result.outcome.is_ok for turn in self.turns)

    @property
    def forced(self) -> bool:
        return bool(self.forced_ids)


# On the wire.

_SURROGATE = re.compile("[\ud800-\udfff]")


def encodable(value: Any) -> Any:
    """JSON can spell half a surrogate pair; no tokenizer and no file takes one. It becomes U+FFFD, its neighbours stay."""
    if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


Text = Annotated[str, BeforeValidator(encodable)]
"""A string that can always be encoded as UTF-8."""


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 5.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[StrictInt, BeforeValidator(_whole)]
"""A whole number, and neither a text nor a boolean that could be taken for one."""


MAX_NUMBER = 1e100
"""The largest number that a caller may give where it is computed with: sums and products of many stay finite."""

Number = Annotated[StrictFloat | StrictInt, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
"""A score, a reward, or an end of their scale."""


_CONTAINERS = ("list", "tuple", "set", "frozenset", "dict")
_NO_SCHEMAS = ("metadata", "default", "config", "serialization")


def _failing_fast(schema: Any) -> Any:
    """A schema of pydantic's whose containers stop at their first wrong element."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_failing_fast, schema))
    if not isinstance(schema, dict):
        return schema
    changed = {name: part if name in _NO_SCHEMAS else _failing_fast(part) for name, part in schema.items()}
    return changed | {"fail_fast": True} if schema.get("type") in _CONTAINERS else changed


class Received(BaseModel):
    """Base of what strangers send: a list or a dict is refused at its first wrong element.

    Otherwise each of a million wrong elements becomes an error of its own, which takes kilobytes and microseconds.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _failing_fast(handler(source))


class Wire(Received):
    """Base of everything that crosses a wire: frozen, and a field it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_TURN = re.compile(r"(?<=\n\n)(?=(?:system|user|assistant|tool): )")
"""Where a paragraph begins as a turn does in `prompt_text`."""


class ChatMessage(Wire):
    role: Literal["system", "user", "assistant", "tool"]
    content: Text


class Criterion(Wire):
    """One thing that the responses are judged by."""

    text: Text = Field(min_length=1)
    name: Text | None = None
    weight: Annotated[StrictFloat, Field(gt=0.0, le=MAX_NUMBER, allow_inf_nan=False)] = 1.0
    """How much it counts beside the others."""


_FIT: list[JsonValue] = [
    {
        "anyOf": [
            {"properties": {"mode": {"const": "pointwise"}}},
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
"""Which fields of a request fit one another, for whoever reads its schema."""


class JudgeRequest(Wire):
    """One question to the judge. The same object over HTTP, in files, and in the library."""

    model_config = ConfigDict(json_schema_extra={"allOf": _FIT})

    mode: Mode
    prompt: Text | Annotated[list[ChatMessage], Field(min_length=1)]
    """What the responses answer: text, or a conversation."""
    responses: list[Text] = Field(min_length=1, max_length=MAX_RESPONSES)
    """The candidates: exactly 2 for pairwise, at least 2 for listwise, 1 or more (each judged alone) for pointwise."""
    model: Text | None = None
    """The judge to use; None is the server's default."""
    reference: Text | None = None
    """An answer known to be good, shown to the judge and found by programs in `reference`; None: there is none."""
    criteria: list[Criterion] | None = Field(default=None, min_length=1, max_length=MAX_CRITERIA)
    """What to judge by, with weights; None leaves it to the judge."""
    rubric: Text | None = None
    """How to judge, in words: what earns which score, or what makes a response better; None leaves it to the judge."""
    tools: Literal["auto", "on", "off"] = "auto"
    """`auto`: the model may run Python. `on`: it may, and a verdict that no program stands behind is not counted. `off`:
    the prompt without tools, and no sandbox."""
    orders: Literal["single", "both"] = "single"
    """`single`: one order, drawn from the content of the request. `both`: two opposite orders; if they disagree, a tie."""
    votes: Integer = Field(default=1, ge=1, le=64)
    """Rollouts per order; the majority wins, and votes that cannot change the outcome any more are not cast."""
    max_tool_calls: Integer = Field(default=3, ge=0, le=16)
    """Programs per rollout; 0 is the same as `tools="off"`."""
    force_verdict: StrictBool = True
    """Whether a rollout without a verdict is made to give one (marked `forced`), or abstains."""
    temperature: StrictFloat | None = Field(default=None, ge=0.0, le=2.0)
    """None is greedy for one vote and 1.0 for several."""
    seed: Integer = Field(default=0, ge=0, lt=2**63)
    deadline_s: Annotated[StrictFloat, Field(gt=0.0, allow_inf_nan=False)] | None = None
    """Seconds for the whole judgment: when they are nearly up, verdicts are forced from what there is. None: no limit."""
    stream: StrictBool = False
    """Over HTTP: send each turn as it ends (server-sent events)."""

    @model_validator(mode="after")
    def _fields_fit_one_another(self) -> JudgeRequest:
        given = len(self.responses)
        if self.mode is Mode.PAIRWISE and given != 2:
            raise ValueError(f"responses: pairwise compares exactly 2 responses, {given} given")
        if self.mode is Mode.LISTWISE and given < 2:
            raise ValueError(f"responses: listwise compares at least 2 responses, {given} given")
        if self.tools == "on" and self.max_tool_calls == 0:
            raise ValueError('max_tool_calls: 0 given with tools "on", which wants a program behind the verdict')
        return self

    @property
    def offers_tools(self) -> bool:
        """Whether the judge may run programs."""
        return self.tools != "off" and self.max_tool_calls > 0


class Verdict(Wire):
    """What was decided. Everything here speaks of the responses in the order in which they were sent."""

    status: Literal["decided", "tie", "abstained"]
    best: int | None
    """Index of the best response; None for a tie, an abstention, and pointwise with one response."""
    label: str | None
    """Letter of the best response; for pointwise with one response its score as the judge wrote it."""
    scores: list[float | None] | None
    """Pointwise: the expected score of each response, 1 to 10, or the score as written where the model's probabilities
    cannot be had (None: no verdict on that one). None in other modes."""
    probabilities: list[float] | None
    """One a response. Pairwise and listwise: P(it is the best), summing to 1. Pointwise: P(its score is 6 or more). None:
    an abstention, or a model that does not tell."""
    confidence: float | None
    """P(top label) x label_mass; None where there are no probabilities."""
    label_mass: float | None
    """How much of the model's probability lay on the offered labels at the verdict position, the mean over rollouts; None
    where that cannot be had."""
    forced: bool
    """Whether any counted rollout had to be forced to its verdict."""
    reason: str | None = None
    """Why there is a tie or an abstention."""


class TurnRecord(Wire):
    text: str
    """What the model wrote, the program included."""
    code: str | None
    output: str | None
    """What the model was shown of the program's output; None when nothing was run."""
    outcome: Outcome | None
    tool: str | None = Field(default=None, exclude_if=lambda tool: tool is None)
    """Name of the tool; None, and left out: Python, or nothing was run."""

    @property
    def was_called(self) -> bool:
        """Whether the turn asked for a run within the budget."""
        return self.outcome is not None

    @property
    def ran(self) -> bool:
        """Whether a program really ran; a refused one did not."""
        return self.outcome not in (None, Outcome.REFUSED)


class RolloutVerdict(Wire):
    label: str
    """The label as the model saw it."""
    best: int | None
    """The response that it names, as an index into the request; None for pointwise."""
    score: float | None
    """Pointwise: the expected score, or the score as written where there are no probabilities. None in other modes."""
    probabilities: dict[str, float]
    """Shown label -> probability, given that one of the labels is chosen; empty where the model does not tell."""
    label_mass: float | None
    """None where the model does not tell."""
    forced: bool


class RolloutRecord(Wire):
    order: list[int]
    """Which responses were shown, in the order shown, as indexes into the request."""
    turns: list[TurnRecord]
    stop_reason: StopReason
    verdict: RolloutVerdict | None

    @property
    def outcomes(self) -> list[Outcome]:
        """Of the calls within the budget, the refused ones included."""
        return [turn.outcome for turn in self.turns if turn.outcome is not None]

    @property
    def num_programs(self) -> int:
        """How many programs really ran."""
        return sum(turn.ran for turn in self.turns)

    @property
    def ran_program(self) -> bool:
        return self.num_programs > 0

    def counts(self, *, needs_program: bool) -> bool:
        """Whether its verdict counts.

        Args:
            needs_program: whether one only counts if a program ran (`tools="on"`).
        """
        return self.verdict is not None and (self.ran_program or not needs_program)


class Usage(Wire):
    input_tokens: int
    """Prompt tokens of every rollout, each counted once; those of every turn where an endpoint counts them itself, and 0
    where it does not say."""
    cached_tokens: int
    """How many prompt tokens of all turns the engine had in its cache."""
    output_tokens: int
    """Tokens that the model generated."""
    tool_calls: int
    rollouts: int


class Timing(Wire):
    total_s: float
    engine_s: float
    """Waiting for completions, summed over rollouts (which run side by side)."""
    sandbox_s: float
    """Running programs, summed over rollouts."""
    queue_s: float = 0.0
    """Waiting for a place before the judgment began."""


class Judgment(Wire):
    """The whole answer: the verdict, and what it rests on."""

    id: str
    object: Literal["judgment"] = "judgment"
    created: int
    """Unix time, seconds."""
    mode: Mode
    model: str
    model_version: str | None = None
    """Fingerprint of the weights and the tokenizer that made all of it; None: they are out of sight, behind a URL."""
    verdict: Verdict
    rollouts: list[RolloutRecord]
    usage: Usage
    timing: Timing


def label_of(index: int) -> str:
    """0 -> A, 25 -> Z, 26 -> AA: the name of a response.

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
    """The prompt as one text: what the model is shown and what programs find in `prompt`.

    Paragraphs of a message that begin as a turn does get a space before them, so that an earlier answer cannot make up turns.

    >>> prompt_text([ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hi!\n\nuser: Bye")])
    'user: Hi\n\nassistant: Hi!\n\n user: Bye'
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1 and prompt[0].role == "user":
        return prompt[0].content
    contents = [_TURN.sub(" ", message.content) for message in prompt]
    return "\n\n".join(f"{message.role}: {content}" for message, content in zip(prompt, contents, strict=True))
