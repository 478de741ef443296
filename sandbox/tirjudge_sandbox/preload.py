"""A module that a fork server loads before it is isolated, with data that its programs share without a copy.

This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

PRELOAD = "preload"
"""Name of the step that loads the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preload:
    """A module to load. Programs import it by its name and find it as it was left.

    The module may import the files beside it by their names. It must leave no thread
    running, because threads do not survive a fork. It may have a function `rehearse`, a generator of short steps: each
    process takes them while it waits for its program.
    """

    name: str
    """Name under which programs import the module."""
    path: str
    """Absolute path of its source."""
    settings: str
    """JSON for its function `load`, which is called once, before the isolation: it may read the host's files."""

    folder: str
    """Directory whose packages the module may import while it is loaded, with their metadata."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @property
    def rehearsal(self) -> Callable[[], Iterable[object]] | None:
        """The function `rehearse` of the loaded module. None: it has none."""
        return getattr(sys.modules[self.name], "rehearse", None)

    def load(self) -> None:
        """Load the module into this process."""
        folders = [self.path.rpartition("/")[0], self.folder]
        sys.path.extend(folders)
        try:
            spec = importlib.util.spec_from_file_location(self.name, self.path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[self.name] = module
            spec.loader.exec_module(module)
            module.load(json.loads(self.settings))
        finally:
            for folder in folders:
                sys.path.remove(folder)
