"""Batches on disk: `ID.json` says where a batch stands, `ID.output` and `ID.errors` hold the lines that are done.

The lines are the progress: a batch that is continued after a restart runs the requests that are not in them.
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


class BatchCounts(BaseModel):
    model_config = ConfigDict(frozen=True)

    total: int = 0
    completed: int = 0
    failed: int = 0


class LineError(BaseModel):
    model_config = ConfigDict(frozen=True)

    code: str
    message: str
    line: int | None = None
    """Counted from 1; None: it is about the whole file."""
    param: str | None = None


class LineErrors(BaseModel):
    model_config = ConfigDict(frozen=True)

    object: Literal["list"] = "list"
    data: list[LineError]


class StoredBatch(BaseModel):
    """The fields of OpenAI's `StoredBatch`, and what only the server knows. Times are Unix time, seconds."""

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
    """Name of the key that it came with; None: there was none. Not shown."""
    output_lifetime_s: int | None = None
    """How long its files are kept; None: as long as any. Not shown."""
    ending: Literal["completed", "expired", "cancelled"] = "completed"
    """What it becomes once finalized. Not shown."""
    serial: int = 0
    """Orders batches of one second. Not shown."""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def shown(self) -> dict[str, Any]:
        """As clients see it."""
        return self.model_dump(exclude={"owner", "output_lifetime_s", "ending", "serial"})


@dataclass(slots=True, kw_only=True)
class BatchProgress:
    """The lines of a batch that are done."""

    done: set[bytes] = field(default_factory=set)
    """Digests of their custom ids."""
    num_completed: int = 0
    num_failed: int = 0

    def counts(self, *, total: int) -> BatchCounts:
        return BatchCounts(total=total, completed=self.num_completed, failed=self.num_failed)

    def add(self, custom_id: str, *, failed: bool) -> None:
        self.done.add(digest(custom_id))
        self.num_failed += failed
        self.num_completed += not failed


def digest(custom_id: str) -> bytes:
    """A custom id in sixteen bytes, however long it is."""
    return hashlib.sha256(custom_id.encode("utf-8", "surrogatepass")).digest()[:16]


class BatchStore:
    """All batches of a server.

    Args:
        folder: where they lie; made if it is not there.
        quota: what one owner may keep.
        now: Unix time, seconds.
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
        return int(self._now())

    def create(self, *, window_s: int, owner: str | None, **fields: Any) -> StoredBatch:
        """A batch that is about to be validated.

        Raises:
            Refused: 429, too many batches of this owner have not ended.
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
        own = self.of(owner)
        num_unfinished, most = sum(not batch.has_ended for batch in own), self._quota.num_batches
        if num_unfinished >= most:
            message = (
                f"batch: {num_unfinished} batches have not ended, at most {most} may be under way; "
                "wait for one, or end one with POST /v1/batches/ID/cancel"
            )
            problem = invalid(message, param="input_file_id", code="too_many_batches")
            raise Refused(problem, status=429, headers={"x-should-retry": "false"})
        ended = [batch for batch in own if batch.has_ended]
        for batch in ended[: max(0, len(ended) - self._quota.num_ended_batches)]:
            self._batches.pop(batch.id)
            self.forget_lines(batch.id)
            (self._folder / f"{batch.id}.json").unlink(missing_ok=True)

    def update(self, batch_id: str, **fields: Any) -> StoredBatch:
        """The batch with other fields, on disk."""
        with self._writing:
            batch = self._batches[batch_id].model_copy(update=fields)
            self._put(batch)
        return batch

    def count(self, batch_id: str, progress: BatchProgress) -> None:
        """How far a batch is, in memory alone: the lines on disk say it too."""
        batch = self._batches[batch_id]
        counts = progress.counts(total=batch.request_counts.total)
        self._batches[batch_id] = batch.model_copy(update={"request_counts": counts})

    def get(self, batch_id: str, *, owner: str | None) -> StoredBatch:
        """
        Raises:
            Refused: there is no such batch of this owner's.
        """
        batch = self._batches.get(batch_id)
        if batch is None or batch.owner != owner:
            message = f"batch: no {shown(batch_id)}"
            raise Refused(invalid(message, param="batch_id", code="batch_not_found"), status=404)
        return batch

    def known(self, batch_id: str) -> StoredBatch:
        """A batch that is there, whosever it is."""
        return self._batches[batch_id]

    def of(self, owner: str | None) -> list[StoredBatch]:
        """All batches of an owner, the oldest first."""
        return [batch for batch in list(self._batches.values()) if batch.owner == owner]

    def unfinished(self) -> list[StoredBatch]:
        return [batch for batch in list(self._batches.values()) if not batch.has_ended]

    def path(self, batch_id: str, kind: Kind) -> Path:
        """Where the lines that are done lie."""
        return self._folder / f"{batch_id}.{kind}"

    def appending(self, batch_id: str, kind: Kind) -> IO[bytes]:
        """The file of these lines, to add some."""
        return open(self.path(batch_id, kind), "ab", opener=private)

    def progress(self, batch_id: str) -> BatchProgress:
        """What is done, read back from the lines; a last line that was not written whole is cut off."""
        progress = BatchProgress()
        for kind in KINDS:
            path = self.path(batch_id, kind)
            for custom_id in _custom_ids(path):
                progress.add(custom_id, failed=kind == "errors")
        return progress

    def keep(self, batch_id: str, kind: Kind, target: Path) -> bool:
        """Let the lines be found at `target` as well; whether there are any."""
        path = self.path(batch_id, kind)
        if not path.exists() or path.stat().st_size == 0:
            return False
        target.unlink(missing_ok=True)
        try:
            os.link(path, target)
        except OSError:
            # Not every file system has links.
            with path.open("rb") as lines, open(target, "xb", opener=private) as copy:
                shutil.copyfileobj(lines, copy)
        return True

    def forget_lines(self, batch_id: str) -> None:
        """Once its files are there, a batch needs its lines no longer."""
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
