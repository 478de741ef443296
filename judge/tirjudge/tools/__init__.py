"""Tools that a judge may call between two turns, one a file; other packages add theirs under `tirjudge.tools`."""

from __future__ import annotations

from tirjudge.kinds import Kinds
from tirjudge.tools.base import ToolKind

TOOLS: Kinds[ToolKind] = Kinds("tirjudge.tools", what="tool")
"""By the name that a format calls them by. `python` comes with the sandbox."""
