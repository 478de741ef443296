"""Files that clients upload and batches write, on disk: `ID.data` with the content and `ID.json` with what it is.

A file exists once its `.json` does, which is renamed into place after the content was synced, so that a crash leaves
either all of a file or a `.data` without its `.json`; such leftovers are removed at the next start. The content is
never held in memory.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict

from tirjudge.durable import close_to_others, make_private_folder, private, remove_unfinished, sync, write_file
from tirjudge.http.protocol import invalid, shown
from tirjudge_web.errors import Refused

BATCH_FILE_DAYS = 30
"""How long files for and from batches are kept if nothing else was asked for, as OpenAI keeps them."""

_DAY_S = 86_400

QUOTA_EXCEEDED = "storage_quota_exceeded"
"""The code of the error."""

_FOR_GOOD = {"x-should-retry": "false"}
_FREE_SPACE = "DELETE /v1/files/ID frees space, GET /v1/files lists the files"
"""Clients take a 429 for something that passes, and this does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuota:
    """What one caller may keep at a server; all who come without a key are one caller."""

    num_bytes: int = 2 * 1024**3
    """Of all files, those that batches wrote included; they are written even beyond it."""
    num_files: int = 1000
    """Uploaded files and files of batches."""
    num_batches: int = 16
    """Batches that have not ended."""
    num_ended_batches: int = 1000
    """Ended batches that are remembered; the oldest are forgotten first."""


class Upload:
    """Room that is held for a file while it comes in."""

    def __init__(self, take: Callable[[int], None], *, num_bytes: int) -> None:
        self._take = take
        self.num_bytes = num_bytes

    def hold(self, num_bytes: int) -> None:
        """Let there be room for that much in all.

        Raises:
            Refused: 413, there is not.
        """
        if num_bytes > self.num_bytes:
            self._take(num_bytes - self.num_bytes)
            self.num_bytes = num_bytes


class StoredFile(BaseModel):
    """What is known of a file. The fields of OpenAI's `File`, and whose it is."""

    model_config = ConfigDict(frozen=True)

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    """Unix time, seconds."""
    expires_at: int | None
    """When it is removed; None: never."""
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"] = "processed"
    owner: str | None = None
    """Name of the key that it came with; None: there was none. Not shown."""
    serial: int = 0
    """Orders files of one second. Not shown."""

    def shown(self) -> dict[str, object]:
        """As clients see it."""
        return self.model_dump(exclude={"owner", "serial"})


class FileStore:
    """All files of a server.

    Args:
        folder: where they lie; made if it is not there.
        quota: what one owner may keep.
        now: Unix time, seconds.

    Attributes:
        is_read: whether a batch still needs a file; such a file is not removed, even after its time.
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
        self._num_held_bytes: Counter[str | None] = Counter()  # of uploads that come in now, by owner
        self._num_uploads: Counter[str | None] = Counter()
        self._writing = threading.Lock()
        self.is_read: Callable[[StoredFile], bool] = lambda file: False
        open_private_folder(folder)
        loaded = [StoredFile.model_validate_json(path.read_bytes()) for path in folder.glob("file-*.json")]
        self._files = {file.id: file for file in sorted(loaded, key=lambda file: file.serial)}
        for path in folder.glob("*.data"):
            if path.stem not in self._files:
                path.unlink()

    def new_id(self) -> str:
        return f"file-{uuid.uuid4().hex}"

    def path(self, file_id: str) -> Path:
        """Where the content of a file lies, or will."""
        return self._folder / f"{file_id}.data"

    def open_new(self, file_id: str) -> IO[bytes]:
        """A file to write the content to, before `add`."""
        return open(self.path(file_id), "xb", opener=private)

    @contextmanager
    def receiving(self, owner: str | None, *, num_bytes: int) -> Iterator[Upload]:
        """Hold room for a file that comes in, until the end of the block; there it was added, or is given up.

        Args:
            owner: whose it will be.
            num_bytes: as much as it says to be; 0: it does not say.

        Raises:
            Refused: 413 or 429, the owner keeps too much already.
        """
        self.sweep()
        num_files = len([file for file in list(self._files.values()) if file.owner == owner]) + self._num_uploads[owner]
        if num_files >= self.quota.num_files:
            message = f"file: {num_files} files are kept already, at most {self.quota.num_files} may be; {_FREE_SPACE}"
            problem = invalid(message, param="file", code=QUOTA_EXCEEDED)
            raise Refused(problem, status=429, headers=_FOR_GOOD)
        upload = Upload(partial(self._hold, owner), num_bytes=0)
        self._num_uploads[owner] += 1
        try:
            upload.hold(num_bytes)
            yield upload
        finally:
            self._num_uploads[owner] -= 1
            self._num_held_bytes[owner] -= upload.num_bytes

    def num_bytes_of(self, owner: str | None) -> int:
        """Of all files of an owner, and of those that come in."""
        return (
            sum(file.bytes for file in list(self._files.values()) if file.owner == owner) + self._num_held_bytes[owner]
        )

    def check_full(self, owner: str | None) -> None:
        """Whether a batch of an owner may write more files.

        Raises:
            Refused: 413, the owner keeps too much already.
        """
        self.sweep()
        self._hold(owner, 0)

    def _hold(self, owner: str | None, num_bytes: int) -> None:
        num_kept, most = self.num_bytes_of(owner), self.quota.num_bytes
        if num_kept + num_bytes > most:
            message = f"file: {num_bytes:,} more bytes given, {num_kept:,} of {most:,} bytes are taken; {_FREE_SPACE}"
            raise Refused(invalid(message, param="file", code=QUOTA_EXCEEDED), status=413, headers=_FOR_GOOD)
        self._num_held_bytes[owner] += num_bytes

    def add(
        self,
        file_id: str,
        *,
        filename: str,
        purpose: Literal["batch", "batch_output"],
        owner: str | None,
        lifetime_s: int | None = None,
    ) -> StoredFile:
        """Let the content that was written under `file_id` be a file.

        Args:
            lifetime_s: seconds until it is removed; None: thirty days.
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
            self._files[file_id] = file
        return file

    def get(self, file_id: str, *, owner: str | None) -> StoredFile:
        """
        Raises:
            Refused: there is no such file of this owner's.
        """
        self.sweep()
        file = self._files.get(file_id)
        if file is None or file.owner != owner:
            raise Refused(invalid(f"file: no {shown(file_id)}", param="file_id", code="file_not_found"), status=404)
        return file

    def has(self, file_id: str) -> bool:
        """Whether there is such a file, whosever it is."""
        return file_id in self._files

    def of(self, owner: str | None) -> list[StoredFile]:
        """All files of an owner, the oldest first."""
        self.sweep()
        return [file for file in list(self._files.values()) if file.owner == owner]

    def remove(self, file_id: str) -> None:
        """The description first: what has none is a leftover."""
        self._files.pop(file_id, None)
        (self._folder / f"{file_id}.json").unlink(missing_ok=True)
        self.path(file_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what has expired."""
        now = self._now()
        expired = [
            file for file in list(self._files.values()) if file.expires_at is not None and file.expires_at <= now
        ]
        for file in expired:
            if not self.is_read(file):
                self.remove(file.id)


def open_private_folder(folder: Path) -> None:
    """Make a folder for what callers sent, or close one that is there to others, with the files in it."""
    make_private_folder(folder)
    remove_unfinished(folder)
    for path in (folder, *(path for path in folder.iterdir() if path.is_file())):
        close_to_others(path)
