"""The results of a batch as Parquet rows: one per key, with columns for the verdict, and the complete judgment as JSON.

Without a judgment, `error_kind` and `error` give the reason, and the columns of the verdict are null.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pyarrow as pa

from tirjudge.errors import DeadlineExceeded, EvidenceRefused, PromptTooLong, RequestNotShown, TirjudgeError
from tirjudge.http.exchange import RequestRefused
from tirjudge.types import Judgment
from tirjudge_harness.batch.inputs import RequestRow


class RequestImpossible(TirjudgeError, ValueError):
    """The judge cannot process this request."""


class ErrorKind(StrEnum):
    """Reason for a missing judgment."""

    REFUSED = "refused"
    """The request is invalid for this judge: too long, for a different model, or with tools that the judge does not have."""
    DEADLINE = "deadline"
    """The deadline passed before the model wrote anything that a verdict could use."""
    UNAVAILABLE = "unavailable"
    """The engine, the sandbox or the server failed, or another failure that does not depend on the request."""

    @property
    def may_pass(self) -> bool:
        """Whether the next run retries the request."""
        return self is not ErrorKind.REFUSED


def kind_of(error: TirjudgeError) -> ErrorKind:
    """Classify a failure."""
    if isinstance(error, PromptTooLong | EvidenceRefused | RequestRefused | RequestImpossible | RequestNotShown):
        return ErrorKind.REFUSED
    return ErrorKind.DEADLINE if isinstance(error, DeadlineExceeded) else ErrorKind.UNAVAILABLE


SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        ("mode", pa.string()),
        ("model", pa.string()),
        ("model_version", pa.string()),
        ("judgment_id", pa.string()),
        ("created", pa.int64()),
        ("status", pa.string()),
        ("best", pa.int32()),
        ("label", pa.string()),
        ("scores", pa.list_(pa.float64())),
        ("probabilities", pa.list_(pa.float64())),
        ("confidence", pa.float64()),
        ("label_mass", pa.float64()),
        ("forced", pa.bool_()),
        ("reason", pa.string()),
        ("basis", pa.string()),
        ("input_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("tool_calls", pa.int32()),
        ("rollouts", pa.int32()),
        ("total_s", pa.float64()),
        ("engine_s", pa.float64()),
        ("sandbox_s", pa.float64()),
        ("judgment", pa.string()),
        ("error_kind", pa.string()),
        ("error", pa.string()),
    ]
)
"""The columns. `digest` is the hash of the request, `file` and `row` are its location in the input, `created` is a Unix time
in seconds, and `judgment` is the response of `POST /v1/judge`. The other columns are named like the response fields."""

Result = dict[str, Any]
"""A row of `SCHEMA`. A missing key is null."""


def result_of(row: RequestRow, answer: Judgment | TirjudgeError) -> Result:
    """Return the result of a row from its judgment or error."""
    result: Result = {"key": row.key, "digest": row.digest, "file": row.file, "row": row.number}
    result["mode"] = row.request.mode.value
    if isinstance(answer, TirjudgeError):
        return result | {"error_kind": kind_of(answer).value, "error": f"{type(answer).__name__}: {answer}"}
    return result | {
        "model": answer.model,
        "model_version": answer.model_version,
        "judgment_id": answer.id,
        "created": answer.created,
        **answer.verdict.model_dump(mode="json"),
        **answer.usage.model_dump(mode="json"),
        **answer.timing.model_dump(mode="json", exclude={"queue_s"}),
        "judgment": answer.model_dump_json(),
    }


def table_of(results: list[Result]) -> pa.Table:
    """Return results as a table."""
    return pa.Table.from_pylist(results, schema=SCHEMA)
