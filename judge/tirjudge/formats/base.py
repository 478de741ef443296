"""What the loop asks of a format: how a request is shown, and how what the model wrote is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from tirjudge.control_tokens import ControlTokens
from tirjudge.tools.base import Bindings, Tool
from tirjudge.types import Completion, JudgeRequest, Mode, ToolCall, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Stops:
    """The strings that end a turn. The one that matched is kept at the end of its text."""

    verdict: tuple[str, ...] = ()
    """After a verdict; nothing useful follows it."""
    call: tuple[str, ...] = ()
    """After a tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVerdict:
    """Where the model gave its verdict."""

    label: str
    turn: int
    """Index of the turn."""
    start: int
    """Where in the turn's text the label begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forcing:
    """The text around a verdict that is forced: the label that the model holds likeliest is put between the two."""

    opening: str
    closing: str
    question: str
    """Asks for the verdict in words; for models that cannot be held to the labels."""


class Format(Protocol):
    """One way to ask a model for a judgment, and to read its answer. All methods are pure.

    Attributes:
        name: with the version, such as `tirjudge/1`. `judge.json` names the one that a checkpoint was trained for.
        sha256: 64 hex digits over all that the model is shown; another hash is another format.
    """

    name: str

    @property
    def sha256(self) -> str: ...

    def labels(self, mode: Mode, num_responses: int) -> tuple[str, ...]:
        """What a verdict may say: a score, or the name of a response."""
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
    ) -> str:
        """The user message.

        Args:
            request: what is judged.
            order: indexes of the responses to show, in this order; one for pointwise.
            tools: that the model may call; none: the prompt says nothing of tools.
            prompt_chars: longest question shown whole.
            response_chars: longest response shown whole.
            control_tokens: of the model that reads it; broken wherever a text spells them.
        """
        ...

    def bindings(self, request: JudgeRequest, *, order: Sequence[int]) -> Bindings:
        """The variables that a program finds: the whole texts, under the names that the prompt gives them."""
        ...

    def stops(self, mode: Mode, *, tools: Sequence[Tool]) -> Stops:
        """What ends a turn."""
        ...

    def read_call(self, completion: Completion, *, tools: Sequence[Tool]) -> ToolCall | None:
        """The tool call that a turn ends with; None: it asks for none."""
        ...

    def find_verdict(self, texts: Sequence[str], *, mode: Mode, labels: Collection[str]) -> FoundVerdict | None:
        """The last well-formed verdict in the model's own texts, one text a turn.

        Returns:
            None if there is no verdict, or if the last one names what was not offered.
        """
        ...

    def shown_output(self, result: ToolResult, *, limit: int, control_tokens: ControlTokens) -> str:
        """What the model is shown of a tool's result, at most about `limit` characters."""
        ...

    def observation(self, output: str, *, call: ToolCall) -> str:
        """All the text that follows the call: the output between its delimiters."""
        ...

    def forcing(self, mode: Mode, *, labels: Sequence[str]) -> Forcing | None:
        """How a verdict is forced; None: it cannot be, and a rollout without one abstains."""
        ...
