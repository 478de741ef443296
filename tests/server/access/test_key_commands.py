"""The commands `tirjudge keys`, `tirjudge audit` and `tirjudge records`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tirjudge.cli import main
from tirjudge_server.access.cli import app as keys
from tirjudge_server.access.keys import KeyRefused
from tirjudge_server.records.database import open_database
from tirjudge_server.timestamps import parse_timestamp


@pytest.fixture
def database(tmp_path: Path, monkeypatch) -> str:
    path = str(tmp_path / "records.db")
    monkeypatch.setenv("TIRJUDGE_RECORDS", path)
    open_database(path).close()
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
        (["audit", "verify", "--expect", "0" * 63 + "1"], 1, "no record has the hash"),
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["records", "prune", "--older-than", "old"], "--older-than: 'old' given; use 2030-01-31"),
        (
            ["keys", "create", "alice", "--expires", "2020-01-01"],
            "--expires: '2020-01-01' given; expected: a time in",
        ),
        (["audit", "verify", "--expect", "abc"], "'--expect': 'abc' given; expected: 64 hexadecimal digits"),
    ],
)
def test_an_invalid_option_is_named(database: str, monkeypatch, capsys, arguments: list[str], said: str) -> None:
    monkeypatch.setattr(sys, "argv", ["tirjudge", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert said in " ".join(capsys.readouterr().err.split())


def test_timestamps_are_dates_or_time_spans() -> None:
    assert parse_timestamp("1970-01-02", option="--since", ahead=False) == 86_400_000
    assert parse_timestamp("1970-01-01T01:00+01:00", option="--since", ahead=False) == 0
    two_days_ms = parse_timestamp("2d", option="--expires", ahead=True) - time.time() * 1000
    assert two_days_ms == pytest.approx(2 * 86_400_000, abs=60_000)
    with pytest.raises(typer.BadParameter, match="use 2030-01-31"):
        parse_timestamp("soon", option="--since", ahead=False)
    for past in ("0d", "2020-01-01"):
        with pytest.raises(typer.BadParameter, match="a time in the future"):
            parse_timestamp(past, option="--expires", ahead=True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "verify"],
        ["audit", "export"],
        ["keys", "list"],
        ["keys", "revoke", "alice"],
        ["records", "prune", "--older-than", "1d"],
        ["records", "labels"],
    ],
)
def test_a_missing_database_is_not_created(arguments: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    missing = tmp_path / "recrods.db"
    monkeypatch.setattr(sys, "argv", ["tirjudge", *arguments, "--records", str(missing)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{missing} does not exist" in capsys.readouterr().err
    assert not missing.exists()
