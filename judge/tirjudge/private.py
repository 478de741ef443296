"""Files and folders that hold what people wrote: nobody but their owner may read them, whatever the umask is."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private_folder(path: Path) -> None:
    """Make a folder, with those above it that are missing. One that is there already stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    if path.parent != path and not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def private(path: str, flags: int) -> int:
    """The `opener` of `open` for such a file; one that is there already keeps its mode."""
    return os.open(path, flags, 0o600)


def close_to_others(path: Path) -> None:
    """Take the rights of others away from a file or a folder; warn where only somebody else can."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return
    try:
        path.chmod(mode & ~_OTHERS)
    except OSError as error:
        warnings.warn(
            f"{path}: others may read it (mode {mode:04o}), and that cannot be changed: {error.strerror}; "
            f"`chmod go= {path}` as its owner",
            RuntimeWarning,
            stacklevel=2,
        )
