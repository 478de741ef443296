"""A program with its inputs: validate it, and encode it for its process."""

from __future__ import annotations

import json
import keyword
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from tirjudge.tools.functions import Candidate, Offer
from tirjudge.types import CandidateCode
from tirjudge_sandbox.channel import Calls
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.protocol import ATTACHMENTS, CALLS, REPORTS, VALUE, Attachment, ProgramJob

MAX_FILES = 256
MAX_FETCHED = 32
MAX_ATTACHMENTS = 32

_MAX_PATH_BYTES = 512
_MAX_ATTACHMENT_PATH_BYTES = 16_384
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_BLOCK_BYTES = 4096
"""Minimum space that a file takes in the private directory."""


class CallableFunction(Protocol):
    """What a program needs to know of a function. A `ToolFunction` has these fields."""

    @property
    def name(self) -> str:
        """Name in a program."""
        ...

    @property
    def parameters(self) -> Sequence[str]:
        """Names of the parameters that can be given by position, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedOffer:
    """What a program may call if the calls are answered elsewhere, and what is watched in it."""

    functions: Sequence[CallableFunction]
    """Functions that the program may call."""
    calls: Calls
    """Receives the messages of the program."""
    candidate_code: CandidateCode = "flag"
    """See `Offer`."""
    watched: Sequence[str] = ()
    """See `Offer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, its inputs and its limits. The fields are those of `SandboxPool.run`."""

    code: str
    """Python source."""
    bindings: Mapping[str, str | Mapping[str, str]]
    """Variables: name -> text, or name -> (label -> text)."""
    stdin: str
    """Text on the standard input."""
    files: Mapping[str, bytes]
    """Relative path -> content of the files in the working directory."""
    fetch: tuple[str, ...]
    """Relative paths of the files to return after the program has ended."""
    attachments: tuple[Attachment, ...]
    """Files and directories of the host that the program may read."""
    limits: Limits
    """Limits of the program."""
    offer: Offer | ForwardedOffer | None = None
    """Functions that the program may call, and the bindings that are watched. None: none."""
    candidate: Candidate | None = None
    """The candidate whose code this is. None: the program is a judge's."""

    def check(self, *, level: IsolationLevel) -> None:
        """Check all arguments. Raises ValueError if one is invalid, or not supported at this level."""
        for name in self.bindings:
            if not name.isidentifier() or keyword.iskeyword(name):
                raise ValueError(f"bindings: expected a Python variable name, got {name!r}")
        for name in () if self.offer is None else self.offer.watched:
            if name not in self.bindings:
                known = ", ".join(map(repr, self.bindings))[:400] or "none"
                raise ValueError(f"watched: {name[:80]!r} is not the name of a binding; the bindings are: {known}")
        for field, paths in (("files", self.files), ("fetch", self.fetch)):
            if paths and not level.has_namespaces:
                raise ValueError(f"{field}: programs have no private directory at the level {level}")
            for path in paths:
                _check_path(path, field=field)
        if len(self.fetch) > MAX_FETCHED:
            raise ValueError(f"fetch: expected at most {MAX_FETCHED} paths, got {len(self.fetch)}")
        if self.files:
            self._check_files()
        if self.attachments:
            self._check_attachments(level)

    def _check_files(self) -> None:
        if len(self.files) > MAX_FILES:
            raise ValueError(f"files: expected at most {MAX_FILES}, got {len(self.files)}")
        num_bytes = 0
        for path, content in self.files.items():
            if len(content) > self.limits.file_mb << 20:
                raise ValueError(f"files: {path!r} is larger than the limit of {self.limits.file_mb} MiB")
            if any(str(parent) in self.files for parent in PurePosixPath(path).parents):
                raise ValueError(f"files: {path!r} is below a path that is itself a file")
            num_bytes += -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES + path.count("/") * _BLOCK_BYTES
        if num_bytes > self.limits.scratch_mb << 20:
            raise ValueError(f"files: together larger than the limit of {self.limits.scratch_mb} MiB")

    def _check_attachments(self, level: IsolationLevel) -> None:
        if len(self.attachments) > MAX_ATTACHMENTS:
            raise ValueError(f"attachments: expected at most {MAX_ATTACHMENTS}, got {len(self.attachments)}")
        if level.needs_image:
            raise ValueError(f"attachments: programs cannot read host files at the level {level}")
        if "attachments" in self.bindings:
            raise ValueError("bindings: 'attachments' is reserved for the paths of the attachments")
        if sum(len(os.fsencode(attachment.path)) for attachment in self.attachments) > _MAX_ATTACHMENT_PATH_BYTES:
            raise ValueError(f"attachments: the paths together exceed {_MAX_ATTACHMENT_PATH_BYTES} bytes")
        # If root started the pool, programs run as another user. Otherwise they run as the pool's user.
        needs_others = level.has_namespaces and os.geteuid() == 0
        for attachment in self.attachments:
            _check_attachment(attachment, needs_others=needs_others)

    @property
    def is_too_long(self) -> bool:
        """Whether the source exceeds `Limits.source_bytes`."""
        return len(self.code.encode("utf-8", "surrogatepass")) > self.limits.source_bytes

    def job(self) -> ProgramJob:
        """Return the job for a slot."""
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
            channels=self._channels,
        )

    @property
    def _channels(self) -> tuple[str, ...]:
        channels = (
            (REPORTS, bool(self._watched)),
            (CALLS, self.has_functions),
            (VALUE, self.candidate is not None and self.candidate.call is not None),
        )
        return tuple(name for name, is_needed in channels if is_needed)

    @property
    def has_functions(self) -> bool:
        """Whether the program may call functions."""
        return self.offer is not None and bool(self.offer.functions)

    @property
    def _watched(self) -> list[str]:
        """Names of the bindings that are watched. An empty one cannot be executed."""
        return [] if self.offer is None else [name for name in self.offer.watched if self.bindings[name]]

    def payload(self, *, level: IsolationLevel) -> bytes:
        """Encode the program: a line of JSON, then the concatenated files, then the standard input.

        The result copies all texts, so call this only when a slot is available.
        """
        bindings = {name: value if isinstance(value, str) else dict(value) for name, value in self.bindings.items()}
        if "attachments" not in bindings:
            bindings["attachments"] = {
                name: f"{ATTACHMENTS}/{name}" if level.has_namespaces else path for name, path in self.attachments
            }
        sizes = [(path, len(content)) for path, content in self.files.items()]
        header = json.dumps({"code": self.code, "bindings": bindings, "files": sizes, **self._additions()}).encode()
        stdin = self.stdin.encode("utf-8", "surrogatepass")
        return b"".join([header, b"\n", *self.files.values(), stdin])

    def _additions(self) -> dict[str, Any]:
        """Return the part of the header for functions, watched bindings and the call of a candidate."""
        offer, candidate = self.offer, self.candidate
        added: dict[str, Any] = {}
        if offer is not None and self.has_functions:
            added["functions"] = [{"name": each.name, "parameters": each.parameters} for each in offer.functions]
        if offer is not None and self._watched:
            added |= {"watched": self._watched, "refuses": offer.candidate_code == "refuse"}
        if candidate is not None and candidate.call is not None:
            added["call"] = {"name": candidate.call, "args": list(candidate.args), "kwargs": dict(candidate.kwargs)}
        return added


def attachments_of(paths: Mapping[str, str | os.PathLike[str]]) -> tuple[Attachment, ...]:
    """Check and resolve attachments. Links are followed now, so later changes of a link have no effect.

    Raises:
        ValueError: a name is invalid, or a path is not absolute.
    """
    return tuple(Attachment(name, _resolved(name, os.fspath(path))) for name, path in paths.items())


def _resolved(name: str, path: str) -> str:
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise ValueError(f"attachments: expected a name of letters, digits and ._-, got {name!r}")
    if not os.path.isabs(path) or "\0" in path:
        raise ValueError(f"attachments: {name}: expected an absolute path, got {path!r}")
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
        raise ValueError(
            f"attachments: {name}: programs run as another user, who may not read {path}; make it readable"
        )


def _check_path(path: str, *, field: str) -> None:
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{field}: expected a relative path without '..', got {path!r}")
    if not path.isprintable() or len(path.encode()) > _MAX_PATH_BYTES or max(len(p.encode()) for p in parts) > 255:
        raise ValueError(f"{field}: a path is too long, or contains characters that cannot be printed")
