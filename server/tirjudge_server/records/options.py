"""The option `--records` of all commands that open the database of records."""

from __future__ import annotations

from typing import Annotated

import typer

NONE = "none"
"""Value of the option that disables storing."""

RecordsUrl = Annotated[
    str | None,
    typer.Option(
        "--records",
        envvar="TIRJUDGE_RECORDS",
        show_envvar=True,
        help="postgresql://USER@HOST/NAME, or a SQLite file; default: tirjudge/records.db in the user's state directory. "
        "With `none`, a server stores nothing.",
    ),
]
