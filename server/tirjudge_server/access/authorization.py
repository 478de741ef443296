"""Authorization: `Access` holds the keys of a database in memory, and `needs` checks the scope of a caller.

Requests are checked against memory. The database is asked again every few seconds, and at once about a key that is not
known, so a key that was just created works and a revoked one ends soon. While the database does not answer, what was known
last holds.
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
from tirjudge_server.call import Call
from tirjudge_server.records.database import Database
from tirjudge_web.errors import Refused
from tirjudge_web.keys import invalid_key, key_of

logger = logging.getLogger(__name__)

REFRESH_S = 2.0
"""How old what is known of the keys may be before it is looked up again."""

MISS_REFRESH_S = 0.5
"""The same when a request comes with a key that is not known, so that wrong keys cannot keep the database busy."""


class Access:
    """Who may call one server.

    Args:
        database: where the keys are; its opener closes it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_digest: Mapping[str, Key] = {}
        self._limits: dict[str, KeyLimits] = {}
        self._loaded_at = 0.0
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_guarded(self) -> bool:
        """Whether callers need a key: as soon as one was ever created. Revoking the last one opens nothing."""
        return bool(self._by_digest)

    async def load(self) -> None:
        """
        Raises:
            RecordsUnavailable: the database does not answer.
        """
        found = await asyncio.to_thread(load_keys, self._database)
        self._by_digest = {key.digest: key for key in found}
        self._loaded_at = monotonic()

    async def key_for(self, headers: Headers, *, scope: str) -> Key | None:
        """The key that a request came with; None: none is needed.

        Raises:
            Refused: 401 or 403.
        """
        self._refresh(REFRESH_S)
        if not self.is_guarded:
            return None
        given = key_of(headers.get("authorization", "")) or headers.get("x-api-key", "")
        if not given:
            raise invalid_key(None)
        digest = digest_of(given)
        if digest not in self._by_digest:
            await asyncio.shield(self._refresh(MISS_REFRESH_S))
        key = self._by_digest.get(digest)
        if key is None:
            raise invalid_key("not a key of this server")
        if ended := key.ended(now_ms=time.time_ns() // 1_000_000):
            raise invalid_key(ended)
        if not key.may(scope):
            message = f"key: {key.name} has no scope {scope}, which this endpoint needs"
            raise Refused(invalid(message, param=None, code="missing_scope"), status=403)
        return key

    def limits_of(self, key: Key) -> KeyLimits:
        if key.name not in self._limits:
            self._limits[key.name] = KeyLimits(key)
        return self._limits[key.name]

    def concurrency_of(self, caller: str | None) -> int | None:
        """How many judgments the key of that name may have made side by side; None: as many as there is room for."""
        return next((key.concurrency for key in self._by_digest.values() if key.name == caller), None)

    def on_end(self, request: JudgeRequest, call: Call, outcome: Judgment | BaseException) -> None:
        """Count the tokens of a judgment against the limits of its caller's key."""
        limits = self._limits.get(call.caller or "")
        if limits is not None and isinstance(outcome, Judgment):
            limits.spend(outcome.usage.input_tokens + outcome.usage.output_tokens)

    def _refresh(self, max_age_s: float) -> asyncio.Future[None]:
        """Look the keys up again, unless they are known well enough; done when that is."""
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
            logger.error("keys as they were known %.0f s ago hold: %s", monotonic() - self._loaded_at, logged(error))
        finally:
            self._loading = None


def needs(scope: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency of routes: only keys with that scope may call them, within their limits.

    It looks for an `Access` in `app.state.access`; without one, everybody may. It sets `request.state.key` and
    `request.state.caller`, the key's name.

    Args:
        scope: of `SCOPES`.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope: {scope!r} given; valid are {', '.join(SCOPES)}")

    async def check(request: Request) -> None:
        access: Access | None = getattr(request.app.state, "access", None)
        key = None if access is None else await access.key_for(request.headers, scope=scope)
        if access is not None and key is not None:
            access.limits_of(key).admit()
            request.state.key, request.state.caller = key, key.name

    return check


def seen_by(request: Request) -> str | None:
    """Whose records a request may see: those of this caller; None: everybody's."""
    key: Key | None = getattr(request.state, "key", None)
    return None if key is None or key.may("admin") else key.name
