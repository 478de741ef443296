"""Files on disk that clients upload and batches write: `ID.data` holds the content, `ID.json` the metadata.

A file exists when its `.json` exists. The `.json` is renamed into place after the content was synced, so that a crash leaves
either a complete file or a `.data` without a `.json`. Such leftovers are removed at the next start. The content is never
held in memory.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict

from tirjudge.durable import close_to_others, make_private_folder, private, remove_unfinished, sync, write_file
from tirjudge.http.protocol import invalid, shown
from tirjudge_web.errors import Refused

BATCH_FILE_DAYS = 30
"""Default number of days for which input and output files of batches are kept; OpenAI's default."""

_DAY_S = 86_400

Purpose = Literal["batch", "batch_output", "evals"]

QUOTA_EXCEEDED = "storage_quota_exceeded"
"""Error code of a refusal because the quota is full."""

_DO_NOT_RETRY = {"x-should-retry": "false"}
"""Header of such a refusal. OpenAI's clients retry a 429 without it, and a retry cannot succeed."""
_FREE_SPACE = "DELETE /v1/files/ID frees space, and deleting runs of evals; GET /v1/files lists the files"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuota:
    """Limits per caller. All callers without an API key share one quota."""

    num_bytes: int = 2 * 1024**3
    """Maximum total size of all files, output files of batches included. Running batches may write beyond it."""
    num_files: int = 1000
    """Maximum number of uploaded files and output files."""
    num_batches: int = 16
    """Maximum number of unfinished batches."""
    num_ended_batches: int = 1000
    """Maximum number of ended batches that are kept. The oldest are deleted first."""


class Upload:
    """A reservation of space for a file during its upload.

    Args:
        check: Raises `Refused` where a number of additional bytes exceeds the quota.
    """

    def __init__(self, check: Callable[[int], None]) -> None:
        self._check = check
        self.num_bytes = 0

    def hold(self, num_bytes: int) -> None:
        """Extend the reservation to a total size.

        Raises:
            Refused: 413, the quota is full.
        """
        if num_bytes > self.num_bytes:
            self._check(num_bytes - self.num_bytes)
            self.num_bytes = num_bytes


class StoredFile(BaseModel):
    """Metadata of a file: the fields of OpenAI's `File`, and its owner."""

    model_config = ConfigDict(frozen=True)

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    """Unix time in seconds."""
    expires_at: int | None
    """Unix time in seconds at which the file is deleted. None: never."""
    filename: str
    purpose: Purpose
    status: Literal["processed"] = "processed"
    owner: str | None = None
    """Name of the API key of its owner. None: uploaded without a key. Hidden from clients."""
    serial: int = 0
    """Orders files that were created in the same second. Hidden from clients."""

    def shown(self) -> dict[str, Any]:
        """Return the fields that clients see."""
        return self.model_dump(exclude={"owner", "serial"})


