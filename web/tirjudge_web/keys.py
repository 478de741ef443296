"""Check API keys, given as a bearer token or as the password of basic authentication.

The password is for clients that cannot set headers but accept a URL: `http://:KEY@host:8090/run_code`.
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
    """ASGI middleware that requires an API key.

    Args:
        app: the application.
        keys: valid keys. Empty: no key is needed.
        open_paths: paths that need no key.
    """

    def __init__(self, app: ASGIApp, *, keys: Collection[str], open_paths: Collection[str]) -> None:
        self.app = app
        self._digests = [_digest(key) for key in keys]
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] in ("http", "websocket") and self._digests and scope["path"] not in self._open_paths:
            given = key_of(Headers(scope=scope).get("authorization", ""))
            digest = _digest(given)
            # Constant time: all digests have the same length, and all are compared.
            if not sum(hmac.compare_digest(digest, known) for known in self._digests):
                refused = invalid_key("invalid API key" if given else None)
                app = problem_response(refused.problem, status=refused.status, headers=refused.headers)
        await app(scope, receive, send)


def key_of(authorization: str) -> str:
    """Return the key in an Authorization header. Empty if the header has none."""
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
    """Return the 401 error for a missing or invalid key.

    Args:
        why: why the key is invalid. None: the request has no key.
    """
    what = "none given; send `Authorization: Bearer KEY`" if why is None else why
    problem = invalid(f"key: {what}", param=None, code="invalid_api_key")
    return Refused(problem, status=401, headers={"www-authenticate": "Bearer"})
