"""`tirjudge evals`. Heavy modules are imported inside the commands, so that `tirjudge --help` stays fast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tirjudge.http import DEFAULT_URL
from tirjudge_harness.options import ApiKey, AsJson
from tirjudge_harness.reports.cli import TableFormat, write_tables
from tirjudge_harness.reports.formats import ReportFormat

if TYPE_CHECKING:
    from tirjudge_harness.evals.objects import EvalRun
    from tirjudge_harness.evals.server import EvalsServer

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run evals of OpenAI's Evals API on a tirjudge server."
)

ServerUrl = Annotated[str, typer.Option("--url", envvar="TIRJUDGE_URL", help="URL of the server.")]
EvalId = Annotated[str, typer.Argument(metavar="EVAL", help="Id of the eval.")]
ExportFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="JSON or JSONL files, or folders of them, with evals, runs, output items and rows."
    ),
]
MinPassRate = Annotated[
    float | None,
    typer.Option("--min-pass-rate", min=0.0, max=1.0, help="Exit with 1 if a smaller share of the rows passes."),
]


@contextmanager
def _opened(url: str, api_key: str | None) -> Iterator[EvalsServer]:
    from tirjudge.client import Client
    from tirjudge_harness.evals.server import EvalsServer

    with Client(url.removesuffix("/v1"), api_key=api_key) as client:
        yield EvalsServer(client)


@app.command("list")
def list_evals(
    eval_id: Annotated[str | None, typer.Argument(metavar="EVAL", help="List the runs of this eval.")] = None,
    format: TableFormat = ReportFormat.TERMINAL,
    url: ServerUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """List the evals of a server, or the runs of one eval, newest first.

    Examples:
        tirjudge evals list
        tirjudge evals list eval_0123 --url http://judge:8400
    """
    from tirjudge_harness.evals.report import evals_table, runs_table

    with _opened(url, api_key) as server:
        table = evals_table(server.evals()) if eval_id is None else runs_table(server.runs(eval_id), title=eval_id)
    write_tables([table], format=format, out=None)


@app.command()
def show(
    eval_id: EvalId,
    run_id: Annotated[str | None, typer.Argument(metavar="RUN", help="Id of a run. Default: the latest.")] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Id of an earlier run of the eval to compare with.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="List the rows that did not pass.")] = False,
    format: TableFormat = ReportFormat.TERMINAL,
    json: AsJson = False,
    url: ServerUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show the results of a run, with Wilson's 95 % intervals.

    With --against, the two runs are compared on the rows that they have in common, with McNemar's exact test.

    Examples:
        tirjudge evals show eval_0123 --failed
        tirjudge evals show eval_0123 evalrun_0456 --against evalrun_0123
    """
    from tirjudge_harness.evals.report import comparison_table, items_table
    from tirjudge_harness.items import InputError

    if json and (failed or against is not None):
        raise InputError("--json prints the run; remove --failed and --against, or use --format json")
    with _opened(url, api_key) as server:
        run = next(server.runs(eval_id), None) if run_id is None else server.run(eval_id, run_id)
        if run is None:
            raise InputError(f"{eval_id} has no run; start one with `tirjudge evals run {eval_id} --data FILE`")
        if against is not None:
            first, second = list(server.items(server.run(eval_id, against))), list(server.items(run))
            title = f"{against}, then {run.id}"
            write_tables([comparison_table(first, second, title=title)], format=format, out=None)
        elif failed:
            items = [item for status in ("error", "fail") for item in server.items(run, status=status)]
            write_tables([items_table(items, title=f"{run.id}: rows that did not pass")], format=format, out=None)
        else:
            _print_run(run, format=format, json=json)


def _print_run(run: EvalRun, *, format: ReportFormat, json: bool) -> None:
    from tirjudge_harness.evals.report import run_tables

    if json:
        typer.echo(run.model_dump_json())
        return
    tables = run_tables(run)
    for_readers = format in (ReportFormat.TERMINAL, ReportFormat.MARKDOWN, ReportFormat.LATEX)
    write_tables(tables if for_readers else tables[:1], format=format, out=None)


