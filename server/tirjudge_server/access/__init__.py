"""Access control: API keys with scopes and limits, which are checked before a request is processed."""

from tirjudge_server.access.authorization import Access, needs, seen_by
from tirjudge_server.access.keys import SCOPES, Key
from tirjudge_web.binding import OpenBind, check_bind

__all__ = ["SCOPES", "Access", "Key", "OpenBind", "check_bind", "needs", "seen_by"]
