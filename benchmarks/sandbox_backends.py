"""The sandboxes that the measurements use: a pool at one isolation level, or a sandbox service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from sandbox_host import adopt_orphans
from server_process import ServerDidNotStart

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool

CONSOLE = Console(stderr=True)
"""Console for progress. The report is written to standard output."""


class Backend(Protocol):
    """Runs programs: a `SandboxPool`, or a client of a service."""

    async def run(self, code: str, *, bindings: Mapping[str, Any] = ...) -> ExecResult: ...


@contextlib.asynccontextmanager
async def opened(
    name: str, *, slots: int, limits: Limits, options: Mapping[str, Any] | None = None
) -> AsyncIterator[Backend]:
    """Open a backend.

    Args:
        name: a level of the pool, or the URL of a service.
        slots: programs that the pool runs concurrently.
        limits: default limits of a program.
        options: other arguments of `SandboxPool`.

    Raises:
        SandboxUnavailable: the level does not work on this machine, or the service does not answer.
    """
    if name.startswith("http"):
        from tirjudge_sandbox.remote import RemoteSandbox

        async with RemoteSandbox(name) as remote:
            yield remote
        return
    unsafe = name == IsolationLevel.UNSAFE
    floor = {} if unsafe else {"min_level": IsolationLevel(name)}
    async with SandboxPool(
        slots=slots, limits=limits, level=name, allow_unsafe=unsafe, **floor, **(options or {})
    ) as pool:
        yield pool


def isolating_levels() -> list[str]:
    """Return the levels that isolate and do not need an image. Some of them may not work on this machine."""
    return [str(level) for level in IsolationLevel if level.isolates and not level.needs_image]


def at_each(
    levels: Sequence[str] | None,
    measure: Callable[[str], Coroutine[Any, Any, dict[str, Any]]],
    *,
    best_alone: bool = False,
) -> dict[str, dict[str, Any]]:
    """Measure each level, and return level -> result. The result of a level that does not work is {"skipped": reason}.

    Args:
        levels: the levels to measure. None: all isolating levels that do not need an image.
        measure: measures one level.
        best_alone: whether to stop after the first level that works. Applies only if `levels` is None.
    """
    adopt_orphans()
    found: dict[str, dict[str, Any]] = {}
    for name in levels or isolating_levels():
        try:
            found[name] = asyncio.run(measure(name))
        except (SandboxUnavailable, ServerDidNotStart) as error:
            found[name] = {"skipped": " ".join(str(error).split())}
        else:
            if best_alone and not levels:
                break
    return found
