"""Collects rollouts of one prompt that arrive one by one, and compares them when the group is complete.

A group belongs to one caller: two callers with the same key have separate groups. The number of open groups per caller,
their characters and their waiting time are bounded. The results of the most recent finished groups are kept, so that a
client that retries a rollout gets the same result. A group exists in one process: send all its rollouts to one server.
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
"""Maximum number of incomplete groups per caller."""

MAX_OPEN_CHARS = 64 * 1024 * 1024
"""Maximum characters in the incomplete groups of one caller."""

MAX_KEPT = 4096
"""Maximum number of finished groups whose results are kept, for all callers together."""

GroupKey = tuple[str | None, str]
"""The caller (None: no API key) and the name of the group."""

Value = TypeVar("Value")
Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True, eq=False)
class _Group(Generic[Value, Result]):
    members: dict[str, bytes] = field(default_factory=dict)
    """Name of the member -> digest of its value, in order of arrival."""
    values: list[Value] = field(default_factory=list)
    """Values of the members, in the same order; empty once the comparison has started."""
    num_chars: int = 0
    """Characters of all values."""
    results: asyncio.Future[list[Result]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Results of the members, in the same order."""
    comparing: asyncio.Task[None] | None = None
    """The comparison; None: the group is incomplete."""

    def fail(self, error: Exception) -> None:
        """Raise the error for all members, unless they have results already."""
        if not self.results.done():
            self.results.set_exception(error)
            # All callers may have disconnected: mark the exception as retrieved.
            self.results.exception()


class Gathering(Generic[Value, Result]):
    """All groups of one server.

    Args:
        size: number of members of a group.
        wait_s: maximum seconds until a group is complete.
        max_open: maximum number of incomplete groups per caller.
        max_open_chars: maximum characters in the incomplete groups of one caller.
        max_kept: maximum number of finished groups whose results are kept.
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
        """Number of incomplete groups of all callers."""
        return len(self._open)

    async def result(
        self,
        key: GroupKey,
        value: Value,
        *,
        name: str,
        compare: Callable[[list[Value]], Coroutine[Any, Any, list[Result]]],
    ) -> Result:
        """Add a member to its group, wait until the group is complete, and return the member's result.

        Args:
            key: key of the group.
            value: value of the member. Equal values must have equal `repr`s.
            name: name of the member, unique in its group.
            compare: computes all results of a group from its values, in order of arrival; called once per group.

        Raises:
            QueueFull: this caller has too many incomplete groups, or they have too many characters.
            DeadlineExceeded: the group was not complete in time.
            Refused: 409, the group already has a member with this name and a different value.
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
            message = f"response: {name!r} is already in this group with a different response; use a new name"
            raise Refused(invalid(message, param="response", code="conflict"), status=409)

    def _group(self, key: GroupKey, *, num_chars: int) -> _Group[Value, Result]:
        """Return the incomplete group of a key; create it if needed.

        Raises:
            QueueFull: as for `result`.
        """
        own = [group for (caller, _), group in self._open.items() if caller == key[0]]
        group, held = self._open.get(key), sum(group.num_chars for group in own)
        if held + num_chars > self._max_open_chars:
            message = (
                f"{len(own)} incomplete groups have {held:,} characters; {num_chars:,} more exceed the limit of "
                f"{self._max_open_chars:,}"
            )
            raise QueueFull(message, retry_after_s=1.0)
        if group is not None:
            return group
        if len(own) >= self._max_open:
            raise QueueFull(f"{len(own)} groups are incomplete, which is the limit", retry_after_s=1.0)
        group = _Group()
        self._open[key] = group
        asyncio.get_running_loop().call_later(self.wait_s, self._expire, key, group)
        return group

    def _expire(self, key: GroupKey, group: _Group[Value, Result]) -> None:
        if self._open.get(key) is group:
            del self._open[key]
            num = len(group.members)
            message = f"{num} of {self.size} rollouts of this prompt arrived within {self.wait_s:g} s"
            group.fail(DeadlineExceeded(message))

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
