"""Download the parts of a benchmark to a folder. Files that are already there and unchanged are kept."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tirjudge.durable import lock_folder, write_file
from tirjudge_harness.benchmark import Benchmark, BuiltInSource, HubSource
from tirjudge_harness.downloads.remote_files import RemoteFile, RemoteSource, remote_source
from tirjudge_harness.downloads.snapshot import (
    SNAPSHOT,
    DataFile,
    DataSnapshot,
    DownloadedPart,
    OpenSnapshot,
    find_snapshot,
    sha256_of_file,
)
from tirjudge_harness.downloads.transfer import TIMEOUT_S, download_file
from tirjudge_harness.items import InputError

OnFile = Callable[[str, int | None], Callable[[int], None]]
"""Called with the name and the size of a file before its download. Returns a function that takes the number of bytes on
disk."""


def download(benchmark: Benchmark, *, root: Path, parts: Sequence[str] = (), on_file: OnFile) -> OpenSnapshot:
    """Download the parts of a benchmark to `root/NAME`, and return the folder.

    Args:
        benchmark: the benchmark.
        root: folder of all benchmarks.
        parts: parts to download. Empty: the default parts.
        on_file: shows the progress.

    Raises:
        InputError: unknown part, the benchmark needs no download, or a file cannot be downloaded.
        StorageError: another process writes the folder.
    """
    wanted = _sources(benchmark, parts)
    folder = root / benchmark.name
    with _writing(folder), _locked(folder):
        found = find_snapshot(folder, benchmark=benchmark.name)
        writer = _ManifestWriter(folder, DataSnapshot(benchmark=benchmark.name) if found is None else found.manifest)
        with httpx2.Client(follow_redirects=True, timeout=TIMEOUT_S) as client:
            for part, source in wanted.items():
                remote = remote_source(source)
                for file in remote.files:
                    writer.add(
                        part,
                        source,
                        remote,
                        _file(file, remote, part=part, writer=writer, client=client, on_file=on_file),
                    )
    return OpenSnapshot(folder=folder, manifest=writer.manifest)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_folder(folder, closed=False)
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Convert an OSError in the block to an InputError."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        problem = "the disk is full; free space and" if is_full else f"cannot be written: {error.strerror};"
        raise InputError(f"{error.filename or folder}: {problem} run the same command again to continue") from error


def _sources(benchmark: Benchmark, parts: Sequence[str]) -> dict[str, HubSource]:
    wanted: dict[str, HubSource] = {}
    for part in parts or benchmark.default_parts:
        source = benchmark.sources.get(part)
        if source is None:
            raise InputError(f"--part: {benchmark.name} has no part {part!r}; choose {', '.join(benchmark.sources)}")
        if isinstance(source, BuiltInSource):
            raise InputError(f"{benchmark.name}: the rows are part of this package and need no download")
        wanted[part] = source
    return wanted


class _ManifestWriter:
    """The manifest of a folder, written after each file, so that a stopped download can be continued."""

    def __init__(self, folder: Path, manifest: DataSnapshot) -> None:
        self.folder, self.manifest = folder, manifest
        self._before = {file.path: file for _, file in manifest.files()}

    def add(self, part: str, source: HubSource, remote: RemoteSource, file: DataFile) -> None:
        """Add a file to a part. Files of another revision are removed from the part."""
        before = self.manifest.parts.get(part)
        urls = {one.url: one for one in before.files} if before is not None else {}
        urls[file.url] = file
        files = tuple(urls[one.url] for one in remote.files if one.url in urls)
        downloaded = DownloadedPart(
            source=source.id,
            config=source.config,
            revision=remote.revision,
            license=remote.license,
            at=int(time.time()),
            files=files,
            complete=len(files) == len(remote.files),
        )
        self.manifest = self.manifest.model_copy(update={"parts": {**self.manifest.parts, part: downloaded}})
        write_file(self.folder / SNAPSHOT, self.manifest.model_dump_json(indent=2) + "\n", closed=False)

    def kept(self, file: RemoteFile, *, name: str) -> str | None:
        """Return the SHA-256 of a file that is on disk and is the file at the URL; None: it must be downloaded."""
        path, before = self.folder / name, self._before.get(name)
        expected = file.sha256 or (before.sha256 if before is not None and before.url == file.url else None)
        return expected if expected is not None and path.is_file() and sha256_of_file(path) == expected else None


def _file(
    file: RemoteFile,
    remote: RemoteSource,
    *,
    part: str,
    writer: _ManifestWriter,
    client: httpx2.Client,
    on_file: OnFile,
) -> DataFile:
    """Return a file that is on disk. It is downloaded unless it is there with the expected checksum."""
    name = f"{part}/{file.path}"
    path = writer.folder / name
    sha256 = writer.kept(file, name=name)
    if sha256 is None:
        on_bytes = on_file(name, file.size)
        sha256 = download_file(file, path, client=client, headers=remote.headers, on_bytes=on_bytes)
    return DataFile(path=name, url=file.url, split=file.split, size=path.stat().st_size, sha256=sha256)
