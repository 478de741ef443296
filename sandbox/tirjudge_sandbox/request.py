"""One program with everything that goes with it: checked, and put into the bytes that its process reads."""

from __future__ import annotations

import json
import keyword
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.protocol import ATTACHMENTS, Attachment, ProgramJob

MAX_FILES = 256
MAX_FETCHED = 32
MAX_ATTACHMENTS = 32

_MAX_PATH_BYTES = 512
_MAX_ATTACHMENT_PATH_BYTES = 16_384
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_BLOCK_BYTES = 4096
"""A file in the private directory takes up at least this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is run."""

    code: str
    bindings: Mapping[str, str | Mapping[str, str]]
    stdin: str
    files: Mapping[str, bytes]
    """Relative path -> content, there before it starts."""
    fetch: tuple[str, ...]
    """Relative paths, read when it has ended."""
    attachments: tuple[Attachment, ...]
    limits: Limits

    def check(self, *, level: IsolationLevel) -> None:
        """Raises ValueError: something in it cannot be, or cannot be at this level."""
        for name in self.bindings:
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"bindings: {name!r} given, a Python variable name is needed")
        for field, paths in (("files", self.files), ("fetch", self.fetch)):
            if paths and not level.has_namespaces:
                raise ValueError(f"{field}: programs have no directory of their own at the level {level}")
            for path in paths:
                _check_path(path, field=field)
        if len(self.fetch) > MAX_FETCHED:
            raise ValueError(f"fetch: {len(self.fetch)} given, at most {MAX_FETCHED} can be fetched")
        if self.files:
            self._check_files()
        if self.attachments:
            self._check_attachments(level)

    def _check_files(self) -> None:
        if len(self.files) > MAX_FILES:
            raise ValueError(f"files: {len(self.files)} given, there is room for {MAX_FILES}")
        num_bytes = 0
        for path, content in self.files.items():
            if len(content) > self.limits.file_mb << 20:
                raise ValueError(f"files: {path!r} is larger than the limit of {self.limits.file_mb} MiB")
            if any(str(parent) in self.files for parent in PurePosixPath(path).parents):
                raise ValueError(f"files: {path!r} lies in something that is itself a file")
            num_bytes += -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES + path.count("/") * _BLOCK_BYTES
        if num_bytes > self.limits.scratch_mb << 20:
            raise ValueError(f"files: together larger than the limit of {self.limits.scratch_mb} MiB")

    def _check_attachments(self, level: IsolationLevel) -> None:
        if len(self.attachments) > MAX_ATTACHMENTS:
            raise ValueError(f"attachments: {len(self.attachments)} given, at most {MAX_ATTACHMENTS} can be attached")
        if level.needs_image:
            raise ValueError(f"attachments: programs see nothing of the host at the level {level}")
        if "attachments" in self.bindings:
            raise ValueError("bindings: 'attachments' is the name under which a program finds its attachments")
        if sum(len(os.fsencode(attachment.path)) for attachment in self.attachments) > _MAX_ATTACHMENT_PATH_BYTES:
            raise ValueError("attachments: their paths are too long")
        # Started by root, programs are another user; started by anyone else, they are that user.
        needs_others = level.has_namespaces and os.geteuid() == 0
        for attachment in self.attachments:
            _check_attachment(attachment, needs_others=needs_others)

    @property
    def is_too_long(self) -> bool:
        return len(self.code.encode("utf-8", "surrogatepass")) > self.limits.source_bytes

    def job(self) -> ProgramJob:
        limits = self.limits
        return ProgramJob(
            cpu_s=limits.cpu_s,
            wall_s=limits.wall_s,
            memory_bytes=limits.memory_mb << 20,
            output_bytes=limits.output_bytes,
            file_bytes=limits.file_mb << 20,
            scratch_bytes=limits.scratch_mb << 20,
            fetch=self.fetch,
            fetch_bytes=limits.fetch_bytes,
            attachments=self.attachments,
        )

    def payload(self, *, level: IsolationLevel) -> bytes:
        """A line of JSON, then the files one behind the other, then what is read from the standard input.

        A copy of all texts, so it is made when there is a slot for it.
        """
        bindings = {name: value if isinstance(value, str) else dict(value) for name, value in self.bindings.items()}
        if "attachments" not in bindings:
            bindings["attachments"] = {
                name: f"{ATTACHMENTS}/{name}" if level.has_namespaces else path for name, path in self.attachments
            }
        sizes = [(path, len(content)) for path, content in self.files.items()]
        header = json.dumps({"code": self.code, "bindings": bindings, "files": sizes}).encode()
        stdin = self.stdin.encode("utf-8", "surrogatepass")
        return b"".join([header, b"\n", *self.files.values(), stdin])


def attachments_of(paths: Mapping[str, str | os.PathLike[str]]) -> tuple[Attachment, ...]:
    """In the order given, with links resolved: what is attached is what the path means now."""
    return tuple(Attachment(name, _resolved(name, os.fspath(path))) for name, path in paths.items())


def _resolved(name: str, path: str) -> str:
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise ValueError(f"attachments: {name!r} given, only letters, digits and ._- are allowed")
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"attachments: {path!r} given for {name}, an absolute path is needed")
    return os.path.realpath(path)


def _check_attachment(attachment: Attachment, *, needs_others: bool) -> None:
    name, path = attachment
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ValueError(f"attachments: {name}: {path}: {error.strerror}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(f"attachments: {name}: {path} is neither a file nor a directory")
    needed = 0o005 if stat.S_ISDIR(mode) else 0o004
    if needs_others and mode & needed != needed:
        raise ValueError(f"attachments: {name}: programs run as another user, who may not read {path}")


def _check_path(path: str, *, field: str) -> None:
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{field}: {path!r} given, a relative path without '..' is needed")
    if not path.isprintable() or len(path.encode()) > _MAX_PATH_BYTES or max(len(p.encode()) for p in parts) > 255:
        raise ValueError(f"{field}: a path given is too long, or holds characters that cannot be printed")
