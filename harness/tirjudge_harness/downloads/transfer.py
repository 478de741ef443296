"""Download one file. A partial file is kept after an error or a kill, and the next download continues it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx2

from tirjudge.durable import UNFINISHED, sync
from tirjudge_harness.downloads.remote_files import RemoteFile
from tirjudge_harness.downloads.snapshot import sha256_of_file
from tirjudge_harness.items import InputError

TIMEOUT_S = 30.0
"""Maximum seconds without any data."""

OnBytes = Callable[[int], None]
"""Called with the number of bytes on disk."""


class _Dropped(Exception):
    """The connection was lost; the partial file can be continued."""


def download_file(
    file: RemoteFile, to: Path, *, client: httpx2.Client, headers: Mapping[str, str], on_bytes: OnBytes
) -> str:
    """Download a file and return its SHA-256. The file appears under its name only if size and checksums are right.

    As long as each attempt receives data, a lost connection is continued.

    Args:
        file: the file.
        to: path to write. Missing parent folders are created.
        client: HTTP client that follows redirects.
        headers: headers of the request.
        on_bytes: called as data arrives.

    Raises:
        InputError: the file cannot be downloaded, or has another size or checksum.
        OSError: the disk is full, or the file cannot be written.
    """
    partial = to.with_name(f"{UNFINISHED}{to.name}")
    to.parent.mkdir(parents=True, exist_ok=True)
    while True:
        start = _size_of(partial)
        try:
            _receive(file, partial, start=start, client=client, headers=headers, on_bytes=on_bytes)
            break
        except _Dropped as dropped:
            if _size_of(partial) <= start:
                raise InputError(
                    f"{file.url}: cannot be downloaded: {dropped}; check the network, and run the same command "
                    "again to continue"
                ) from dropped
    sha256 = _checked(file, partial)
    sync(partial)
    partial.replace(to)
    return sha256


def _receive(
    file: RemoteFile, partial: Path, *, start: int, client: httpx2.Client, headers: Mapping[str, str], on_bytes: OnBytes
) -> None:
    """Append the rest of a file to the partial file, or write it from the start if the server sends all of it.

    Raises:
        _Dropped: the connection failed or ended early.
        InputError: the server refuses, or sends more than the expected size.
    """
    if start and start == file.size:
        return
    asked = {**headers, "Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        with client.stream("GET", file.url, headers=asked) as response:
            if response.status_code == httpx2.codes.RANGE_NOT_SATISFIABLE:
                partial.unlink(missing_ok=True)
                raise _Dropped("the server does not have the rest of the partial file")
            _check_status(file, response)
            resumes = response.status_code == httpx2.codes.PARTIAL_CONTENT
            num = start if resumes else 0
            with partial.open("ab" if resumes else "wb") as out:
                for chunk in response.iter_raw():
                    num += len(chunk)
                    if file.size is not None and num > file.size:
                        raise InputError(f"{file.url}: sends more than the expected {file.size} bytes")
                    out.write(chunk)
                    on_bytes(num)
    except httpx2.RequestError as error:
        raise _Dropped(f"{type(error).__name__}: {error}") from error
    if file.size is not None and num < file.size:
        raise _Dropped(f"the connection ended after {num} of {file.size} bytes")


def _check_status(file: RemoteFile, response: httpx2.Response) -> None:
    if response.status_code in (401, 403):
        raise InputError(
            f"{file.url}: access denied (HTTP {response.status_code}); accept the conditions of the data set and set HF_TOKEN"
        )
    if response.status_code >= 500 or response.status_code == 429:
        raise _Dropped(f"HTTP {response.status_code}")
    if response.status_code not in (200, 206):
        raise InputError(f"{file.url}: cannot be downloaded: HTTP {response.status_code}")


def _checked(file: RemoteFile, partial: Path) -> str:
    """Return the SHA-256 of a complete file. A file with another checksum is deleted.

    Raises:
        InputError: the size or a checksum is not the expected one.
    """
    sha256 = sha256_of_file(partial)
    problems = [
        f"{what} {found[:12]} instead of {expected[:12]}"
        for what, found, expected in (
            ("SHA-256", sha256, file.sha256 or sha256),
            ("git id", _git_sha1(partial) if file.git_sha1 else "", file.git_sha1 or ""),
        )
        if found != expected
    ]
    if problems:
        partial.unlink()
        raise InputError(f"{file.url}: wrong checksum: {problems[0]}; the file was deleted, run the same command again")
    return sha256


def _git_sha1(path: Path) -> str:
    """Return the id of a file as a git blob."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
