"""`tirjudge audit` verifies and exports the records. `tirjudge records` migrates them and erases fields."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tirjudge_server.records.options import RecordsUrl
from tirjudge_server.timestamps import parse_timestamp

audit = typer.Typer(no_args_is_help=True, help="Audit: whether the records are what was stored.")
app = typer.Typer(no_args_is_help=True, help="Records: their tables, and what is erased of them.")


@audit.command("verify")
def verify(
    records: RecordsUrl = None,
    expect: Annotated[str | None, typer.Option(help="A head that was noted before; it must be in the chain.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one object.")] = False,
) -> None:
    """Check every record and the chain. Status 1 if something was changed; the first such record is named."""
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
        typer.echo(f"{broken}; the {report.length} records before it are intact")
    if broken is not None:
        raise typer.Exit(1)


@audit.command("export")
def export(
    records: RecordsUrl = None,
    since: Annotated[str | None, typer.Option(help="A date, or such as 7d: that long ago.")] = None,
    until: Annotated[str | None, typer.Option(help="The same; what was stored before it.")] = None,
) -> None:
    """Print every record as a line of JSON, with all that it takes to check its hash."""
    from tirjudge_server.records.audit import export as export_database
    from tirjudge_server.records.database import opened
    from tirjudge_server.records.sealing import canonical

    since_ms = None if since is None else parse_timestamp(since, ahead=False)
    until_ms = None if until is None else parse_timestamp(until, ahead=False)
    with opened(records) as database:
        for record in export_database(database, since_ms=since_ms, until_ms=until_ms):
            typer.echo(canonical(record))


@app.command("migrate")
def migrate(records: RecordsUrl = None) -> None:
    """Make or update the tables, as every server does at its start; for one whose user may not do that."""
    from tirjudge_server.records.database import opened

    with opened(records) as database:
        typer.echo(f"{database} is up to date")


@app.command("erase")
def erase(
    judgment_id: Annotated[str, typer.Argument(help="jdg_...")],
    field: Annotated[list[str], typer.Option(help="Such as request.prompt; may be repeated.")],
    records: RecordsUrl = None,
) -> None:
    """Erase fields of a judgment for good. The chain stays whole, and says that it was done."""
    from tirjudge_server.records.chain import appending
    from tirjudge_server.records.database import RecordsError, opened
    from tirjudge_server.records.erasing import check_erasable
    from tirjudge_server.records.erasing import erase as erase_fields

    check_erasable(field)
    with opened(records) as database:
        with appending(database) as chain:
            found = erase_fields(chain, judgment_id=judgment_id, fields=field)
        if not found:
            raise RecordsError(f"judgment: {judgment_id} given, there is no such judgment on record")
        database.forget_erased()


@app.command("prune")
def prune(
    older_than: Annotated[str, typer.Option(help="A date, or such as 90d.")],
    records: RecordsUrl = None,
) -> None:
    """Erase what people and the model wrote from judgments of that age. Verdicts and the chain stay."""
    from tirjudge_server.records.chain import appending
    from tirjudge_server.records.database import opened
    from tirjudge_server.records.erasing import prune_some

    before_ms, total, num_erased = parse_timestamp(older_than, ahead=False), 0, 1
    with opened(records) as database:
        while num_erased:
            with appending(database) as chain:
                num_erased = prune_some(chain, before_ms=before_ms)
            total += num_erased
        database.forget_erased()
    typer.echo(f"{total} judgments were erased")
