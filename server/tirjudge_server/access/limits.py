"""Limits of one key on requests and tokens per minute, in one server process. The queue limits concurrent judgments."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from tirjudge.http.protocol import Problem
from tirjudge_server.access.keys import Key
from tirjudge_web.errors import Refused, retry_headers


class Bucket:
    """A token bucket. It holds at most one minute's amount, and its level may become negative.

    Args:
        per_minute: Amount that flows in per minute.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, per_minute: int, *, clock: Callable[[], float] = monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._filled_at = clock()

    def wait_s(self, amount: float) -> float:
        """Return the seconds until the bucket holds an amount; 0: it holds it now."""
        self._fill()
        return max(0.0, (amount - self._level) * 60.0 / self.per_minute)

    def take(self, amount: float) -> None:
        """Take an amount out of the bucket, even if it holds less."""
        self._fill()
        self._level -= amount

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.per_minute, self._level + (now - self._filled_at) * self.per_minute / 60.0)
        self._filled_at = now


class KeyLimits:
    """The limits of one key, with their current use.

    Args:
        key: The key.
        clock: Monotonic clock in seconds.
    """

    def __init__(self, key: Key, *, clock: Callable[[], float] = monotonic) -> None:
        self._requests = None if key.rpm is None else Bucket(key.rpm, clock=clock)
        self._tokens = None if key.tpm is None else Bucket(key.tpm, clock=clock)

    def admit(self) -> None:
        """Count one request. A refused request is not counted.

        Raises:
            Refused: 429, a limit is reached.
        """
        for bucket, unit in ((self._tokens, "tokens"), (self._requests, "requests")):
            if bucket is not None and (wait_s := bucket.wait_s(1)):
                message = f"key: the limit of {bucket.per_minute} {unit} per minute is reached; retry in {wait_s:.1f} s"
                problem = Problem(message=message, type="rate_limit_error", code="rate_limit_exceeded")
                raise Refused(problem, status=429, headers=retry_headers(wait_s))
        if self._requests is not None:
            self._requests.take(1)

    def spend(self, num_tokens: int) -> None:
        """Count the tokens of a finished judgment. Their number is not known before, so the limit affects later requests."""
        if self._tokens is not None:
            self._tokens.take(num_tokens)
