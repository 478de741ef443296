"""The downloaded folder of a benchmark: its files, and a manifest with their sizes, checksums, revision and license."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from tirjudge_harness.items import InputError
from tirjudge_harness.run_store import StoredModel, read_stored

SNAPSHOT = "tirjudge-data.json"
"""Name of the manifest in the folder of a benchmark."""

_CHUNK = 1 << 20


class DataFile(StoredModel):
    """A downloaded file."""

    path: str
    """Path relative to the folder of the benchmark, with `/`."""
    url: str
    """Address that the file came from."""
    split: str | None = None
    """Name of the split of all rows. None: the part has a single split."""
    size: int
    """Size in bytes."""
    sha256: str
    """Checksum, 64 hex digits."""


class DownloadedPart(StoredModel):
    """The files of one part of a benchmark."""

    source: str
    """Repository on the hub; `json` for files at URLs."""
    config: str | None = None
    """Configuration of the data set. None: the default."""
    revision: str
    """Commit of the repository, or the branch that was requested if the commit is not known."""
    license: str | None = None
    """License that the repository or the benchmark names. None: unknown."""
    at: int
    """Unix time of the download in seconds."""
    files: tuple[DataFile, ...]
    """The files in the order of their rows."""
    complete: bool = True
    """Whether all files are there. False: the download stopped, and the next one continues it."""

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(file.size for file in self.files)


class DataSnapshot(StoredModel):
    """The manifest of a downloaded folder."""

    benchmark: str
    parts: dict[str, DownloadedPart] = Field(default_factory=dict)
    """Part -> its files."""

    def files(self) -> Iterator[tuple[str, DataFile]]:
        """Yield each file with its part."""
        for part, downloaded in self.parts.items():
            yield from ((part, file) for file in downloaded.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSnapshot:
    """A downloaded folder whose manifest was read."""

    folder: Path
    manifest: DataSnapshot

    def verified_files(self, part: str) -> Iterator[tuple[Path, DataFile]]:
        """Yield the files of a part, each after its checksum was compared.

        Raises:
            InputError: the part was not downloaded, or a file is missing or changed.
        """
        downloaded = self.manifest.parts.get(part)
        if downloaded is None or not downloaded.complete:
            how = "not downloaded" if downloaded is None else "not downloaded completely"
            raise InputError(f"{self.folder}: part {part} was {how}; run {self._command(part)}")
        for file in downloaded.files:
            problem = self.problem(file)
            if problem is not None:
                raise InputError(
                    f"{self.folder / file.path}: {problem}; to download it again, run {self._command(part)}"
                )
            yield self.folder / file.path, file

    def problem(self, file: DataFile) -> str | None:
        """Return how a file differs from the manifest; None if it is the same."""
        path = self.folder / file.path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return "the file is missing"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        if size != file.size:
            return f"the file changed since the download: {size} bytes instead of {file.size}"
        found = sha256_of_file(path)
        if found == file.sha256:
            return None
        return f"the file changed since the download: SHA-256 {found[:12]} instead of {file.sha256[:12]}"

    def _command(self, part: str) -> str:
        return f"`tirjudge bench download {self.manifest.benchmark} --part {part} --out {self.folder.parent}`"


def find_snapshot(data: Path, *, benchmark: str) -> OpenSnapshot | None:
    """Return the downloaded folder of a benchmark: `data`, or the folder with the name of the benchmark in it.

    None: the folder has no manifest.

    Raises:
        InputError: the manifest is damaged, or belongs to another benchmark.
    """
    for folder in (data, data / benchmark):
        if (folder / SNAPSHOT).is_file():
            manifest = read_stored(folder / SNAPSHOT, model=DataSnapshot)
            if manifest.benchmark != benchmark:
                raise InputError(f"--data: {folder} has the rows of {manifest.benchmark}, not of {benchmark}")
            return OpenSnapshot(folder=folder, manifest=manifest)
    return None


def snapshots_in(root: Path) -> list[OpenSnapshot]:
    """Return all downloaded folders in a folder, by name.

    Raises:
        InputError: a manifest is damaged.
    """
    found = sorted(root.glob(f"*/{SNAPSHOT}")) if root.is_dir() else []
    return [OpenSnapshot(folder=path.parent, manifest=read_stored(path, model=DataSnapshot)) for path in found]


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
