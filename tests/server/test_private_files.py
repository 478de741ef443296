"""Files with request data are readable by the server's user only, for every umask."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tirjudge.durable import close_to_others, make_private_folder
from tirjudge_server.app import create_app
from tirjudge_server.openai.batchstore import BatchStore
from tirjudge_server.openai.filestore import FileStore
from tirjudge_server.records.database import open_database


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask under which new files are readable by all users."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[Path]:
    found = []
    for path in [folder, *folder.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # a file that is not finished gets another name meanwhile
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                found.append(path)
    return found


async def test_files_and_batches_are_private(make_service: Any, connect: Any, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "files"
    body = {"mode": "pointwise", "prompt": "p", "responses": ["r"], "tools": "off"}
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/judge", "body": {**body, **change}}
        for name, change in (("good", {}), ("bad", {"votes": 0}))
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    async with connect(create_app(make_service(["<score>7</score>"]), files=folder)) as client:
        form = {"purpose": "batch"}
        file = (await client.post("/v1/files", data=form, files={"file": ("a.jsonl", content)})).json()
        wanted = {"input_file_id": file["id"], "endpoint": "/v1/judge", "completion_window": "24h"}
        batch = (await client.post("/v1/batches", json=wanted)).json()
        async with asyncio.timeout(20):
            while batch["status"] != "completed":
                await asyncio.sleep(0.01)
                assert open_to_others(tmp_path / "state") == []
                batch = (await client.get(f"/v1/batches/{batch['id']}")).json()
    assert batch["output_file_id"]
    assert batch["error_file_id"]
    assert open_to_others(tmp_path / "state") == []


def test_world_readable_files_become_private(tmp_path: Path) -> None:
    for name, store in (("files", FileStore), ("batches", BatchStore)):
        (folder := tmp_path / name).mkdir(mode=0o755)
        (folder / "other.txt").touch(0o644)
        store(folder)
        assert open_to_others(folder) == []


def test_database_and_its_log_are_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.db"
    database = open_database(str(path))
    with database.writing() as connection:
        connection.exec_driver_sql("SELECT 1")
    assert path.with_name("records.db-wal").exists()
    assert open_to_others(tmp_path / "new") == []
    for file in path.parent.iterdir():
        file.chmod(0o644)
    database.close()
    open_database(str(path)).close()
    assert [file for file in open_to_others(path.parent) if file.exists()] == []


def test_new_folders_are_private_and_existing_ones_unchanged(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b" / "c")
    assert open_to_others(tmp_path / "a") == []
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_file_that_cannot_be_made_private_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)

    def refused(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "chmod", refused)
        with pytest.warns(RuntimeWarning, match="others may read it.*chmod go="):
            close_to_others(tmp_path)
