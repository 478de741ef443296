"""`tirjudge bench list`: the installed benchmarks, with the columns, the size, the license and the revision of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tirjudge_harness.options import AsJson

if TYPE_CHECKING:
    from tirjudge_harness.benchmark import Benchmark


def list_benchmarks(
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Show the columns, the sources, the sizes, the licenses and the revisions."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """List the installed benchmarks.

    Examples:
        tirjudge bench list --verbose
    """
    from json import dumps

    from tirjudge_harness.benchmark import BENCHMARKS

    found = [_described(benchmark) for benchmark in BENCHMARKS.values()]
    if json:
        typer.echo(dumps(found))
    elif verbose:
        for one in found:
            typer.echo("\n".join(_lines(one)) + "\n")
    else:
        _print_table(found)


def _described(benchmark: Benchmark) -> dict[str, Any]:
    """Return the description of a benchmark as JSON. A value that is not known is null."""
    from tirjudge_harness.benchmark import HubSource

    default = benchmark.default_parts
    return {
        "name": benchmark.name,
        "title": benchmark.title,
        "modes": [mode.value for mode in benchmark.modes] or ["mixed"],
        "parts": list(default),
        "optional_parts": [part for part in benchmark.sources if part not in default],
        "citation": benchmark.citation,
        "columns": list(benchmark.columns),
        "sources": {
            part: {
                "id": source.id,
                "config": source.config if isinstance(source, HubSource) else None,
                "split": source.split if isinstance(source, HubSource) else None,
                "files": _listed(source.files) if isinstance(source, HubSource) else [],
                "revision": source.revision,
                "num_rows": source.num_rows,
                "license": source.license,
            }
            for part, source in benchmark.sources.items()
        },
    }


def _listed(files: str | Sequence[str] | None) -> list[str]:
    return [] if files is None else [files] if isinstance(files, str) else list(files)


def _lines(one: Mapping[str, Any]) -> list[str]:
    """Return the description of a benchmark, one line per part."""
    lines = [
        f"{one['name']}: {one['title']}, {one['citation']}",
        f"  modes: {', '.join(one['modes'])}",
        f"  columns: {', '.join(one['columns'])}",
    ]
    for part, source in one["sources"].items():
        shown = f"{part} (optional)" if part in one["optional_parts"] else part
        files = source["files"]
        place = source["id"] if not files or source["id"] != "json" else files[0]
        place = "/".join(filter(None, (place, source["config"], source["split"] if source["id"] != "json" else None)))
        more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
        rows = "unknown number of" if source["num_rows"] is None else source["num_rows"]
        license = source["license"] or "unknown"
        lines.append(f"  {shown}: {rows} rows, license {license}, {place}{more}, revision {source['revision']}")
    return lines


def _print_table(found: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "modes", "parts (optional)", "citation", box=None, pad_edge=False)
    for column in (table.columns[0], table.columns[3]):
        column.no_wrap = True
    for one in found:
        parts = [*one["parts"], *(f"({part})" for part in one["optional_parts"])]
        table.add_row(one["name"], ", ".join(one["modes"]), ", ".join(parts), one["citation"])
    Console().print(table)
