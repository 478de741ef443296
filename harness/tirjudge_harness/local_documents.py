"""Documents of a local folder that come with the requests of a run, as the store `documents`.

    FOLDER/*.txt, *.md, *.pdf        the documents of every example
    FOLDER/ID/*.txt, *.md, *.pdf     the documents of the example with this id, instead of those

The folder is read once. Programs of the judge search it with the functions of the tool `evidence`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tirjudge.http.protocol import problem_of
from tirjudge.types import MAX_ATTACHED_BYTES, AttachedStore
from tirjudge_harness.items import InputError

STORE = "documents"
"""Name of the store in programs."""

_FORMATS = {".txt": "text", ".md": "markdown", ".pdf": "pdf"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDocuments:
    """The documents of a folder."""

    of_all: AttachedStore | None
    """Documents of the folder itself. None: it has none."""
    of_example: Mapping[str, AttachedStore]
    """Id of an example -> documents of its own folder."""

    def of(self, id: str) -> AttachedStore | None:
        """Return the store for an example. None: no document."""
        return self.of_example.get(id, self.of_all)

    @property
    def sha256(self) -> str:
        """Hash of all documents and their names, 64 hex digits."""
        stores = {"": self.of_all, **self.of_example}
        listed = [
            (id, file.name, hashlib.sha256(file.content).hexdigest())
            for id, store in sorted(stores.items())
            if store is not None
            for file in store.files
        ]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def read_documents(folder: Path) -> LocalDocuments:
    """Read the documents of a folder and of its subfolders.

    Raises:
        InputError: the folder does not exist, has no document, or has more than a request may have.
    """
    if not folder.is_dir():
        raise InputError(f"--documents: {folder}: no such folder")
    inner = sorted(path for path in folder.iterdir() if path.is_dir())
    documents = LocalDocuments(
        of_all=_store(folder),
        of_example={path.name: store for path in inner if (store := _store(path)) is not None},
    )
    if documents.of_all is None and not documents.of_example:
        raise InputError(f"--documents: {folder}: no document; give files with {', '.join(_FORMATS)}")
    return documents


def _store(folder: Path) -> AttachedStore | None:
    """Return the documents of a folder as a store; None without documents."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in _FORMATS)
    if not paths:
        return None
    num_bytes = sum(path.stat().st_size for path in paths)
    if num_bytes > MAX_ATTACHED_BYTES:
        raise InputError(f"--documents: {folder}: {num_bytes:,} bytes, a request may have {MAX_ATTACHED_BYTES:,}")
    files = [
        {
            "name": path.name,
            "format": _FORMATS[path.suffix.lower()],
            "base64": base64.b64encode(path.read_bytes()).decode(),
        }
        for path in paths
    ]
    try:
        return AttachedStore.model_validate({"name": STORE, "kind": "documents", "files": files})
    except ValidationError as error:
        raise InputError(f"--documents: {folder}: {problem_of(error).message}") from error
