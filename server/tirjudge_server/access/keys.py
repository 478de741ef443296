"""API keys: creating, storing and loading them, and their scopes.

A key is 256 random bits and cannot be guessed. So a plain SHA-256 is enough to store it. Slow password hashes protect against
guessing, which is not needed here, and cost time on every request. Keys are looked up by this hash. The timing of a look-up
can reveal a part of the hash at most, and no key can be derived from its hash.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, select, update

from tirjudge.errors import TirjudgeError
from tirjudge_server.records.database import Database
from tirjudge_server.records.schema import keys

SCOPES = ("judge", "reward", "read", "label", "audit", "admin")
"""The scopes of keys.

- `judge`: judgments and batches.
- `reward`: the endpoints for trainers.
- `read`: the caller's own records, and information about the server.
- `label`: labels of people on the judgments that the key may read.
- `audit`: with `read`, the records of all callers.
- `admin`: all of these, and reloading the weights.
"""

KEY_PREFIX = "tj_"
"""Beginning of generated keys."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MIN_CHARACTERS = 40
"""Minimum length of an existing key that is added: 160 bits if it consists of random hexadecimal digits."""

_NUM_SHOWN = 11
"""Number of characters of a key that are stored, to recognize it: `tj_` and 48 of the 256 bits."""


class KeyRefused(TirjudgeError, ValueError):
    """The key cannot be created, or does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The stored data of a key, without the key itself."""

    name: str
    """Name of the caller in records. Never reused for another key."""
    prefix: str
    """First characters of the key."""
    digest: str = field(repr=False)
    """SHA-256 of the key."""
    scopes: frozenset[str]
    """Scopes of the key, from `SCOPES`."""
    rpm: int | None = None
    """Maximum requests per minute. None: no limit."""
    tpm: int | None = None
    """Maximum tokens per minute, input and output together. None: no limit."""
    concurrency: int | None = None
    """Maximum number of concurrent judgments; more wait in the queue. None: no limit."""
    created_ms: int
    """Unix time in milliseconds."""
    expires_ms: int | None = None
    """Unix time in milliseconds at which the key expires. None: never."""
    revoked_ms: int | None = None
    """Unix time in milliseconds at which the key was revoked. None: not revoked."""

    def ended(self, *, now_ms: int) -> str | None:
        """Return "revoked" or "expired"; None: the key is valid."""
        if self.revoked_ms is not None:
            return "revoked"
        return "expired" if self.expires_ms is not None and self.expires_ms <= now_ms else None

    def may(self, scope: str) -> bool:
        """Whether the key has a scope. `admin` includes all scopes."""
        return scope in self.scopes or "admin" in self.scopes


def digest_of(given: str) -> str:
    """Return the SHA-256 of a key, in hexadecimal."""
    return hashlib.sha256(given.encode("utf-8", "surrogateescape")).hexdigest()


def create_key(
    database: Database,
    *,
    name: str,
    scopes: Collection[str],
    rpm: int | None = None,
    tpm: int | None = None,
    concurrency: int | None = None,
    expires_ms: int | None = None,
    given: str | None = None,
) -> str:
    """Create and return a key. It is not stored, so this is the only chance to read it.

    Args:
        database: The database of the records.
        name: Name of the caller in records.
        scopes: Scopes of the key, from `SCOPES`.
        rpm, tpm, concurrency, expires_ms: See `Key`.
        given: An existing key to add. If it was added under this name before, nothing changes. None: generate a key.

    Raises:
        KeyRefused: The name is invalid or taken, a scope is unknown, or the given key is too short.
        RecordsUnavailable: The key was not stored.
    """
    if not _NAME.fullmatch(name):
        raise KeyRefused(f"name: {name!r} given; use up to 64 letters, digits, dots, dashes and underscores")
    if not scopes or not set(scopes) <= set(SCOPES):
        raise KeyRefused(f"scope: {', '.join(map(repr, scopes)) or 'none'} given; expected: {', '.join(SCOPES)}")
    if given is not None and len(given) < _MIN_CHARACTERS:
        raise KeyRefused(f"key: {len(given)} characters given; expected: at least {_MIN_CHARACTERS} random characters")
    secret = given or KEY_PREFIX + secrets.token_urlsafe(32)
    row = {
        "name": name,
        "prefix": secret[:_NUM_SHOWN],
        "digest": digest_of(secret),
        "scopes": " ".join(scope for scope in SCOPES if scope in scopes),
        "rpm": rpm,
        "tpm": tpm,
        "concurrency": concurrency,
        "created_ms": time.time_ns() // 1_000_000,
        "expires_ms": expires_ms,
    }
    with database.writing() as connection:
        taken = connection.execute(select(keys.c.digest).where(keys.c.name == name)).scalar()
        if taken is not None:
            if given is not None and taken == row["digest"]:
                return secret
            raise KeyRefused(
                f"name: {name} was used for another key, and names cannot be reused because records contain them; "
                "use another name"
            )
        connection.execute(insert(keys).values(row))
    return secret


def revoke_key(database: Database, *, name: str) -> None:
    """Revoke a key. Servers refuse it within seconds.

    Raises:
        KeyRefused: No key has this name.
        RecordsUnavailable: The database does not answer.
    """
    at = update(keys).where(keys.c.name == name).values(revoked_ms=time.time_ns() // 1_000_000)
    with database.writing() as connection:
        if connection.execute(select(keys.c.name).where(keys.c.name == name)).first() is None:
            raise KeyRefused(f"name: {name} given, but no key has this name; `tirjudge keys list` lists the keys")
        connection.execute(at.where(keys.c.revoked_ms.is_(None)))


def load_keys(database: Database) -> list[Key]:
    """Return all keys, oldest first, expired and revoked ones included."""
    with database.reading() as connection:
        rows = connection.execute(select(keys).order_by(keys.c.created_ms, keys.c.name)).mappings().all()
        found: list[dict[str, Any]] = [dict[Any, Any](row) for row in rows]
    return [Key(**(fields | {"scopes": frozenset(fields["scopes"].split())})) for fields in found]
