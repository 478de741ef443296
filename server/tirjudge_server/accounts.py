"""Limits the function calls of programs per caller and minute, over all judgments of the caller."""

from __future__ import annotations

import math

from tirjudge.tools.functions import Budget, CallAccount

WINDOW_S = 60.0
"""Seconds after which a call no longer counts."""

MAX_ACCOUNTS = 10_000
"""Maximum number of accounts. Beyond it, the account that was not used for the longest time is forgotten."""


class CallerAccounts:
    """The accounts of all callers.

    Args:
        calls_per_minute: maximum number of calls of one caller per minute. None: no limit.
    """

    def __init__(self, *, calls_per_minute: int | None) -> None:
        self._calls_per_minute = calls_per_minute
        self._by_caller: dict[str | None, CallAccount] = {}

    def of(self, caller: str | None) -> CallAccount | None:
        """Return the account of a caller; None: no limit. Callers without a key share one account."""
        if self._calls_per_minute is None:
            return None
        account = self._by_caller.pop(caller, None) or self._opened(self._calls_per_minute)
        self._by_caller[caller] = account  # at the end: the last one that was used
        if len(self._by_caller) > MAX_ACCOUNTS:
            del self._by_caller[next(iter(self._by_caller))]
        return account

    def _opened(self, calls: int) -> CallAccount:
        budget = Budget(calls=calls, bytes_in=_UNLIMITED, bytes_out=_UNLIMITED, seconds=math.inf)
        return CallAccount(budget, whose="this caller per minute", window_s=WINDOW_S)


_UNLIMITED = 1 << 62
