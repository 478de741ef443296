"""Protocol of a tool, as the loop calls it, and of a kind of tool, as `open_judge` opens it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tirjudge.tools.functions import CallAccount
from tirjudge.types import CandidateCode, JudgeRequest, ToolResult

Bindings = Mapping[str, str | Mapping[str, str]]
"""Variables for a program: name -> text, or name -> (label -> text)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Data of the current rollout for a tool."""

    bindings: Bindings = field(default_factory=dict)
    """Full texts of the request, under the names that the format gives them."""
    watched: Sequence[str] = ()
    """Names of the bindings with texts of responses."""
    candidate_code: CandidateCode = "flag"
    """What happens when a program executes a text of `watched` in its own process."""
    account: CallAccount = field(default_factory=CallAccount)
    """Account of the judgment for function calls."""
    request: JudgeRequest | None = None
    """The request that is judged. None: programs run without a judgment."""
    responses: Mapping[str, str] = field(default_factory=dict)
    """Label of each shown response, or the empty text for a single one -> its text."""


class Tool(Protocol):
    """Runs the tool calls of a model.

    Attributes:
        name: name in a call, such as `python`.
        description: one sentence for the prompt: what the tool does and what to write into the call.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def run(self, source: str, *, context: ToolContext) -> ToolResult:
        """Run one call. A failure of the call is reported in the result.

        Args:
            source: text that the model wrote, such as a program.
            context: data of the rollout.

        Raises:
            SandboxUnavailable: the tool does not work. The call is not the cause.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Options of `open_judge` for opening tools."""

    slots: int | None = None
    """Maximum number of concurrent programs. None: the number of CPU cores."""
    allow_unsafe_sandbox: bool = False
    """Whether to run programs even if this machine offers no isolation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKind:
    """A kind of tool, the object that an entry point of the group `tirjudge.tools` names."""

    name: str
    """Name in a call, such as `python`."""
    open: Callable[[ToolOptions], AbstractAsyncContextManager[Tool]]
    """Return a context manager that opens the tool and closes it on exit. It raises SandboxUnavailable if the tool does
    not work on this machine."""
