"""`tirjudge audit` verifies and exports the records. `tirjudge records` migrates the database and erases fields."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tirjudge_server.records.options import RecordsUrl
from tirjudge_server.timestamps import parse_timestamp

audit = typer.Typer(no_args_is_help=True, help="Audit: verify and export the records of judgments.")
app = typer.Typer(no_args_is_help=True, help="Records: explain judgments, migrate the database, and erase fields.")


def _hash(given: str | None) -> str | None:
    if given is not None and not re.fullmatch("[0-9a-f]{64}", given):
        raise typer.BadParameter(f"{given!r} given; expected: 64 hexadecimal digits, as an audit prints them")
    return given


@audit.command("verify")
def verify(
    records: RecordsUrl = None,
    expect: Annotated[
        str | None, typer.Option(callback=_hash, help="Head of an earlier audit; must be in the chain.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")] = False,
) -> None:
    """Verify every record and the chain. Exits with status 1 and names the first broken record if there is one.

    Examples:
        tirjudge audit verify
        tirjudge audit verify --records postgresql://judge@db/tirjudge --json
    """
    from tirjudge_server.records.audit import verify as verify_database
    from tirjudge_server.records.database import opened

    with opened(records) as database:
        report = verify_database(database, expected=expect)
    broken = report.broken
    if as_json:
        found = None if broken is None else {"seq": broken.seq, "id": broken.record_id, "reason": broken.reason}
        shown = {"intact": broken is None, "length": report.length, "head": report.head, "broken": found}
        typer.echo(json.dumps(shown))
    elif broken is None:
        typer.echo(f"{report.length} records are intact; head {report.head}")
    else:
        before = f"; the {report.length} records before it are intact" if broken.seq == report.length + 1 else ""
        typer.echo(f"{broken}{before}")
    if broken is not None:
        raise typer.Exit(1)


@audit.command("export")
def export(
    records: RecordsUrl = None,
    since: Annotated[str | None, typer.Option(help="Only records from this date on; 7d: the last 7 days.")] = None,
    until: Annotated[str | None, typer.Option(help="Only records before this date; 7d: 7 days ago.")] = None,
) -> None:
    """Print every record as a line of JSON, with all values needed to verify its hash.

    Examples:
        tirjudge audit export --since 2026-11-01 > records.jsonl
    """
    from tirjudge_server.records.audit import export as export_database
    from tirjudge_server.records.database import opened
    from tirjudge_server.records.sealing import canonical

    since_ms = None if since is None else parse_timestamp(since, option="--since", ahead=False)
    until_ms = None if until is None else parse_timestamp(until, option="--until", ahead=False)
    with opened(records) as database:
        for record in export_database(database, since_ms=since_ms, until_ms=until_ms):
            typer.echo(canonical(record))


@app.command("migrate")
def migrate(records: RecordsUrl = None) -> None:
    """Create or update the tables. Servers do this at their start; use it if their database user lacks the permission.

    Examples:
        tirjudge records migrate --records postgresql://owner@db/tirjudge
    """
    from tirjudge_server.records.database import opened

    with opened(records, create=True) as database:
        typer.echo(f"{database} is up to date")


@app.command("explain")
def explain(
    judgment_id: Annotated[str, typer.Argument(help="jdg_...")],
    output: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write a JSON object in place of a page.")] = False,
    records: RecordsUrl = None,
) -> None:
    """Write the account of a judgment: one page with its claims, calls, stores, hashes and verdict.

    Examples:
        tirjudge records explain jdg_0123 --output judgment.html
    """
    from tirjudge.durable import private
    from tirjudge_server.records.account import account_of
    from tirjudge_server.records.account_page import account_page
    from tirjudge_server.records.database import RecordsError, opened
    from tirjudge_server.records.store import find_record

    with opened(records) as database:
        try:
            record = find_record(database, judgment_id=judgment_id)
        except ValueError as error:
            raise RecordsError(f"judgment: the record of {judgment_id} is damaged: {error}") from error
    if record is None:
        raise RecordsError(f"judgment: {judgment_id} is not on record")
    account = account_of(record)
    text = account.model_dump_json(indent=2) if as_json else account_page(account)
    if output is None:
        typer.echo(text)
    else:
        with open(output, "w", encoding="utf-8", opener=private) as file:
            file.write(text + "\n")


@app.command("labels")
def labels(
    output: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    by_person: Annotated[
        bool, typer.Option("--by-person", help="Write the label of each person, in place of their majority.")
    ] = False,
    records: RecordsUrl = None,
) -> None:
    """Write the judgments that people labeled as rows of JSON, for `tirjudge bench run --data FILE.jsonl`.

    The exit status is 1 if there are none; then no file is written.

    Examples:
        tirjudge records labels --output people.jsonl
        tirjudge records labels --by-person --output people.jsonl   # for the agreement of the people
    """
    from tirjudge.durable import private
    from tirjudge_server.records.database import opened
    from tirjudge_server.records.labels import labeled_rows

    with opened(records) as database:
        rows = labeled_rows(database, by_person=by_person)
        first = next(rows, None)
        if first is None:
            typer.echo(
                "tirjudge records labels: no judgment with a prompt and several responses has a label of a person; label "
                "some at /ui/judgments",
                err=True,
            )
            raise typer.Exit(1)
        lines = (json.dumps(row, ensure_ascii=False) for row in chain([first], rows))
        if output is None:
            for line in lines:
                typer.echo(line)
        else:
            with open(output, "w", encoding="utf-8", opener=private) as file:
                file.writelines(f"{line}\n" for line in lines)


@app.command("erase")
def erase(
    judgment_id: Annotated[str, typer.Argument(help="jdg_...")],
    field: Annotated[list[str], typer.Option(help="Field to erase, such as request.prompt; may be repeated.")],
    records: RecordsUrl = None,
) -> None:
    """Erase fields of a judgment permanently. The chain stays intact and records the erasure.

    Examples:
        tirjudge records erase jdg_0123 --field request.prompt
    """
    from tirjudge_server.records.chain import appending
    from tirjudge_server.records.database import RecordsError, opened
    from tirjudge_server.records.erasing import check_erasable
    from tirjudge_server.records.erasing import erase as erase_fields

    check_erasable(field)
    with opened(records) as database:
        with appending(database) as chain:
            found = erase_fields(chain, judgment_id=judgment_id, fields=field)
        if not found:
            raise RecordsError(f"judgment: {judgment_id} is not on record")
        database.forget_erased()


@app.command("prune")
def prune(
    older_than: Annotated[str, typer.Option(help="A date, or an age such as 90d.")],
    records: RecordsUrl = None,
) -> None:
    """Erase the texts of requests and turns from judgments that are older. Verdicts and the chain stay.

    Examples:
        tirjudge records prune --older-than 90d
    """
    from tirjudge_server.records.chain import appending
    from tirjudge_server.records.database import opened
    from tirjudge_server.records.erasing import prune_some

    before_ms = parse_timestamp(older_than, option="--older-than", ahead=False)
    total, num_erased = 0, 1
    with opened(records) as database:
        while num_erased:
            with appending(database) as chain:
                num_erased = prune_some(chain, before_ms=before_ms)
            total += num_erased
        database.forget_erased()
    typer.echo(f"{total} judgments were erased")
