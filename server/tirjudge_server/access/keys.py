"""Keys: how they are made, stored and looked up, and what they permit.

A key is 256 random bits, so it cannot be guessed, and a plain SHA-256 at rest is enough: the slow hashes that guard
passwords are against guesses, and would cost every request what they cost an attacker. A key is looked up by that hash; what
the time of a look-up tells is about the hash of what was sent, from which no key can be derived.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import insert, select, update

from tirjudge.errors import TirjudgeError
from tirjudge_server.records.database import Database
from tirjudge_server.records.schema import keys

SCOPES = ("judge", "reward", "read", "admin")
"""`judge`: judge and batches. `reward`: the endpoints of trainers. `read`: records of its own, and what the server is.
`admin`: all of that, everybody's records, and what the server judges with."""

KEY_PREFIX = "tj_"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MIN_CHARACTERS = 40
"""Of a key that was made elsewhere: 160 bits, if it is random hexadecimal digits."""

_NUM_SHOWN = 11
"""Characters of a key that are kept, to recognise it by: `tj_` and 48 of the 256 bits."""


class KeyRefused(TirjudgeError, ValueError):
    """There can be no such key, or there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a server knows of a key; not the key itself."""

    name: str
    """Stands in records as the caller, so it is never given to another key."""
    prefix: str
    """How the key begins."""
    digest: str = field(repr=False)
    scopes: frozenset[str]
    rpm: int | None = None
    """Requests a minute; None: as many as it likes."""
    tpm: int | None = None
    """Tokens a minute, read and written; None: as many as it likes."""
    concurrency: int | None = None
    """Judgments side by side; more wait in the queue. None: as many as there is room for."""
    created_ms: int
    expires_ms: int | None = None
    """Unix time; None: never."""
    revoked_ms: int | None = None
    """Unix time; None: it was not."""

    def ended(self, *, now_ms: int) -> str | None:
        """Why the key is no longer valid; None: it is valid."""
        if self.revoked_ms is not None:
            return "it was revoked"
        return "it has expired" if self.expires_ms is not None and self.expires_ms <= now_ms else None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


def digest_of(given: str) -> str:
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
    """Make a key; this is the only time that anybody sees it.

    Args:
        database: of the records.
        name: of its user, in the records.
        scopes: what it may.
        rpm, tpm, concurrency, expires_ms: as in `Key`.
        given: a key that was made elsewhere; where it has that name already nothing is changed. None: a new one.

    Raises:
        KeyRefused: the name is taken or none, there is no such scope, or the given key could be guessed.
        RecordsUnavailable: it was not stored.
    """
    if not _NAME.fullmatch(name):
        raise KeyRefused(f"name: {name!r} given; use up to 64 letters, digits, dots, dashes and underscores")
    if not scopes or not set(scopes) <= set(SCOPES):
        raise KeyRefused(f"scope: {', '.join(map(repr, scopes)) or 'none'} given; valid are {', '.join(SCOPES)}")
    if given is not None and len(given) < _MIN_CHARACTERS:
        raise KeyRefused(f"key: {len(given)} characters given; at least {_MIN_CHARACTERS} random ones are needed")
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
                f"name: {name} was given to a key before, and records name callers by it; use another name"
            )
        connection.execute(insert(keys).values(row))
    return secret


def revoke_key(database: Database, *, name: str) -> None:
    """End a key; servers notice within seconds.

    Raises:
        KeyRefused: there is no such key.
    """
    at = update(keys).where(keys.c.name == name).values(revoked_ms=time.time_ns() // 1_000_000)
    with database.writing() as connection:
        if connection.execute(select(keys.c.name).where(keys.c.name == name)).first() is None:
            raise KeyRefused(f"name: {name} given, there is no such key")
        connection.execute(at.where(keys.c.revoked_ms.is_(None)))


def load_keys(database: Database) -> list[Key]:
    """All keys there ever were, the oldest first."""
    with database.reading() as connection:
        rows = connection.execute(select(keys).order_by(keys.c.created_ms, keys.c.name)).mappings().all()
    return [Key(**{**row, "scopes": frozenset(row["scopes"].split())}) for row in rows]
