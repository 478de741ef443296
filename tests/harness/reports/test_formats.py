"""The exact text of one small table in each format, and untrusted texts in tables."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from tirjudge_harness.reports.formats import ReportFormat, print_table, render
from tirjudge_harness.reports.tables import Column, ReportTable, TableEntry, TableRow, footnotes, percent, short

COLUMNS = (
    Column(key="judge", title="Judge", kind="text"),
    Column(key="math", title="MATH", group="PPE"),
    Column(key="ifeval", title="IFEval", group="PPE"),
    Column(key="tokens", title="Tokens", kind="count"),
)
THEIRS = TableRow(
    entries=(
        TableEntry(value="A & B_1"),
        TableEntry(value=64.3),
        TableEntry(value=50.0, notes=("Mixed.",)),
        TableEntry(),
    )
)
OURS = TableRow(
    entries=(
        TableEntry(value="ours"),
        percent(2 / 3, interval=(0.5, 0.75), num=1200),
        percent(0.25),
        TableEntry(value=1234),
    ),
    ours=True,
)
TABLE = ReportTable(title="Judges at 95 %", columns=COLUMNS, rows=(THEIRS, OURS), notes=("In percent.",))


def text(table: ReportTable, format: ReportFormat) -> str:
    return render(table, format).decode()


def named(name: str) -> ReportTable:
    """Return a table with a single row for a judge with this name."""
    return ReportTable(
        title=name, columns=COLUMNS, rows=(TableRow(entries=(TableEntry(value=name), *OURS.entries[1:]), ours=True),)
    )


def test_terminal_shows_the_distance_to_the_farther_interval_end_and_the_number_below() -> None:
    assert text(TABLE, ReportFormat.TERMINAL) == (
        "Judges at 95 %\n"
        "                PPE     PPE\n"
        "Judge          MATH  IFEval  Tokens\n"
        "A & B_1        64.3   50.0†       -\n"
        "ours     66.7 ±16.7    25.0   1,234\n"
        "n             1,200\n"
        "† Mixed.\n"
        "In percent.\n"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [(999.4, "999"), (999.5, "1,000"), (-999.99, "-1,000"), (1234.5, "1,234"), (0.12345, "0.123")],
)
def test_a_number_has_three_digits_and_no_exponent(value: float, expected: str) -> None:
    columns = (Column(key="n", title="n", kind="number"),)
    table = ReportTable(title="", columns=columns, rows=(TableRow(entries=(TableEntry(value=value),)),))
    assert expected in text(table, ReportFormat.TERMINAL).split()


def test_a_table_is_rendered_as_markdown() -> None:
    assert text(TABLE, ReportFormat.MARKDOWN) == (
        "**Judges at 95 %**\n"
        "\n"
        "| Judge | PPE MATH | PPE IFEval | Tokens |\n"
        "| :-- | --: | --: | --: |\n"
        "| A &amp; B\\_1 | 64.3 | 50.0† | - |\n"
        "| **ours** | **66.7 ±16.7** | **25.0** | **1,234** |\n"
        "| n | 1,200 |  |  |\n"
        "\n"
        "† Mixed.\n"
        "\n"
        "In percent.\n"
    )


def test_a_table_is_rendered_as_latex() -> None:
    assert text(TABLE, ReportFormat.LATEX) == (
        "% \\usepackage{booktabs}\n"
        "\\begin{table}[t]\n"
        "\\centering\n"
        "\\caption{Judges at 95 \\%}\n"
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        " & \\multicolumn{2}{c}{PPE} &  \\\\\n"
        "\\cmidrule(lr){2-3}\n"
        "Judge & MATH & IFEval & Tokens \\\\\n"
        "\\midrule\n"
        "A \\& B\\_1 & 64.3 & 50.0\\textsuperscript{\\textdagger{}} & - \\\\\n"
        "\\midrule\n"
        "\\textbf{ours} & \\textbf{66.7\\,$\\pm$\\,16.7} & \\textbf{25.0} & \\textbf{1,234} \\\\\n"
        "n & 1,200 &  &  \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\par\\smallskip\\footnotesize \\textsuperscript{\\textdagger{}} Mixed.\n"
        "\\par\\smallskip\\footnotesize In percent.\n"
        "\\end{table}\n"
    )


def test_csv_has_every_digit_and_both_ends_of_the_interval() -> None:
    assert text(TABLE, ReportFormat.CSV) == (
        "ours,judge,math,math_low,math_high,math_n,ifeval,tokens,notes\n"
        "no,A & B_1,64.3,,,,50.0,,ifeval: Mixed.\n"
        "yes,ours,66.66666666666666,50.0,75.0,1200,25.0,1234,\n"
    )


def test_json_has_the_values_of_the_csv() -> None:
    read = json.loads(text(TABLE, ReportFormat.JSON))
    assert (read["title"], read["notes"]) == ("Judges at 95 %", ["In percent."])
    assert read["rows"][1] == {
        "ours": True,
        "judge": "ours",
        "math": pytest.approx(200 / 3),
        "math_low": 50.0,
        "math_high": 75.0,
        "math_n": 1200,
        "ifeval": 25.0,
        "tokens": 1234,
        "notes": "",
    }


def test_parquet_has_the_rows_of_the_json_and_their_types() -> None:
    import pyarrow.parquet as pq

    read = pq.read_table(io.BytesIO(render(TABLE, ReportFormat.PARQUET)), use_threads=False)
    assert read.to_pylist() == json.loads(text(TABLE, ReportFormat.JSON))["rows"]
    types = {field.name: str(field.type) for field in read.schema}
    assert (types["math"], types["math_n"], types["tokens"], types["ours"]) == ("double", "int64", "int64", "bool")
    assert read.schema.metadata[b"title"] == b"Judges at 95 %"


@pytest.mark.parametrize("format", ReportFormat)
def test_a_table_without_rows_can_be_written(format: ReportFormat) -> None:
    assert render(ReportTable(title="Nothing", columns=COLUMNS, rows=()), format)


def test_latex_special_characters_are_escaped() -> None:
    shown = text(named(r"\input{x} $1 & 2% #3 a_b ^~ <|>"), ReportFormat.LATEX)
    assert (
        "\n\\textbackslash{}input\\{x\\} \\$1 \\& 2\\% \\#3 a\\_b \\textasciicircum{}\\textasciitilde{} "
        "\\textless{}\\textbar{}\\textgreater{} &" in shown
    )


def test_rich_markup_in_a_name_is_not_interpreted() -> None:
    assert "[bold red]judge[/] [link=x]" in text(named("[bold red]judge[/] [link=x]"), ReportFormat.TERMINAL)


def test_html_and_markdown_in_a_name_are_escaped() -> None:
    shown = text(named("<img src=x> [a](b) | *c* `d` @e"), ReportFormat.MARKDOWN)
    assert "| &lt;img src=x&gt; \\[a\\](b) \\| \\*c\\* \\`d\\` &#64;e |" in shown


@pytest.mark.parametrize("format", [ReportFormat.TERMINAL, ReportFormat.MARKDOWN, ReportFormat.LATEX, ReportFormat.CSV])
def test_a_name_with_several_lines_becomes_one_line(format: ReportFormat) -> None:
    name, flat = "first\nsecond\r\n\u2028third\x1b]0;title\x07", "first second third ]0;title"
    assert len(text(named(name), format).splitlines()) == len(text(named(flat), format).splitlines())
    assert "\x1b" not in text(named(name), format)


@pytest.mark.parametrize("format", ReportFormat)
def test_an_unpaired_surrogate_can_be_written(format: ReportFormat) -> None:
    assert render(named("half \ud800 pair"), format)


def test_a_name_that_is_a_spreadsheet_formula_gets_an_apostrophe() -> None:
    rows = list(csv.DictReader(io.StringIO(text(named("=cmd()"), ReportFormat.CSV))))
    assert rows[0]["judge"] == "'=cmd()"


def test_a_long_name_is_cut() -> None:
    assert short("x" * 121) == "x" * 119 + "…"
    assert short("x" * 120) == "x" * 120


@pytest.mark.parametrize(
    "format", [ReportFormat.TERMINAL, ReportFormat.MARKDOWN, ReportFormat.LATEX, ReportFormat.JSON]
)
def test_a_note_is_one_line(format: ReportFormat) -> None:
    note = "word " * 60 + "end"
    shown = text(ReportTable(title="", columns=COLUMNS[:1], rows=(), notes=(f"{note}\nof it",)), format)
    assert f"{note} of it" in shown


def test_equal_footnotes_share_a_symbol() -> None:
    notes = [("a",), ("b", "a"), ("c",), ("d",), ("e",), ("f",)]
    rows = tuple(TableRow(entries=(TableEntry(value="x", notes=note),)) for note in notes)
    table = ReportTable(title="", columns=COLUMNS[:1], rows=rows)
    assert footnotes(table) == {"a": "†", "b": "‡", "c": "§", "d": "¶", "e": "‖", "f": "††"}


def test_a_row_of_the_wrong_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="a row has 1 entries for 4 columns"):
        ReportTable(title="T", columns=COLUMNS, rows=(TableRow(entries=(TableEntry(value="x"),)),))


def test_a_file_has_the_full_width(capsys: pytest.CaptureFixture[str]) -> None:
    wide = tuple(Column(key=f"c{n}", title=f"Column number {n}") for n in range(20))
    table = ReportTable(
        title="Wide", columns=wide, rows=(TableRow(entries=tuple(TableEntry(value=50.0) for _ in wide)),)
    )
    print_table(table, console=Console())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].rstrip().endswith("Column number 19")


def printed(table: ReportTable, *, width: int) -> str:
    """The table on a terminal of a width."""
    file = io.StringIO()
    print_table(table, console=Console(file=file, force_terminal=True, width=width, color_system=None))
    return file.getvalue()


def test_a_narrow_terminal_shows_the_columns_in_blocks() -> None:
    names = (Column(key="judge", title="Judge", kind="text"),)
    wide = (*names, *(Column(key=f"c{n}", title=f"c{n}") for n in range(20)))
    rows = tuple(
        TableRow(entries=(TableEntry(value=name), *(TableEntry(value=50.0 + n, notes=("why",)) for n in range(20))))
        for name in ("first", "second")
    )
    table = ReportTable(title="Wide", columns=wide, rows=rows)
    text = printed(table, width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert all(text.count(f"{50.0 + n}†") == 2 for n in range(20))
    assert "…" not in text
    num_blocks = text.count("first")
    assert num_blocks == text.count("second") == text.count("Judge") > 1
    assert (text.count("Wide"), text.count("† why")) == (1, 1)
    assert printed(table, width=400).count("Judge") == 1


def judge_in_two_modes(*, judge: str = "Qwen3-8B") -> ReportTable:
    names = (Column(key="judge", title="Judge", kind="text"), Column(key="mode", title="Mode", kind="text"))
    figures = tuple(Column(key=f"c{n}", title=f"c{n}") for n in range(20))
    rows = tuple(
        TableRow(entries=(TableEntry(value=judge), TableEntry(value=mode), *(TableEntry(value=50.0) for _ in figures)))
        for mode in ("pointwise", "pairwise")
    )
    return ReportTable(title="Wide", columns=(*names, *figures), rows=rows)


def test_each_block_names_the_mode_of_a_judge() -> None:
    text = printed(judge_in_two_modes(), width=60)
    assert text.count("Judge") == text.count("Mode") == text.count("pointwise") == text.count("pairwise") > 1


def test_long_names_leave_room_for_figures() -> None:
    text = printed(judge_in_two_modes(judge="x" * 30), width=60)
    assert text.count("pointwise") == 1
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("50.0") == 40


def test_a_notebook_shows_a_table_with_its_notes_and_escaped_texts() -> None:
    columns = (Column(key="judge", title="<b>Judge</b>", kind="text"), Column(key="a", title="All"))
    rows = (TableRow(entries=(TableEntry(value="<script>"), TableEntry(value=50.0, notes=("why",)))),)
    html = ReportTable(title="T", columns=columns, rows=rows, notes=("a & b",))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "50.0†" in html
    assert "† why" in html
    assert "a &amp; b" in html
