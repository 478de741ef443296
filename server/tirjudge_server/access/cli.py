"""`tirjudge keys`: create, list and revoke the API keys of the servers on one database."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from tirjudge_server.records.options import RecordsUrl
from tirjudge_server.timestamps import parse_timestamp

app = typer.Typer(no_args_is_help=True, help="Keys: create, list and revoke the API keys of servers.")


CLOSED = (
    "This is the first key. From now on, servers with these records refuse callers without a key, also running servers that "
    "were open. Send the key as `Authorization: Bearer KEY`."
)
"""Warning when a server that needed no keys starts to need them."""


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Name of the caller in records.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="judge, reward, read, label, audit or admin; may be repeated; default: judge, reward, read."),
    ] = None,
    rpm: Annotated[int | None, typer.Option(min=1, help="Maximum requests per minute.")] = None,
    tpm: Annotated[int | None, typer.Option(min=1, help="Maximum tokens per minute.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Maximum concurrent judgments; more wait.")] = None,
    expires: Annotated[str | None, typer.Option(help="A date, or a time span such as 30d; default: never.")] = None,
    given_in: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE", help="Environment variable that holds an existing key to add; it is not printed."
        ),
    ] = None,
    records: RecordsUrl = None,
) -> None:
    """Create a key and print it. It cannot be printed again: only its hash is stored.

    The first key closes servers that were open: they then refuse callers without a key.

    Examples:
        tirjudge keys create alice
        tirjudge keys create trainer --scope reward --rpm 600 --expires 30d
    """
    from tirjudge_server.access.keys import create_key, load_keys
    from tirjudge_server.records.database import opened

    expires_ms = None if expires is None else parse_timestamp(expires, option="--expires", ahead=True)
    scopes = scope or ["judge", "reward", "read"]
    given = None if given_in is None else os.environ.get(given_in, "")
    with opened(records, create=True) as database:
        is_first = not load_keys(database)
        secret = create_key(
            database,
            name=name,
            scopes=scopes,
            rpm=rpm,
            tpm=tpm,
            concurrency=concurrency,
            expires_ms=expires_ms,
            given=given,
        )
    if is_first:
        typer.echo(CLOSED, err=True)
    if given is None:
        typer.echo(secret)


@app.command("list")
def list_keys(
    records: RecordsUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List all keys, expired and revoked ones included. Only the first characters of a key are shown.

    Examples:
        tirjudge keys list
    """
    import time

    from rich.console import Console
    from rich.table import Table

    from tirjudge_server.access.keys import load_keys
    from tirjudge_server.records.database import opened

    now_ms = time.time_ns() // 1_000_000
    with opened(records) as database:
        found = load_keys(database)
    if as_json:
        for key in found:
            shown = asdict(key) | {"scopes": sorted(key.scopes), "ended": key.ended(now_ms=now_ms)}
            del shown["digest"]
            typer.echo(json.dumps(shown))
        return
    table = Table("name", "key", "scopes", "rpm", "tpm", "concurrency", "state", box=None, pad_edge=False)
    for key in found:
        limits = ("" if limit is None else str(limit) for limit in (key.rpm, key.tpm, key.concurrency))
        state = key.ended(now_ms=now_ms) or ""
        if key.expires_ms is not None and not state:
            state = f"until {datetime.fromtimestamp(key.expires_ms / 1000, tz=UTC):%Y-%m-%d %H:%M UTC}"
        table.add_row(key.name, f"{key.prefix}...", ",".join(sorted(key.scopes)), *limits, state)
    Console(width=None if Console().is_terminal else 160).print(table)


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument()], records: RecordsUrl = None) -> None:
    """Revoke a key. Servers refuse it within seconds. Its name stays in records and cannot be used for another key.

    Examples:
        tirjudge keys revoke alice
    """
    from tirjudge_server.access.keys import revoke_key
    from tirjudge_server.records.database import opened

    with opened(records) as database:
        revoke_key(database, name=name)
