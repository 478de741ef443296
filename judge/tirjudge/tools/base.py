"""What the loop asks of a tool, and what `open_judge` asks of a kind of tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tirjudge.types import ToolResult

Bindings = Mapping[str, str | Mapping[str, str]]
"""Variables that a program finds: name -> text, or name -> (label -> text)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of the rollout that calls it."""

    bindings: Bindings = field(default_factory=dict)
    """The texts that are judged, whole, as the format names them."""


class Tool(Protocol):
    """Runs what the model wrote in a call.

    Attributes:
        name: by which formats call it, such as `python`.
        description: one sentence for the prompt: what it does and what to write into the call.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def run(self, source: str, *, context: ToolContext) -> ToolResult:
        """One call. A call that goes wrong is a result that says so.

        Args:
            source: what the model wrote, such as a program.
            context: of the rollout.

        Raises:
            SandboxUnavailable: the tool does not work, for a reason that is not the call's.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What `open_judge` says about the machine that tools run on."""

    slots: int | None = None
    """Programs side by side; None: one a core."""
    allow_unsafe_sandbox: bool = False
    """Run programs even where nothing isolates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKind:
    """A kind of tool: what an entry point of the group `tirjudge.tools` names."""

    name: str
    open: Callable[[ToolOptions], AbstractAsyncContextManager[Tool]]
    """Opens one, and closes it afterwards. Raises SandboxUnavailable if it cannot work here."""