class FileStore:
    """All files of a server.

    Args:
        folder: Folder of the files. Created if missing.
        quota: Limits per owner.
        now: Returns the Unix time in seconds.

    Attributes:
        readers: Functions that return whether unfinished work reads a file. Such a file is kept, even after it has expired.
        other_bytes: Returns the size of an owner's other data that counts against the quota.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quota: FileQuota = FileQuota(),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._now = now
        self.quota = quota
        self._uploads: dict[Upload, str | None] = {}  # uploads in progress and their owners
        self._counting = threading.Lock()  # an upload becomes a file in one step: quotas count it once
        self._writing = threading.Lock()
        self.readers: list[Callable[[StoredFile], bool]] = []
        self.other_bytes: Callable[[str | None], int] = lambda owner: 0
        open_private_folder(folder)
        loaded = [StoredFile.model_validate_json(path.read_bytes()) for path in folder.glob("file-*.json")]
        self._files = {file.id: file for file in sorted(loaded, key=lambda file: file.serial)}
        for path in folder.glob("*.data"):
            if path.stem not in self._files:
                path.unlink()

    def new_id(self) -> str:
        """Return an unused file id."""
        return f"file-{uuid.uuid4().hex}"

    def path(self, file_id: str) -> Path:
        """Return the path of a file's content, existing or not."""
        return self._folder / f"{file_id}.data"

    def open_new(self, file_id: str) -> IO[bytes]:
        """Open the content of a new file for writing. Call `add` afterwards."""
        return open(self.path(file_id), "xb", opener=private)

    @contextmanager
    def receiving(self, owner: str | None, *, num_bytes: int) -> Iterator[Upload]:
        """Reserve space for an upload until the end of the block.

        Args:
            owner: Owner of the file. None: no API key.
            num_bytes: Declared size. 0: unknown.

        Raises:
            Refused: 413 or 429, the owner's quota is full.
        """
        self.sweep()
        upload = Upload(partial(self._check_bytes, owner))
        with self._counting:
            num_files = len(self._files_of(owner)) + len(self._uploads_of(owner))
            if num_files >= self.quota.num_files:
                message = f"file: {num_files} files are stored, the limit is {self.quota.num_files}; {_FREE_SPACE}"
                problem = invalid(message, param="file", code=QUOTA_EXCEEDED)
                raise Refused(problem, status=429, headers=_DO_NOT_RETRY)
            self._uploads[upload] = owner
        try:
            upload.hold(num_bytes)
            yield upload
        finally:
            self._uploads.pop(upload, None)

    def num_bytes_of(self, owner: str | None) -> int:
        """Return the total size of an owner's files and other data, uploads in progress included."""
        with self._counting:
            stored = sum(file.bytes for file in self._files_of(owner))
            uploaded = sum(upload.num_bytes for upload in self._uploads_of(owner))
        return stored + uploaded + self.other_bytes(owner)

    def _files_of(self, owner: str | None) -> list[StoredFile]:
        return [file for file in list(self._files.values()) if file.owner == owner]

    def _uploads_of(self, owner: str | None) -> list[Upload]:
        return [upload for upload, other in list(self._uploads.items()) if other == owner]

    def check_full(self, owner: str | None, *, num_bytes: int = 0) -> None:
        """Check that the owner's quota allows more files, or a number of further bytes.

        Raises:
            Refused: 413, the quota is full.
        """
        self.sweep()
        self._check_bytes(owner, num_bytes)

    def _check_bytes(self, owner: str | None, num_bytes: int) -> None:
        num_kept, limit = self.num_bytes_of(owner), self.quota.num_bytes
        if num_kept + num_bytes > limit:
            message = f"file: {num_bytes:,} more bytes given, {num_kept:,} of {limit:,} bytes are used; {_FREE_SPACE}"
            raise Refused(invalid(message, param="file", code=QUOTA_EXCEEDED), status=413, headers=_DO_NOT_RETRY)

    def add(
        self,
        file_id: str,
        *,
        filename: str,
        purpose: Purpose,
        owner: str | None,
        lifetime_s: int | None = None,
        upload: Upload | None = None,
    ) -> StoredFile:
        """Create a file from content that was written with `open_new`.

        Args:
            file_id: Id of the file.
            filename: Name that clients see.
            purpose: What the file is for.
            owner: Name of the owner's API key. None: no key.
            lifetime_s: Seconds until the file is deleted. None: `BATCH_FILE_DAYS`.
            upload: Reservation that the file replaces. None: no space was reserved.
        """
        path = self.path(file_id)
        sync(path)
        created = int(self._now())
        with self._writing:
            file = StoredFile(
                id=file_id,
                bytes=path.stat().st_size,
                created_at=created,
                expires_at=created + (BATCH_FILE_DAYS * _DAY_S if lifetime_s is None else lifetime_s),
                filename=filename,
                purpose=purpose,
                owner=owner,
                serial=max((other.serial for other in list(self._files.values())), default=0) + 1,
            )
            write_file(self._folder / f"{file_id}.json", file.model_dump_json())
            with self._counting:
                self._files[file_id] = file
                if upload is not None:
                    self._uploads.pop(upload, None)
        return file

    def get(self, file_id: str, *, owner: str | None) -> StoredFile:
        """Return the metadata of a file.

        Raises:
            Refused: 404, the owner has no such file.
        """
        self.sweep()
        file = self._files.get(file_id)
        if file is None or file.owner != owner:
            message = f"file: {shown(file_id)} not found"
            raise Refused(invalid(message, param="file_id", code="file_not_found"), status=404)
        return file

    def is_read(self, file: StoredFile) -> bool:
        """Whether unfinished work, such as a batch, reads a file."""
        return any(reads(file) for reads in self.readers)

    def has(self, file_id: str) -> bool:
        """Whether a file exists, of any owner."""
        return file_id in self._files

    def of(self, owner: str | None) -> list[StoredFile]:
        """Return all files of an owner, oldest first."""
        self.sweep()
        return self._files_of(owner)

    def remove(self, file_id: str) -> None:
        """Delete a file. The metadata goes first, so that a crash in between leaves a `.data` that the next start removes."""
        self._files.pop(file_id, None)
        (self._folder / f"{file_id}.json").unlink(missing_ok=True)
        self.path(file_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete expired files."""
        now = self._now()
        expired = [
            file for file in list(self._files.values()) if file.expires_at is not None and file.expires_at <= now
        ]
        for file in expired:
            if not self.is_read(file):
                self.remove(file.id)


def open_private_folder(folder: Path) -> None:
    """Create a folder for callers' data, or make an existing folder and its files inaccessible to other users."""
    make_private_folder(folder)
    remove_unfinished(folder)
    for path in (folder, *(path for path in folder.iterdir() if path.is_file())):
        close_to_others(path)
