"""Checks the operator's keys, given as a bearer token or as a password.

The password is for clients that send no headers of their own but take a URL: `http://:KEY@host:8090/run_code`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tirjudge.http.protocol import invalid
from tirjudge_web.errors import Refused, problem_response


class Keys:
    """ASGI middleware around a whole application. Without keys, everybody may call.

    Args:
        app: what is guarded.
        keys: any of them will do.
        open_paths: for which none is needed.
    """

    def __init__(self, app: ASGIApp, *, keys: Collection[str], open_paths: Collection[str]) -> None:
        self.app = app
        self._digests = [_digest(key) for key in keys]
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and self._digests and scope["path"] not in self._open_paths:
            given = key_of(Headers(scope=scope).get("authorization", ""))
            digest = _digest(given)
            # Takes the same time whatever is given: digests are of one length, and each is compared.
            if not sum(hmac.compare_digest(digest, known) for known in self._digests):
                refused = invalid_key("not a key of this server" if given else None)
                app = problem_response(refused.problem, status=refused.status, headers=refused.headers)
        await app(scope, receive, send)


def key_of(authorization: str) -> str:
    """The key in such a header; empty if there is none."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def invalid_key(why: str | None) -> Refused:
    """401.

    Args:
        why: what is wrong with the key; None: there is none.
    """
    what = "none given; send `Authorization: Bearer KEY`" if why is None else why
    problem = invalid(f"key: {what}", param=None, code="invalid_api_key")
    return Refused(problem, status=401, headers={"www-authenticate": "Bearer"})
