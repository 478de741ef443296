"""Copy files that a finished program left. The files are untrusted: only regular files below one directory are copied,
no link is followed, and the total size is limited.

This code runs in the slot, which cannot see the host's files. The kernel copies the contents, so that they never enter
the slot's memory. This module imports only the standard library, because the isolated interpreter imports it too.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

_NOT_THERE = -1
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def copy_files(paths: Sequence[str], *, root: str, target: int, max_bytes: int) -> tuple[int, ...]:
    """Append files to a descriptor, concatenated in order.

    Args:
        paths: relative paths without `..`.
        root: directory of the files.
        target: descriptor of a memory file.
        max_bytes: maximum total size. A file that exceeds the rest counts as missing.

    Returns:
        The size of each file; -1 if it is missing or not a regular file.
    """
    sizes = []
    directory = os.open(root, _FLAGS | os.O_DIRECTORY)
    for path in paths:
        size = _copy(path, directory=directory, target=target, max_bytes=max_bytes)
        max_bytes -= max(0, size)
        sizes.append(size)
    os.close(directory)
    return tuple(sizes)


def _copy(path: str, *, directory: int, target: int, max_bytes: int) -> int:
    with contextlib.ExitStack() as stack:
        *parents, name = path.split("/")
        try:
            for parent in parents:
                directory = os.open(parent, _FLAGS | os.O_DIRECTORY, dir_fd=directory)
                stack.callback(os.close, directory)
            file = os.open(name, _FLAGS, dir_fd=directory)
        except OSError:  # missing, a link, a socket, or not readable
            return _NOT_THERE
        stack.callback(os.close, file)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
            return _NOT_THERE
        num_copied = 0
        while num_copied < status.st_size:
            num_copied += os.sendfile(target, file, num_copied, status.st_size - num_copied)
        return num_copied
