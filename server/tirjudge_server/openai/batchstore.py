"""Batches on disk. `ID.json` holds the state of a batch; `ID.output` and `ID.errors` hold the lines that are done.

These lines are the progress of a batch: after a restart, the batch runs the requests that have no line yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict

from tirjudge.durable import private, write_file
from tirjudge.http.protocol import invalid, shown
from tirjudge_server.openai.filestore import FileQuota, open_private_folder
from tirjudge_web.errors import Refused

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
Kind = Literal["output", "errors"]
KINDS: tuple[Kind, ...] = ("output", "errors")
ENDED = ("failed", "completed", "expired", "cancelled")
"""Final states."""


class BatchCounts(BaseModel):
    """Numbers of requests in a batch."""

    model_config = ConfigDict(frozen=True)

    total: int = 0
    completed: int = 0
    failed: int = 0


class LineError(BaseModel):
    """An error in an input file."""

    model_config = ConfigDict(frozen=True)

    code: str
    """Name of the error."""
    message: str
    """What is wrong."""
    line: int | None = None
    """Line number, from 1. None: the error concerns the whole file."""
    param: str | None = None
    """Field of the line. None: no single field."""


class LineErrors(BaseModel):
    """The errors in an input file, as an OpenAI list."""

    model_config = ConfigDict(frozen=True)

    object: Literal["list"] = "list"
    """Always `list`."""
    data: list[LineError]
    """The errors."""


class StoredBatch(BaseModel):
    """The fields of OpenAI's `Batch`, and fields that only the server uses. Times are Unix time in seconds."""

    model_config = ConfigDict(frozen=True)

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None = None
    errors: LineErrors | None = None
    input_file_id: str
    completion_window: str
    status: Status = "validating"
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: BatchCounts = BatchCounts()
    usage: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    owner: str | None = None
    """Name of the API key that created the batch. None: created without a key. Hidden from clients."""
    output_lifetime_s: int | None = None
    """Seconds for which its output files are kept. None: the default for files. Hidden from clients."""
    ending: Literal["completed", "expired", "cancelled"] = "completed"
    """Status after finalizing. Hidden from clients."""
    serial: int = 0
    """Orders batches that were created in the same second. Hidden from clients."""

    @property
    def has_ended(self) -> bool:
        """Whether the batch is in a final state."""
        return self.status in ENDED

    def shown(self) -> dict[str, Any]:
        """Return the fields that clients see."""
        return self.model_dump(exclude={"owner", "output_lifetime_s", "ending", "serial"})


@dataclass(slots=True, kw_only=True)
class BatchProgress:
    """The lines of a batch that are done."""

    done: set[bytes] = field(default_factory=set)
    """Digests of the custom ids of these lines."""
    num_completed: int = 0
    num_failed: int = 0

    def counts(self, *, total: int) -> BatchCounts:
        """Return the counts that clients see."""
        return BatchCounts(total=total, completed=self.num_completed, failed=self.num_failed)

    def add(self, custom_id: str, *, failed: bool) -> None:
        """Count a line as done."""
        self.done.add(digest(custom_id))
        self.num_failed += failed
        self.num_completed += not failed


def digest(custom_id: str) -> bytes:
    """Return a 16-byte digest of a custom id, so that long ids take little memory."""
    return hashlib.sha256(custom_id.encode("utf-8", "surrogatepass")).digest()[:16]


