"""Requests and tokens a minute of one key, in one server process. The queue limits its judgments side by side."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from tirjudge.http.protocol import Problem
from tirjudge_server.access.keys import Key
from tirjudge_web.errors import Refused, retry_headers


class Bucket:
    """A minute's worth at most, filled evenly. What costs more than was known beforehand is owed.

    Args:
        per_minute: how much comes in.
        clock: seconds; never goes back.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._filled_at = clock()

    def wait_s(self, amount: float) -> float:
        """Until when that much is in it; 0: it is now."""
        self._fill()
        return max(0.0, (amount - self._level) * 60.0 / self.per_minute)

    def take(self, amount: float) -> None:
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.per_minute, self._level + (now - self._filled_at) * self.per_minute / 60.0)
        self._filled_at = now


class KeyLimits:
    """The limits of one key, and how much of them is used."""

    def __init__(self, key: Key, *, clock: Callable[[], float] = monotonic) -> None:
        self._requests = None if key.rpm is None else Bucket(key.rpm, clock=clock)
        self._tokens = None if key.tpm is None else Bucket(key.tpm, clock=clock)

    def admit(self) -> None:
        """One more request; one that is refused costs nothing.

        Raises:
            Refused: 429.
        """
        for bucket, unit in ((self._tokens, "tokens"), (self._requests, "requests")):
            if bucket is not None and (wait_s := bucket.wait_s(1)):
                message = f"key: this key may have {bucket.per_minute} {unit} a minute; try again in {wait_s:.1f} s"
                problem = Problem(message=message, type="rate_limit_error", code="rate_limit_exceeded")
                raise Refused(problem, status=429, headers=retry_headers(wait_s))
        if self._requests is not None:
            self._requests.take(1)

    def spend(self, num_tokens: int) -> None:
        """A judgment took that many tokens. The number is not known before, so the next request pays for it."""
        if self._tokens is not None:
            self._tokens.take(num_tokens)
