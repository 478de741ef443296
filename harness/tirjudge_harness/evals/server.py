"""The evals of one server, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from rich.console import Console

from tirjudge.client import Client, FormFile
from tirjudge_harness.evals.objects import EvalDefinition, EvalRun, EvalsObject, Listed, OutputItem, StoredUpload

Found = TypeVar("Found", bound=EvalsObject)

POLL_S = 1.0
"""Seconds between two looks at a run."""

FIRST_POLL_S = 0.05
"""Seconds until the second look, doubled up to `POLL_S`."""

LINE_S = 10.0
"""Seconds between two lines of progress."""

PAGE = 100
"""Number of objects on a page."""


class EvalsServer:
    """The evals of one server.

    Args:
        client: The connection. Its methods raise the errors of `tirjudge.client`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def evals(self) -> Iterator[EvalDefinition]:
        """Yield the caller's evals, newest first."""
        return self._pages("/v1/evals", EvalDefinition, order="desc")

    def eval(self, eval_id: str) -> EvalDefinition:
        """Return an eval."""
        return self._client.call("GET", _path("evals", eval_id), answer=EvalDefinition)

    def create(self, definition: Mapping[str, Any]) -> EvalDefinition:
        """Create an eval."""
        return self._client.call("POST", "/v1/evals", body=_json(definition), answer=EvalDefinition)

    def runs(self, eval_id: str) -> Iterator[EvalRun]:
        """Yield the runs of an eval, newest first."""
        return self._pages(_path("evals", eval_id, "runs"), EvalRun, order="desc")

    def run(self, eval_id: str, run_id: str) -> EvalRun:
        """Return a run."""
        return self._client.call("GET", _path("evals", eval_id, "runs", run_id), answer=EvalRun)

    def items(self, run: EvalRun, *, status: str | None = None) -> Iterator[OutputItem]:
        """Yield the graded rows of a run.

        Args:
            run: The run.
            status: Only rows with this result: pass, fail or error. None: all.
        """
        filters = {} if status is None else {"status": status}
        return self._pages(_path("evals", run.eval_id, "runs", run.id, "output_items"), OutputItem, **filters)

    def upload(self, rows: bytes, *, name: str) -> str:
        """Upload a file of rows, and return its id."""
        file = FormFile(name=name, content=rows, fields={"purpose": "evals"})
        return self._client.call("POST", "/v1/files", file=file, answer=StoredUpload).id

    def start(self, eval_id: str, run: Mapping[str, Any]) -> EvalRun:
        """Start a run."""
        return self._client.call("POST", _path("evals", eval_id, "runs"), body=_json(run), answer=EvalRun)

    def wait(self, run: EvalRun, *, console: Console) -> EvalRun:
        """Wait until a run has ended, with a line of progress from time to time, and return it."""
        pause_s, told_at = FIRST_POLL_S, time.monotonic()
        while not run.has_ended:
            time.sleep(pause_s)
            pause_s = min(POLL_S, 2 * pause_s)
            run = self.run(run.eval_id, run.id)
            if time.monotonic() - told_at > LINE_S:
                told_at = time.monotonic()
                line = f"{run.id}: {run.result_counts.total}/{run.num_rows or '?'} rows"
                console.print(line, highlight=False, soft_wrap=True)
        return run

    def _pages(self, path: str, kind: type[Found], **query: str) -> Iterator[Found]:
        after: str | None = None
        while True:
            asked = {**query, "limit": str(PAGE)} | ({} if after is None else {"after": after})
            text = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items())
            page = self._client.call("GET", f"{path}?{text}", answer=Listed)
            yield from (kind.model_validate(each) for each in page.data)
            if not page.has_more or not page.data:
                return
            after = str(page.data[-1]["id"])


def rows_as_file(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as a file, one JSON object per line."""
    return b"".join(_json(row) + b"\n" for row in rows)


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