class BatchStore:
    """All batches of a server.

    Args:
        folder: Folder of the batches. Created if missing.
        quota: Limits per owner.
        now: Returns the Unix time in seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        quota: FileQuota = FileQuota(),  # noqa: B008 (it is frozen)
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._quota = quota
        self._now = now
        self._writing = threading.Lock()
        open_private_folder(folder)
        loaded = [StoredBatch.model_validate_json(path.read_bytes()) for path in folder.glob("batch_*.json")]
        self._batches = {batch.id: batch for batch in sorted(loaded, key=lambda batch: batch.serial)}

    def now(self) -> int:
        """Return the Unix time in whole seconds."""
        return int(self._now())

    def create(self, *, window_s: int, owner: str | None, **fields: Any) -> StoredBatch:
        """Create a batch in the state `validating`.

        Args:
            window_s: Seconds until the batch expires.
            owner: Name of the caller's API key. None: no key.
            fields: Other fields of the batch.

        Raises:
            Refused: 429, the owner has too many unfinished batches.
        """
        self._check_room(owner)
        created = self.now()
        serial = max((batch.serial for batch in list(self._batches.values())), default=0) + 1
        batch = StoredBatch(
            id=f"batch_{uuid.uuid4().hex}",
            created_at=created,
            expires_at=created + window_s,
            serial=serial,
            owner=owner,
            **fields,
        )
        self._put(batch)
        return batch

    def _check_room(self, owner: str | None) -> None:
        """Refuse another batch if the owner's quota is full, and forget the oldest ended batches beyond it."""
        own = self.of(owner)
        num_unfinished, limit = sum(not batch.has_ended for batch in own), self._quota.num_batches
        if num_unfinished >= limit:
            message = (
                f"batch: {num_unfinished} batches are unfinished, the limit is {limit}; "
                "wait until one ends, or cancel one with POST /v1/batches/ID/cancel"
            )
            problem = invalid(message, param="input_file_id", code="too_many_batches")
            raise Refused(problem, status=429, headers={"x-should-retry": "false"})
        ended = [batch for batch in own if batch.has_ended]
        for batch in ended[: max(0, len(ended) - self._quota.num_ended_batches)]:
            self._batches.pop(batch.id)
            self.forget_lines(batch.id)
            (self._folder / f"{batch.id}.json").unlink(missing_ok=True)

    def update(self, batch_id: str, **fields: Any) -> StoredBatch:
        """Change fields of a batch, on disk and in memory. Return the batch."""
        with self._writing:
            batch = self._batches[batch_id].model_copy(update=fields)
            self._put(batch)
        return batch

    def count(self, batch_id: str, progress: BatchProgress) -> None:
        """Set the counts of a batch in memory. The files of done lines are the copy on disk."""
        batch = self._batches[batch_id]
        counts = progress.counts(total=batch.request_counts.total)
        self._batches[batch_id] = batch.model_copy(update={"request_counts": counts})

    def get(self, batch_id: str, *, owner: str | None) -> StoredBatch:
        """Return a batch of an owner.

        Raises:
            Refused: 404, the owner has no such batch.
        """
        batch = self._batches.get(batch_id)
        if batch is None or batch.owner != owner:
            message = f"batch: {shown(batch_id)} not found"
            raise Refused(invalid(message, param="batch_id", code="batch_not_found"), status=404)
        return batch

    def known(self, batch_id: str) -> StoredBatch:
        """Return an existing batch, of any owner."""
        return self._batches[batch_id]

    def of(self, owner: str | None) -> list[StoredBatch]:
        """Return all batches of an owner, oldest first."""
        return [batch for batch in list(self._batches.values()) if batch.owner == owner]

    def unfinished(self) -> list[StoredBatch]:
        """Return the batches of all owners that are not in a final state."""
        return [batch for batch in list(self._batches.values()) if not batch.has_ended]

    def path(self, batch_id: str, kind: Kind) -> Path:
        """Return the path of the file with the done lines of a batch."""
        return self._folder / f"{batch_id}.{kind}"

    def appending(self, batch_id: str, kind: Kind) -> IO[bytes]:
        """Open the file with the done lines of a batch for appending."""
        return open(self.path(batch_id, kind), "ab", opener=private)

    def progress(self, batch_id: str) -> BatchProgress:
        """Read the progress of a batch from its done lines. An incomplete last line is cut off."""
        progress = BatchProgress()
        for kind in KINDS:
            path = self.path(batch_id, kind)
            for custom_id in _custom_ids(path):
                progress.add(custom_id, failed=kind == "errors")
        return progress

    def keep(self, batch_id: str, kind: Kind, target: Path) -> bool:
        """Link or copy the done lines of a batch to `target`. Return False if there are no lines."""
        path = self.path(batch_id, kind)
        if not path.exists() or path.stat().st_size == 0:
            return False
        target.unlink(missing_ok=True)
        try:
            os.link(path, target)
        except OSError:
            # The file system has no hard links.
            with path.open("rb") as lines, open(target, "xb", opener=private) as copy:
                shutil.copyfileobj(lines, copy)
        return True

    def forget_lines(self, batch_id: str) -> None:
        """Remove the done lines of a batch whose output files exist."""
        for kind in KINDS:
            self.path(batch_id, kind).unlink(missing_ok=True)

    def _put(self, batch: StoredBatch) -> None:
        write_file(self._folder / f"{batch.id}.json", batch.model_dump_json())
        self._batches[batch.id] = batch


def _custom_ids(path: Path) -> Iterator[str]:
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = 0
        while line := file.readline():
            custom_id = _custom_id(line)
            if custom_id is None:
                file.truncate(end)
                return
            end += len(line)
            yield custom_id


def _custom_id(line: bytes) -> str | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)["custom_id"]
    except (ValueError, KeyError, TypeError):
        return None
