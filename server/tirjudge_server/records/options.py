"""The option `--records`, of every command that opens a database of records."""

from __future__ import annotations

from typing import Annotated

import typer

NONE = "none"
"""Value of an option that switches off what is stored."""

RecordsUrl = Annotated[
    str | None,
    typer.Option(
        "--records",
        envvar="TIRJUDGE_RECORDS",
        show_envvar=True,
        help="postgresql://USER@HOST/NAME, or a SQLite file; default: tirjudge/records.db in the user's state directory. "
        "A server that is given `none` stores nothing.",
    ),
]
