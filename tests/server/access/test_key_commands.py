"""The commands `tirjudge keys`, `tirjudge audit` and `tirjudge records`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tirjudge.cli import main
from tirjudge_server.access.cli import app as keys
from tirjudge_server.access.keys import KeyRefused
from tirjudge_server.timestamps import parse_timestamp


@pytest.fixture
def database(tmp_path: Path, monkeypatch) -> str:
    path = str(tmp_path / "records.db")
    monkeypatch.setenv("TIRJUDGE_RECORDS", path)
    return path


def keys_run(*arguments: str) -> str:
    done = CliRunner().invoke(keys, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_key_is_printed_once(database: str) -> None:
    key = keys_run(
        "create", "alice", "--scope", "judge", "--scope", "reward", "--rpm", "60", "--expires", "30d"
    ).strip()
    assert key.startswith("tj_")
    assert len(key) == 46
    listed = keys_run("list")
    assert key not in listed
    header, row = listed.splitlines()
    assert header.split() == ["name", "key", "scopes", "rpm", "tpm", "concurrency", "state"]
    assert row.split()[:5] == ["alice", f"{key[:11]}...", "judge,reward", "60", "until"]
    shown = json.loads(keys_run("list", "--json"))
    assert (shown["scopes"], shown["ended"], shown["tpm"]) == (["judge", "reward"], None, None)
    assert "digest" not in shown
    keys_run("revoke", "alice")
    assert "revoked" in keys_run("list")


def test_the_first_key_warns_that_open_servers_close(database: str) -> None:
    first, second = (CliRunner().invoke(keys, ["create", name]) for name in ("alice", "bob"))
    assert "servers with these records refuse callers without a key" in first.stderr
    assert second.stderr == ""


def test_an_existing_key_is_added_once_and_not_printed(database: str, monkeypatch) -> None:
    monkeypatch.setenv("FIRST", "0123456789" * 4)
    create = ["create", "first", "--scope", "admin", "--given-in", "FIRST"]
    assert keys_run(*create) == keys_run(*create) == ""
    _, row = keys_run("list").splitlines()
    assert row.split() == ["first", "01234567890...", "admin"]
    monkeypatch.setenv("FIRST", "another key, with the same name as the first one")
    assert isinstance(CliRunner().invoke(keys, create).exception, KeyRefused)
    monkeypatch.setenv("FIRST", "a" * 39)
    refused = CliRunner().invoke(keys, ["create", "second", "--given-in", "FIRST"])
    assert "at least 40 random characters" in str(refused.exception)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["keys", "revoke", "carol"], 2, "no key has this name"),
        (["keys", "create", "x", "--scope", "jugde"], 2, "expected: judge"),
        (["audit", "verify"], 0, "0 records are intact"),
        (["records", "migrate"], 0, "is up to date"),
        (["records", "erase", "jdg_x", "--field", "turns"], 2, "not on record"),
        (["records", "labels"], 1, "has a label of a person; label some at /ui/judgments"),
        (["records", "prune", "--older-than", "1d"], 0, "0 judgments were erased"),
    ],
)
def test_a_command_prints_one_line(
    database: str, monkeypatch, capsys, arguments: list[str], status: int, said: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["tirjudge", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output = "".join(capsys.readouterr())
    assert (ended.value.code or 0, output.count("\n")) == (status, 1), output
    assert said in output


def test_timestamps_are_dates_or_time_spans() -> None:
    assert parse_timestamp("1970-01-02", ahead=False) == 86_400_000
    assert parse_timestamp("1970-01-01T01:00+01:00", ahead=False) == 0
    assert parse_timestamp("2d", ahead=True) - parse_timestamp("2d", ahead=False) == pytest.approx(
        4 * 86_400_000, abs=60_000
    )
    with pytest.raises(Exception, match="use 2030-01-31"):
        parse_timestamp("soon", ahead=True)
