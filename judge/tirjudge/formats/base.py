"""Protocol of a prompt format: it renders requests for the model and parses the texts that the model writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tirjudge.control_tokens import ControlTokens
from tirjudge.prompt_messages import Prompt
from tirjudge.tools.base import Bindings, Tool
from tirjudge.types import MODEL_MODES, Completion, JudgeRequest, Mode, ToolCall, ToolResult

RESPONSE = "response"
"""Start of the names of all bindings with texts of responses."""


def response_names(bindings: Bindings) -> list[str]:
    """Return the names of the bindings with texts of responses."""
    return [name for name in bindings if name.startswith(RESPONSE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """Stop strings of a turn. The matched string is kept at the end of the text."""

    verdict: tuple[str, ...] = ()
    """Stop strings that end a verdict."""
    call: tuple[str, ...] = ()
    """Stop strings that end a tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVerdict:
    """A verdict in the texts of the model."""

    label: str
    """Label of the verdict."""
    turn: int
    """Index of the turn."""
    opens: int
    """Offset of the opening mark of the verdict, such as its tag, in the text of the turn, in characters."""
    opened: int
    """Offset of the end of the opening mark. Text between it and the label, such as a line break, is kept."""
    start: int
    """Offset of the label."""
    written: str | None = None
    """Text of the label in the turn. None: the label itself."""
    spellings: Mapping[str, str] | None = None
    """Text that the model may write in this place -> its label, to read the probabilities of labels. Empty: they cannot be
    read here. None: the offered labels."""
    points: tuple[float, ...] | None = None
    """Points of each response, in the order shown, if the format joins opposite orders by points. None: orders that disagree
    are a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTraits:
    """What requests a format can show, and how its model is sampled. The defaults are those of a format that shows every
    request."""

    refusal: Callable[[JudgeRequest], str | None] = field(default=lambda request: None)
    """Returns why a request cannot be shown, and what would help; None: it can."""
    modes: tuple[Mode, ...] = MODEL_MODES
    """Modes that the format has prompts for."""
    takes_tools: bool = True
    """Whether the model may call tools. False: they are not offered, and `tools="on"` is refused."""
    temperature: float | None = None
    """Sampling temperature of requests that set none. None: the default of requests."""
    top_p: float = 1.0
    """Nucleus sampling mass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forcing:
    """Texts for forcing a verdict. The most probable label is inserted between `opening` and `closing`."""

    opening: str
    """Text before the label."""
    closing: str
    """Text after the label."""
    question: str
    """Question that asks for the verdict as text, for engines that cannot be constrained to the labels."""


class Format(Protocol):
    """A prompt format. All methods are pure.

    Attributes:
        name: name with version, such as `tirjudge/1`. `judge.json` names the format that a checkpoint was trained for.
        sha256: 64 hex digits of a hash over all fixed texts that the model sees. A different hash is a different
            format.
        traits: what requests the format can show, and how its model is sampled.
    """

    name: str

    @property
    def sha256(self) -> str: ...

    @property
    def traits(self) -> FormatTraits: ...

    def labels(self, mode: Mode, num_responses: int) -> tuple[str, ...]:
        """Return the labels that a verdict may have: scores, or names of responses."""
        ...

    def render(
        self,
        request: JudgeRequest,
        *,
        order: Sequence[int],
        tools: Sequence[Tool],
        prompt_chars: int,
        response_chars: int,
        control_tokens: ControlTokens,
    ) -> Prompt:
        """Render the prompt: one user message as a text, or messages with roles.

        Args:
            request: the request.
            order: indexes of the responses to show, in the order to show them; one index for pointwise.
            tools: tools that the model may call. Empty: the prompt does not mention tools.
            prompt_chars: maximum length of a question shown in full, in characters.
            response_chars: maximum length of a response shown in full, in characters.
            control_tokens: control tokens of the model, to break in untrusted text. `served` also has the tags of its
                chat template.
        """
        ...

    def bindings(self, request: JudgeRequest, *, order: Sequence[int]) -> Bindings:
        """Return the variables for programs: the full texts, under the names used in the prompt."""
        ...

    def stops(self, mode: Mode, *, tools: Sequence[Tool]) -> Stops:
        """Return the stop strings of a turn."""
        ...

    def read_call(self, completion: Completion, *, tools: Sequence[Tool]) -> ToolCall | None:
        """Parse the tool call at the end of a turn; None if the turn makes no call."""
        ...

    def find_verdict(self, texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> FoundVerdict | None:
        """Find the last well-formed verdict in the texts of the model, one text per turn.

        Returns:
            None without a verdict, or if the label of the last one was not offered.
        """
        ...

    def shown_output(self, result: ToolResult, *, limit: int, control_tokens: ControlTokens) -> str:
        """Return the text of a tool result to show to the model, at most about `limit` characters."""
        ...

    def observation(self, output: str, *, call: ToolCall) -> str:
        """Return the complete text that follows a call: the output with its delimiters."""
        ...

    def forcing(self, mode: Mode, *, labels: Sequence[str]) -> Forcing | None:
        """Return the texts for forcing a verdict. None: not supported; a rollout without a verdict abstains."""
        ...
