"""A server whose judge has the format of another judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat_server import MODEL, serving_chat
from tests.servers import Connect
from tirjudge_server.opening import open_application
from tirjudge_server.settings import ServerSettings

PAIR = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"]}