@app.command()
def run(
    eval_id: EvalId,
    data: Annotated[Path, typer.Option("--data", help='JSONL file, {"item": {...}, "sample": {...}} per line.')],
    model: Annotated[
        str | None, typer.Option("--model", help="Model of --sample-url that writes the samples. Default: none.")
    ] = None,
    messages: Annotated[
        Path | None,
        typer.Option("--messages", help="JSON file: the messages that the model answers, with placeholders."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the run.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write the results to, for `tirjudge bench report`.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the results, and print them.")] = True,
    min_pass_rate: MinPassRate = None,
    json: AsJson = False,
    url: ServerUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Run an eval over the rows of a file, and print the results.

    The run goes on at the server if this command is stopped. The exit status is 1 if the run fails, if a row has an error,
    or if fewer rows pass than --min-pass-rate.

    Examples:
        tirjudge evals run eval_0123 --data rows.jsonl --min-pass-rate 0.9
        tirjudge evals run eval_0123 --data rows.jsonl --out runs/first
    """
    from rich.console import Console

    from tirjudge_harness.evals.starting import data_source, read_messages
    from tirjudge_harness.items import InputError

    template = None if messages is None else read_messages(messages)
    if (model is None) != (template is None):
        raise InputError("--model and --messages: only one given; a model answers messages, so give both")
    if min_pass_rate is not None and not wait:
        raise InputError("--min-pass-rate needs the results; remove --no-wait")
    if out is not None and not wait:
        raise InputError("--out needs the results; remove --no-wait, or write them later with `tirjudge evals export`")
    console = Console(stderr=True)
    with _opened(url, api_key) as server:
        try:
            rows = data.read_bytes()
        except OSError as error:
            raise InputError(f"{data}: cannot be read: {error.strerror}") from error
        file_id = server.upload(rows, name=data.name)
        source = data_source(file_id, model=model, messages=template)
        started = server.start(eval_id, {"name": name, "data_source": source})
        console.print(f"started {started.id}; see it with: tirjudge evals show {eval_id} {started.id}", soft_wrap=True)
        if started.report_url is not None:
            console.print(f"page: {started.report_url}", markup=False, highlight=False, soft_wrap=True)
        if wait:
            try:
                started = server.wait(started, console=console)
            except KeyboardInterrupt:
                console.print(f"Stopped waiting. The server continues {started.id}.", soft_wrap=True)
                raise typer.Exit(130) from None
        if out is not None:
            _export(server, started, folder=out)
    _print_run(started, format=ReportFormat.TERMINAL, json=json)
    _check(started, wait=wait, min_pass_rate=min_pass_rate)


def _check(run: EvalRun, *, wait: bool, min_pass_rate: float | None) -> None:
    """Exit with 1 if the results of a run are not those that were asked for."""
    counts = run.result_counts
    problems: list[str] = []
    if wait and run.status != "completed":
        problems.append(f"the run is {run.status}")
    if counts.errored:
        problems.append(f"{counts.errored} rows have an error; see them with --failed of `tirjudge evals show`")
    if min_pass_rate is not None and counts.passed < min_pass_rate * (counts.passed + counts.failed):
        problems.append(f"{counts.passed} of {counts.passed + counts.failed} rows pass, less than {min_pass_rate:g}")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)


@app.command()
def export(
    eval_id: EvalId,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write. It replaces an older export.")],
    url: ServerUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Write the results of a run to a run folder of `tirjudge bench`.

    `tirjudge bench report`, `compare` and `show` read the folder, and `tirjudge serve --runs` shows it on pages. An item is a
    row with one criterion, or with all criteria. A run that has not ended is written as far as its rows are graded.

    Examples:
        tirjudge evals export eval_0123 evalrun_0456 runs/first
    """
    with _opened(url, api_key) as server:
        _export(server, server.run(eval_id, run_id), folder=folder)


def _export(server: EvalsServer, run: EvalRun, *, folder: Path) -> None:
    from tirjudge_harness.evals.run_folder import write_eval_run

    write_eval_run(folder, server.eval(run.eval_id), run, list(server.items(run)))
    typer.echo(f"wrote {folder}; see it with: tirjudge bench report {folder}", err=True)


@app.command()
def convert(
    files: ExportFiles,
    out: Annotated[Path, typer.Option("--out", help="Folder to write the run folders to, one for each run.")],
    index: Annotated[
        bool, typer.Option("--index", help="Also prepare the runs for pages, as `tirjudge bench index` does.")
    ] = False,
) -> None:
    """Write the runs of an export of OpenAI's API to run folders of `tirjudge bench`, without a server.

    The folders have the results of the export: nothing is graded again.

    Examples:
        tirjudge evals convert export/ --out runs/openai
    """
    from tirjudge_harness.evals.exports import read_export
    from tirjudge_harness.evals.run_folder import write_eval_run
    from tirjudge_harness.items import InputError

    found = read_export(files)
    if not found.runs:
        raise InputError(
            f"{', '.join(map(str, files))}: no run found; add the files of the runs and their output items"
        )
    for run in found.runs.values():
        folder = out / _folder_name(run.id)
        write_eval_run(folder, found.evals[run.eval_id], run, found.items_of(run.id))
        if index:
            from tirjudge_harness.reports.pages.indexing import index_run

            index_run(folder)
        typer.echo(str(folder))


def _folder_name(run_id: str) -> str:
    """Return the name of the folder of a run.

    Raises:
        InputError: The id is not a file name.
    """
    from tirjudge_harness.items import InputError

    if not run_id.replace("_", "").replace("-", "").isalnum() or not run_id.isascii() or len(run_id) > 128:
        raise InputError(f"{run_id[:128]!r}: not the id of a run; expected: letters, digits, _ and -")
    return run_id


@app.command("import")
def import_files(
    files: ExportFiles,
    rename_model: Annotated[
        list[str] | None,
        typer.Option(
            "--rename-model", metavar="OLD=NEW", help="Model of graders, and its name on the server; repeatable."
        ),
    ] = None,
    runs: Annotated[bool, typer.Option("--runs/--no-runs", help="Run the runs of the export again.")] = True,
    url: ServerUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Import evals that OpenAI's API returned, and run their runs again.

    The rows of a run are its output items, with the samples of the export; or else the rows in its data source or in the
    files. The table has the number of rows with the same result as in the export, for each criterion. The exit status is 1
    if a criterion without a model has other results than in the export, or if a run fails.

    Examples:
        tirjudge evals import export/ --rename-model gpt-4o-mini=tirjudge-mini
    """
    from rich.console import Console

    from tirjudge_harness.evals.exports import read_export
    from tirjudge_harness.evals.importing import import_export
    from tirjudge_harness.evals.report import import_table
    from tirjudge_harness.evals.starting import renamed_models

    export = read_export(files)
    console = Console(stderr=True)
    with _opened(url, api_key) as server:
        imported = import_export(
            server, export, models=renamed_models(rename_model or []), reruns=runs, console=console
        )
    if any(each.criteria for one in imported for each in one.runs):
        write_tables([import_table(imported)], format=ReportFormat.TERMINAL, out=None)
    problems = [
        f"{one.exported.id}: not run again, the export does not have its rows: {without.id}"
        for one in imported
        for without in one.without_rows
    ]
    changed = [
        f"{each.run.id}: {criterion.name}: other results in rows {', '.join(map(str, criterion.different[:10]))}"
        for one in imported
        for each in one.runs
        for criterion in each.criteria
        if criterion.is_deterministic and criterion.different
    ]
    ended = [f"{each.run.id} is {each.run.status}" for one in imported for each in one.runs]
    failures = [*changed, *(text for text in ended if not text.endswith(" is completed"))]
    for problem in (*problems, *failures):
        typer.echo(problem, err=True)
    if failures:
        raise typer.Exit(1)
