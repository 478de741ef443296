"""A local HTTP server of files, with ranges, lost connections and errors; and the part of the hub's interface that downloads
use: https://huggingface.co/docs/hub/api."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(slots=True)
class FileServer:
    """The content of a running server."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Path -> content."""
    cut: dict[str, int] = field(default_factory=dict)
    """Path -> number of bytes after which the next response breaks off."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Path -> status instead of the file."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and `Range` of each request for a file."""
    ignores_ranges: bool = False
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Id of a data set on the hub -> path -> content."""
    large: frozenset[str] = frozenset()
    """Paths of repository files that are stored in Git LFS."""
    missing: list[str] = field(default_factory=list)
    """Requests for which the server has no answer."""


@contextmanager
def serving() -> Iterator[FileServer]:
    """Start a server on a free port, and stop it at the end."""
    content = FileServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET(has_body=False)

        def do_GET(self, *, has_body: bool = True) -> None:
            path = unquote(urlsplit(self.path).path)
            if path.startswith("/api/datasets/"):
                recursive = "recursive=true" in self.path.lower()
                self.answer(_of_hub(content, path.removeprefix("/api/datasets/"), recursive=recursive), path=path)
                return
            self.send_file(path, has_body=has_body)

        def do_POST(self) -> None:
            path = unquote(urlsplit(self.path).path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            is_json = "json" in self.headers.get("Content-Type", "")
            paths = json.loads(body)["paths"] if is_json else parse_qs(body).get("paths", [])
            repository, _, rest = path.removeprefix("/api/datasets/").partition("/paths-info/")
            known = content.repositories.get(repository) if rest else None
            found = None if known is None else [_entry(content, one, known[one]) for one in paths if one in known]
            self.answer(found, path=path)

        def answer(self, document: Any, *, path: str) -> None:
            if document is None:
                content.missing.append(path)
            body = json.dumps({"error": "not found"} if document is None else document).encode()
            self.send_response(404 if document is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send_file(self, path: str, *, has_body: bool) -> None:
            given = self.headers.get("Range", "")
            if has_body:
                content.requests.append((path, given))
            data, status = _data(content, path), content.statuses.get(path, 200)
            if data is None or status != 200:
                self.send_response(404 if status == 200 else status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = 0 if content.ignores_ranges else int(given.removeprefix("bytes=").partition("-")[0] or 0)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(data) - start))
            self.send_header("ETag", f'"{_git_sha1(data)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if has_body:
                end = content.cut.pop(path, len(data))
                self.wfile.write(data[start:end])
                self.close_connection = end < len(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    content.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield content
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _data(content: FileServer, path: str) -> bytes | None:
    if path.startswith("/datasets/"):
        repository, _, rest = path.removeprefix("/datasets/").partition("/resolve/")
        return content.repositories.get(repository, {}).get(rest.partition("/")[2])
    return content.files.get(path)


def _of_hub(content: FileServer, path: str, *, recursive: bool) -> Any:
    """Return the description of a data set, or the list of its files and folders."""
    owner, name, *rest = path.split("/")
    files = content.repositories.get(f"{owner}/{name}")
    if files is None:
        return None
    if rest[:1] == ["tree"]:
        return list(_tree(content, files, folder="/".join(rest[2:]), recursive=recursive))
    return {
        "id": f"{owner}/{name}",
        "sha": COMMIT,
        "private": False,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "cardData": {"license": "mit"},
        "siblings": [{"rfilename": one} for one in files],
    }


def _tree(content: FileServer, files: Mapping[str, bytes], *, folder: str, recursive: bool) -> Iterator[Any]:
    root = PurePosixPath(folder)
    below = [path for path in map(PurePosixPath, files) if path.is_relative_to(root)]
    folders = {parent for path in below for parent in path.parents if parent != root and parent.is_relative_to(root)}
    for one in sorted(folders):
        if recursive or one.parent == root:
            yield {"type": "directory", "path": str(one), "oid": "1" * 40, "size": 0}
    for path in below:
        if recursive or path.parent == root:
            yield _entry(content, str(path), files[str(path)])


def _entry(content: FileServer, path: str, data: bytes) -> Mapping[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _git_sha1(data)}
    if path in content.large:
        sha256 = hashlib.sha256(data).hexdigest()
        entry |= {"oid": "0" * 40, "lfs": {"oid": sha256, "size": len(data), "pointerSize": 130}}
    return entry


def _git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
