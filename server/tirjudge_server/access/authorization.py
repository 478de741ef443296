"""Authorization: `Access` holds the keys of a database in memory, and `needs` checks the scope of a caller.

Requests are checked against the keys in memory. While requests arrive, the keys are reloaded every few seconds, and sooner
when a request has an unknown key. The first request after a pause waits for the reload. So new keys work immediately, and
revoked keys stop working within seconds. While the database does not answer, the keys of the last successful reload stay
valid.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from starlette.datastructures import Headers
from starlette.requests import Request

from tirjudge.errors import RecordsUnavailable, logged
from tirjudge.http.protocol import invalid
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_server.access.keys import SCOPES, Key, digest_of, load_keys
from tirjudge_server.access.limits import KeyLimits
from tirjudge_server.access.sessions import session_key_name
from tirjudge_server.call import Call
from tirjudge_server.records.database import Database
from tirjudge_web.errors import Refused
from tirjudge_web.keys import invalid_key, key_of

logger = logging.getLogger(__name__)

REFRESH_S = 2.0
"""Seconds after which the keys are reloaded."""

STALE_S = 5.0
"""Seconds without an attempt to reload the keys, after which a request waits for the reload."""

STALE_WAIT_S = 2.0
"""Maximum seconds that a request waits for the reload of stale keys."""

MISS_REFRESH_S = 0.5
"""Minimum seconds between two reloads because of unknown keys. Limits the load that wrong keys put on the database."""


class Access:
    """The API keys of one server.

    Args:
        database: Holds the keys. The caller closes it.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._by_digest: Mapping[str, Key] = {}
        self._limits: dict[str, KeyLimits] = {}
        self._loaded_at = 0.0
        self._tried_at = 0.0
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_guarded(self) -> bool:
        """Whether callers need a key. True once any key was created, and still true after all keys are revoked."""
        return bool(self._by_digest)

    async def load(self) -> None:
        """Load the keys.

        Raises:
            RecordsUnavailable: The database does not answer.
        """
        found = await asyncio.to_thread(load_keys, self.database)
        self._by_digest = {key.digest: key for key in found}
        self._loaded_at = self._tried_at = monotonic()

    async def key_for(self, headers: Headers, *, scope: str) -> Key | None:
        """Return the valid key of a request; None: callers need no key.

        Args:
            headers: Headers of the request.
            scope: Scope that the key must have.

        Raises:
            Refused: 401, the key is missing or invalid; 403, the key lacks the scope.
        """
        await self._keep_current()
        if not self.is_guarded:
            return None
        given = key_of(headers.get("authorization", "")) or headers.get("x-api-key", "")
        if not given:
            raise invalid_key(None)
        return check_scope(await self.valid_key(given), scope=scope)

    async def valid_key(self, given: str) -> Key:
        """Return the key of a secret that a caller gave.

        Raises:
            Refused: 401, the key is invalid, expired or revoked.
        """
        digest = digest_of(given)
        if digest not in self._by_digest:
            await asyncio.shield(self._refresh(MISS_REFRESH_S))
        return _valid(self._by_digest.get(digest))

    async def key_of_session(self, token: str | None, *, scope: str | None) -> Key | None:
        """Return the valid key of a session of pages; None: callers need no key.

        Args:
            token: Token of the session. None: the browser has none.
            scope: Scope that the key must have. None: any scope.

        Raises:
            Refused: 401, the session has ended, or its key has; 403, the key lacks the scope.
            RecordsUnavailable: The database does not answer.
        """
        await self._keep_current()
        if not self.is_guarded:
            return None
        name = None if token is None else await asyncio.to_thread(session_key_name, self.database, token=token)
        if name is None:
            raise invalid_key("log in again")
        key = _valid(next((key for key in self._by_digest.values() if key.name == name), None))
        return key if scope is None else check_scope(key, scope=scope)

    def limits_of(self, key: Key) -> KeyLimits:
        """Return the limits of a key, with their current use."""
        if key.name not in self._limits:
            self._limits[key.name] = KeyLimits(key)
        return self._limits[key.name]

    def concurrency_of(self, caller: str | None) -> int | None:
        """Return the maximum number of concurrent judgments for a key, by its name; None: no limit."""
        return next((key.concurrency for key in self._by_digest.values() if key.name == caller), None)

    def on_end(self, request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
        """Count the tokens of a judgment against the limits of its caller's key."""
        limits = self._limits.get(call.caller or "")
        if limits is not None and isinstance(outcome, Judgment):
            limits.spend((outcome.usage.input_tokens or 0) + (outcome.usage.output_tokens or 0))

    async def _keep_current(self) -> None:
        """Reload the keys if they are old. Wait for it only after a pause in which no request started a reload: a key that
        was created or revoked in the pause then applies to this request."""
        loading = self._refresh(REFRESH_S)
        if monotonic() - self._tried_at > STALE_S:
            await asyncio.wait((loading,), timeout=STALE_WAIT_S)

    def _refresh(self, max_age_s: float) -> asyncio.Future[None]:
        """Reload the keys if they are older than `max_age_s`. The returned future ends when the keys are loaded."""
        if self._loading is None and monotonic() - self._loaded_at > max_age_s:
            self._loading = asyncio.create_task(self._reload())
        if self._loading is not None:
            return self._loading
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        known.set_result(None)
        return known

    async def _reload(self) -> None:
        try:
            await self.load()
        except RecordsUnavailable as error:
            age_s = monotonic() - self._loaded_at
            logger.error("cannot reload the API keys, using those from %.0f s ago: %s", age_s, logged(error))
        finally:
            self._tried_at = monotonic()
            self._loading = None


def _valid(key: Key | None) -> Key:
    """
    Raises:
        Refused: 401, the key is unknown, expired or revoked.
    """
    if key is None:
        raise invalid_key("invalid API key")
    if ended := key.ended(now_ms=time.time_ns() // 1_000_000):
        raise invalid_key(f"{ended} API key")
    return key


def check_scope(key: Key, *, scope: str) -> Key:
    """Return the key.

    Raises:
        Refused: 403, the key lacks the scope.
    """
    if not key.may(scope):
        message = f"key: {key.name} lacks the scope {scope}, which this endpoint requires"
        raise Refused(invalid(message, param=None, code="missing_scope"), status=403)
    return key


def needs(scope: str) -> Callable[[Request], Awaitable[None]]:
    """Return a FastAPI dependency that requires a key with a scope, and applies the key's limits.

    The dependency uses the `Access` in `app.state.access`. Without one, all requests are allowed. It sets
    `request.state.key`, and `request.state.caller` to the key's name.

    Args:
        scope: One of `SCOPES`.

    Raises:
        ValueError: The scope is unknown.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope: {scope!r} given; expected one of: {', '.join(SCOPES)}")

    async def check(request: Request) -> None:
        access: Access | None = getattr(request.app.state, "access", None)
        key = None if access is None else await access.key_for(request.headers, scope=scope)
        if access is not None and key is not None:
            access.limits_of(key).admit()
            request.state.key, request.state.caller = key, key.name

    return check


def seen_by(request: Request) -> str | None:
    """Return the caller whose records a request may read; None: the records of all callers."""
    key: Key | None = getattr(request.state, "key", None)
    return records_of(key)


def records_of(key: Key | None) -> str | None:
    """Return the caller whose records a key may read; None: the records of all callers."""
    return None if key is None or key.may("audit") else key.name
