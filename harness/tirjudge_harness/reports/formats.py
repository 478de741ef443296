"""Render a table for a terminal, or as Markdown, LaTeX, CSV, Parquet or JSON.

Terminal, Markdown and LaTeX are for readers: values are rounded and followed by the half-width of the interval, and the
number of comparisons is in a line below. CSV, Parquet and JSON are for programs: values keep every digit, and both ends
of the interval and the number of comparisons have separate columns.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tirjudge_harness.reports.tables import (
    Column,
    ReportTable,
    TableEntry,
    TableRow,
    footnotes,
    grouped,
    is_mixed,
    num_row,
    plain,
    short,
    shown,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as RichTable

INDENT = "  "

MAX_WIDTH = 400
"""Maximum width of a table in a file, in characters."""


class ReportFormat(StrEnum):
    """Formats of a table."""

    TERMINAL = "terminal"
    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


def render(table: ReportTable, format: ReportFormat) -> bytes:
    """Return the content of a file with the table."""
    if format is ReportFormat.PARQUET:
        return parquet(table)
    return _TEXTS[format](table).encode()


def _texts(
    table: ReportTable, *, mark: Callable[[str], str] = lambda symbol: symbol
) -> Iterator[tuple[TableRow, list[str], list[str]]]:
    """Yield each row with the text of its entries and the footnote symbols that follow them."""
    symbols = footnotes(table)
    for row in table.rows:
        values = [shown(entry, column=column) for entry, column in zip(row.entries, table.columns, strict=True)]
        yield row, values, ["".join(mark(symbols[note]) for note in entry.notes) for entry in row.entries]


# Terminal.


def terminal(table: ReportTable) -> RenderableType:
    """Return the table for rich. Markup in texts is not interpreted."""
    from rich.console import Group

    return Group(_without_notes(table), _notes(table))


def _notes(table: ReportTable) -> RenderableType:
    """The footnotes of a table, and its notes."""
    from rich.console import Group
    from rich.text import Text

    below = [Text(f"{symbol} {plain(note)}") for note, symbol in footnotes(table).items()]
    return Group(*below, *(Text(plain(note)) for note in table.notes))


def _without_notes(table: ReportTable, *, only: Sequence[int] | None = None) -> RichTable:
    """The table for rich, without its notes. `only`: the indexes of the columns to show; None: all."""
    from rich.table import Table as RichTable
    from rich.text import Text

    body = RichTable(
        title=Text(plain(table.title)), title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    chosen = range(len(table.columns)) if only is None else only
    for column in (table.columns[at] for at in chosen):
        title = f"{column.group}\n{column.title}" if column.group else column.title
        is_text = column.kind == "text"
        body.add_column(Text(plain_lines(title)), justify="left" if is_text else "right", no_wrap=not is_text)
    mixed = is_mixed(table)
    for row, values, marks in _texts(table):
        style = "bold green" if row.ours and mixed else ""
        values[0] = INDENT * row.depth + values[0]
        body.add_row(*(Text(values[at] + marks[at]) for at in chosen), style=style)
        if nums := num_row(table, row):
            body.add_row(*(Text(nums[at]) for at in chosen), style="dim")
    return body


def plain_lines(text: str) -> str:
    """Apply `plain` to each line."""
    return "\n".join(plain(line) for line in text.split("\n"))


def print_table(table: ReportTable, *, console: Console) -> None:
    """Print a table. On a terminal that is too narrow, its columns are printed in several blocks, each with the names
    of the rows, so that no number is cut."""
    if not console.is_terminal:
        console.file.write(_terminal_text(table))
        return
    for index, columns in enumerate(_blocks(table, console=console)):
        block = _without_notes(table, only=columns)
        if index:
            block.title = None
            console.print()
        console.print(block)
    console.print(_notes(table), end="")


def _blocks(table: ReportTable, *, console: Console) -> list[list[int]]:
    """Return the indexes of the columns of each block: the names of the rows, and as many others as the console can show.

    The first column has the names, and so have columns of text that follow it: a judge can be in rows of several modes.
    If these take more than half of the width, the first column alone is repeated.
    """
    wide = console.options.update(width=MAX_WIDTH)

    def width(columns: Sequence[int]) -> int:
        block = _without_notes(table, only=columns)
        block.title = None
        return console.measure(block, options=wide).maximum

    is_text = [column.kind == "text" for column in table.columns]
    names = list(range(max(1, (*is_text, False).index(False))))
    if width(names) > console.width // 2:
        names = [0]
    blocks = [names.copy()]
    for at in range(len(names), len(table.columns)):
        if len(blocks[-1]) > len(names) and width([*blocks[-1], at]) > console.width:
            blocks.append([*names, at])
        else:
            blocks[-1].append(at)
    return blocks


def _terminal_text(table: ReportTable) -> str:
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=MAX_WIDTH, color_system=None).print(terminal(table))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


# Markdown.


def markdown(table: ReportTable) -> str:
    """Return the table as GitHub Markdown. Our rows are bold if there are also published rows."""
    titles = [" ".join(filter(None, (column.group, column.title))) for column in table.columns]
    rule = [":--" if column.kind == "text" else "--:" for column in table.columns]
    lines = [f"**{_md(table.title)}**", "", _md_line(map(_md, titles)), _md_line(rule)]
    mixed = is_mixed(table)
    for row, values, marks in _texts(table):
        texts = [_md(value) for value in values]
        if row.ours and mixed:
            texts = [f"**{text}**" if text else "" for text in texts]
        texts[0] = "&nbsp;" * 2 * row.depth + texts[0]
        lines.append(_md_line(text + mark for text, mark in zip(texts, marks, strict=True)))
        if nums := num_row(table, row):
            lines.append(_md_line(nums))
    notes = [f"{symbol} {_md(note)}" for note, symbol in footnotes(table).items()] + [_md(note) for note in table.notes]
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in notes)


def _md_line(texts: Sequence[str] | Iterator[str] | map[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _md(text: str) -> str:
    escaped = re.sub(r"([\\`*_{}\[\]|~$#!])", r"\\\1", plain(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")


# HTML, for notebooks.


def html(table: ReportTable) -> str:
    """Return the table as HTML. All texts are escaped. Our rows are bold if there are also published rows."""
    heads = "".join(f"<th>{_html(' '.join(filter(None, (c.group, c.title))))}</th>" for c in table.columns)
    lines = [f"<table><caption>{_html(table.title)}</caption><tr>{heads}</tr>"]
    mixed = is_mixed(table)
    for row, values, marks in _texts(table):
        cells = [_html(value) + mark for value, mark in zip(values, marks, strict=True)]
        cells[0] = "&nbsp;" * 2 * row.depth + cells[0]
        bold = ("<b>", "</b>") if row.ours and mixed else ("", "")
        lines.append(f"<tr>{''.join(f'<td>{bold[0]}{cell}{bold[1]}</td>' for cell in cells)}</tr>")
        if nums := num_row(table, row):
            lines.append(f"<tr>{''.join(f'<td><small>{_html(num)}</small></td>' for num in nums)}</tr>")
    notes = [f"{symbol} {plain(note)}" for note, symbol in footnotes(table).items()] + list(map(plain, table.notes))
    return "".join([*lines, "</table>", *(f"<p><small>{escape(note)}</small></p>" for note in notes)])


def _html(text: str) -> str:
    return escape(plain(text))


# LaTeX.


def latex(table: ReportTable) -> str:
    """Return the table as a LaTeX `table` for `booktabs`, with footnotes below.

    Our rows are bold if there are also published rows.
    """
    layout = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}[t]",
        "\\centering",
        f"\\caption{{{_tex(table.title)}}}",
        f"\\begin{{tabular}}{{{layout}}}",
        "\\toprule",
        *_tex_groups(table),
        _tex_line(_tex(column.title) for column in table.columns),
        "\\midrule",
    ]
    was_ours, mixed = False, is_mixed(table)
    for row, values, marks in _texts(table, mark=lambda symbol: f"\\textsuperscript{{{_tex(symbol)}}}"):
        if row.ours and mixed and not was_ours and lines[-1] != "\\midrule":
            lines.append("\\midrule")
        was_ours = row.ours
        texts = [f"\\textbf{{{_tex(value)}}}" if row.ours and mixed and value else _tex(value) for value in values]
        texts[0] = "\\quad " * row.depth + texts[0]
        lines.append(_tex_line(text + mark for text, mark in zip(texts, marks, strict=True)))
        if nums := num_row(table, row):
            lines.append(_tex_line(map(_tex, nums)))
    lines += ["\\bottomrule", "\\end{tabular}"]
    below = [f"\\textsuperscript{{{_tex(symbol)}}} {_tex(note)}" for note, symbol in footnotes(table).items()]
    lines += [f"\\par\\smallskip\\footnotesize {note}" for note in [*below, *map(_tex, table.notes)]]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def _tex_groups(table: ReportTable) -> Iterator[str]:
    spans = grouped(table)
    if not any(name for name, _ in spans):
        return
    yield _tex_line(f"\\multicolumn{{{width}}}{{c}}{{{_tex(name)}}}" if name else "" for name, width in spans)
    ends = accumulate(width for _, width in spans)
    yield " ".join(
        f"\\cmidrule(lr){{{end - width + 1}-{end}}}" for (name, width), end in zip(spans, ends, strict=True) if name
    )


def _tex_line(texts: Iterator[str] | map[str]) -> str:
    return f"{' & '.join(texts)} \\\\"


_TEX = {
    "\\": "\\textbackslash{}",
    "{": "\\{",
    "}": "\\}",
    "$": "\\$",
    "&": "\\&",
    "#": "\\#",
    "^": "\\textasciicircum{}",
    "_": "\\_",
    "~": "\\textasciitilde{}",
    "%": "\\%",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "\\textquotedbl{}",
    "[": "{[}",
    "]": "{]}",
    "±": "\\,$\\pm$\\,",
    "†": "\\textdagger{}",
    "‡": "\\textdaggerdbl{}",
    "§": "\\textsection{}",
    "¶": "\\textparagraph{}",
    "‖": "\\textbardbl{}",
    "…": "\\ldots{}",
    "–": "--",
}


def _tex(text: str) -> str:
    return re.sub(" ?±", "±", plain(text)).translate(str.maketrans(_TEX))


# For programs.


def records(table: ReportTable) -> list[dict[str, Any]]:
    """Return each row as a dict by column key. `KEY_low`, `KEY_high` and `KEY_n` are included if any row has them."""
    with_interval = [any(row.entries[at].interval for row in table.rows) for at in range(len(table.columns))]
    with_num = [any(row.entries[at].num is not None for row in table.rows) for at in range(len(table.columns))]
    return [
        {
            **({"ours": row.ours} if is_mixed(table) else {}),
            **{
                key: value
                for at, (column, entry) in enumerate(zip(table.columns, row.entries, strict=True))
                for key, value in _fields(column, entry, interval=with_interval[at], num=with_num[at])
            },
            "notes": " ".join(
                f"{c.key}: {plain(note)}" for c, e in zip(table.columns, row.entries, strict=True) for note in e.notes
            ),
        }
        for row in table.rows
    ]


def _fields(column: Column, entry: TableEntry, *, interval: bool, num: bool) -> Iterator[tuple[str, Any]]:
    value = entry.value
    if isinstance(value, str):
        value = short(value)
    elif value is not None and (entry.kind or column.kind) == "count":
        value = int(value)
    yield column.key, value
    if interval:
        low, high = entry.interval or (None, None)
        yield f"{column.key}_low", low
        yield f"{column.key}_high", high
    if num:
        yield f"{column.key}_n", entry.num


def csv_text(table: ReportTable) -> str:
    """Return the table as CSV with a header of keys.

    A text that a spreadsheet could run as a formula gets an apostrophe in front.
    """
    rows = records(table)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_keys(table, rows))
    writer.writerows([_csv_value(value) for value in row.values()] for row in rows)
    return file.getvalue()


def _csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def json_text(table: ReportTable) -> str:
    """Return the table as a JSON object with title, rows and notes."""
    whole = {"title": plain(table.title), "rows": records(table), "notes": [plain(note) for note in table.notes]}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def parquet(table: ReportTable) -> bytes:
    """Return the table as a Parquet file. The metadata of its schema has the title and the notes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = records(table)
    kinds = {column.key: column.kind for column in table.columns}

    def type_of(key: str) -> pa.DataType:
        if key == "ours":
            return pa.bool_()
        if key == "notes" or kinds.get(key) == "text":
            return pa.string()
        is_whole = kinds[key] == "count" if key in kinds else key.endswith("_n")
        return pa.int64() if is_whole else pa.float64()

    schema = pa.schema(
        [(key, type_of(key)) for key in _keys(table, rows)],
        metadata={"title": plain(table.title), "notes": json.dumps(table.notes)},
    )
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file.getvalue()


def _keys(table: ReportTable, rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(rows[0]) if rows else [*(column.key for column in table.columns), "notes"]


_TEXTS: dict[ReportFormat, Callable[[ReportTable], str]] = {
    ReportFormat.TERMINAL: _terminal_text,
    ReportFormat.MARKDOWN: markdown,
    ReportFormat.LATEX: latex,
    ReportFormat.CSV: csv_text,
    ReportFormat.JSON: json_text,
}
