"""Rollouts of one prompt arrive one by one, are compared once all are there, and each gets its own result.

A group belongs to one caller: another caller with the same key fills a group of its own. The number of open groups of one
caller, their characters and their waiting time are bounded. The results of the latest finished groups are kept, so that a
client who asks again for a rollout gets the same result. A group lives in one process: send all its rollouts to one server.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tirjudge.errors import DeadlineExceeded
from tirjudge.http.protocol import invalid
from tirjudge_web.errors import QueueFull, Refused

MAX_OPEN = 1024
"""Most groups of one caller that are not complete."""

MAX_OPEN_CHARS = 64 * 1024 * 1024
"""Most characters that these hold, of one caller."""

MAX_KEPT = 4096
"""Most groups of which the results are kept, of all callers."""

GroupKey = tuple[str | None, str]
"""The caller, and its name for the group."""

Value = TypeVar("Value")
Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True, eq=False)
class _Group(Generic[Value, Result]):
    members: dict[str, bytes] = field(default_factory=dict)
    """Name -> digest of what it brought, in the order of arrival."""
    values: list[Value] = field(default_factory=list)
    """In the same order; none once they are compared."""
    num_chars: int = 0
    """Of the values."""
    results: asyncio.Future[list[Result]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """In the same order."""
    comparing: asyncio.Task[None] | None = None
    """None while it is not complete."""

    def fail(self, error: Exception) -> None:
        if not self.results.done():
            self.results.set_exception(error)
            # Every caller may have disconnected: mark the exception as retrieved.
            self.results.exception()


class Gathering(Generic[Value, Result]):
    """Groups that fill up.

    Args:
        size: members of a group.
        wait_s: how long a group may take to be complete.
        max_open: most groups of one caller that are not complete.
        max_open_chars: most characters that these hold.
        max_kept: most finished groups that are remembered.
    """

    def __init__(
        self,
        *,
        size: int,
        wait_s: float,
        max_open: int = MAX_OPEN,
        max_open_chars: int = MAX_OPEN_CHARS,
        max_kept: int = MAX_KEPT,
    ) -> None:
        self.size = size
        self.wait_s = wait_s
        self._max_open = max_open
        self._max_open_chars = max_open_chars
        self._max_kept = max_kept
        self._open: dict[GroupKey, _Group[Value, Result]] = {}
        self._finished: OrderedDict[GroupKey, _Group[Value, Result]] = OrderedDict()

    @property
    def num_open(self) -> int:
        return len(self._open)

    async def result(
        self,
        key: GroupKey,
        value: Value,
        *,
        name: str,
        compare: Callable[[list[Value]], Coroutine[Any, Any, list[Result]]],
    ) -> Result:
        """The result of one member, once all of its group are there.

        Args:
            key: of the group.
            value: what the member brings; equal ones have the same `repr`.
            name: of the member, unique in its group.
            compare: called once a group, with the values in the order of arrival.

        Raises:
            QueueFull: too many groups of this caller are open, or they hold too much.
            DeadlineExceeded: the others did not come in time.
            Refused: 409, another value under this name.
        """
        shown = repr(value).encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(shown).digest()
        finished = self._finished.get(key)
        if finished is not None and finished.members.get(name) == digest:
            group = finished
        else:
            group = self._group(key, num_chars=len(shown))
            self._join(group, value, name=name, digest=digest, num_chars=len(shown))
            if len(group.members) == self.size and group.comparing is None:
                del self._open[key]
                self._keep(key, group)
                group.comparing = asyncio.create_task(self._compare(group, compare=compare))
        results = await asyncio.shield(group.results)
        return results[list(group.members).index(name)]

    def _join(self, group: _Group[Value, Result], value: Value, *, name: str, digest: bytes, num_chars: int) -> None:
        if name not in group.members:
            group.members[name] = digest
            group.values.append(value)
            group.num_chars += num_chars
        elif group.members[name] != digest:
            message = f"response: another one given for {name!r}, which is in this group already"
            raise Refused(invalid(message, param="response", code="conflict"), status=409)

    def _group(self, key: GroupKey, *, num_chars: int) -> _Group[Value, Result]:
        """The open group of a key, begun if there is none, with room for `num_chars` more characters."""
        own = [group for (caller, _), group in self._open.items() if caller == key[0]]
        group, held = self._open.get(key), sum(group.num_chars for group in own)
        if held + num_chars > self._max_open_chars:
            message = (
                f"{len(own)} groups are open already and hold {held:,} characters, at most {self._max_open_chars:,}"
            )
            raise QueueFull(message, retry_after_s=1.0)
        if group is not None:
            return group
        if len(own) >= self._max_open:
            raise QueueFull(f"{len(own)} groups are open already", retry_after_s=1.0)
        group = _Group()
        self._open[key] = group
        asyncio.get_running_loop().call_later(self.wait_s, self._expire, key, group)
        return group

    def _expire(self, key: GroupKey, group: _Group[Value, Result]) -> None:
        if self._open.get(key) is group:
            del self._open[key]
            came = len(group.members)
            group.fail(DeadlineExceeded(f"{came} of {self.size} rollouts of this prompt came in {self.wait_s:g} s"))

    def _keep(self, key: GroupKey, group: _Group[Value, Result]) -> None:
        self._finished[key] = group
        self._finished.move_to_end(key)
        while len(self._finished) > self._max_kept:
            self._finished.popitem(last=False)

    async def _compare(
        self,
        group: _Group[Value, Result],
        *,
        compare: Callable[[list[Value]], Coroutine[Any, Any, list[Result]]],
    ) -> None:
        values, group.values = group.values, []
        try:
            results = await compare(values)
        except Exception as error:
            group.fail(error)
        else:
            group.results.set_result(results)
