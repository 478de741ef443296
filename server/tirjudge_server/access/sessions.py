"""Sessions of pages: a browser that logged in with a key holds a session token in a cookie, and never the key.

A session ends after `SESSION_S`, when the reader logs out, and when its key is revoked or expires. The database has the
SHA-256 of each token, as for keys. All servers on one database accept the session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

from sqlalchemy import delete, insert, select

from tirjudge_server.access.keys import Key, digest_of
from tirjudge_server.records.database import Database
from tirjudge_server.records.schema import sessions

SESSION_S = 12 * 3600
"""Seconds after which a session ends."""


def start_session(database: Database, *, key: Key) -> str:
    """Start a session of a key. Return its token, which only the browser keeps. Expired sessions are deleted.

    Raises:
        RecordsUnavailable: The session was not stored.
    """
    token, now_ms = secrets.token_urlsafe(32), time.time_ns() // 1_000_000
    row = {"digest": digest_of(token), "name": key.name, "expires_ms": now_ms + SESSION_S * 1000}
    with database.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.expires_ms <= now_ms))
        connection.execute(insert(sessions).values(row))
    return token


def session_key_name(database: Database, *, token: str) -> str | None:
    """Return the name of the key of a session. None: the session does not exist, or it has ended.

    Raises:
        RecordsUnavailable: The database does not answer.
    """
    wanted = select(sessions.c.name).where(
        sessions.c.digest == digest_of(token), sessions.c.expires_ms > time.time_ns() // 1_000_000
    )
    with database.reading() as connection:
        return connection.execute(wanted).scalar()


def end_session(database: Database, *, token: str) -> None:
    """End a session.

    Raises:
        RecordsUnavailable: The database does not answer.
    """
    with database.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.digest == digest_of(token)))


def csrf_token(session: str) -> str:
    """Return the token that the forms of a session must send. Other sites cannot read it, and it does not reveal the session.

    Args:
        session: Token of the session, or the secret of a server without keys.
    """
    return hmac.new(session.encode(), b"tirjudge csrf", hashlib.sha256).hexdigest()
