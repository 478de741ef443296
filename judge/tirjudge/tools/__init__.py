"""Tools that a judge can call between two turns, one per module. Other packages register tools under
`tirjudge.tools`."""

from __future__ import annotations

from tirjudge.kinds import Kinds
from tirjudge.tools.base import ToolKind

TOOLS: Kinds[ToolKind] = Kinds("tirjudge.tools", what="tool")
"""Installed tools, by the name that the model uses in a call. The sandbox package provides `python`."""
