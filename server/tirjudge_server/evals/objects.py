"""Evals, runs and output items as the objects that clients see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tirjudge.http.protocol import invalid, shown
from tirjudge_pages.bench.links import EVAL_RUNS_PATH, ServerLinks
from tirjudge_server.evals.definitions import EvalCreation, SampleParams, names_of
from tirjudge_server.evals.rows import row_schema
from tirjudge_server.evals.sampling import empty_sample
from tirjudge_server.evals.store import StoredEval, StoredRow, StoredRun
from tirjudge_server.evals.tally import ResultTally
from tirjudge_web.errors import Refused

EVALS_PATH = "/v1/evals"

_ITEM_ID = re.compile(r"outputitem_([0-9a-f]{32})_([0-9]{1,9})")


def eval_object(stored: StoredEval) -> dict[str, Any]:
    """Return an eval."""
    content = stored.content
    body = EvalCreation.model_validate(content)
    given = content["data_source_config"]
    config = {name: given[name] for name in given if name not in ("item_schema", "include_sample_schema")}
    return {
        "id": stored.id,
        "object": "eval",
        "created_at": stored.created_at,
        "name": body.name,
        "data_source_config": config | {"schema": row_schema(body.data_source_config)},
        "testing_criteria": content["testing_criteria"],
        "metadata": body.metadata or {},
    }


def run_object(stored: StoredRun, *, of: StoredEval, url: str) -> dict[str, Any]:
    """Return a run. Its inline rows are those that the caller has put into its content.

    Args:
        stored: The run.
        of: Its eval.
        url: URL of the server.
    """
    names = names_of(EvalCreation.model_validate(of.content).testing_criteria)
    counted, tally = stored.tally.criteria, stored.tally.rows
    return {
        "id": stored.id,
        "object": "eval.run",
        "created_at": stored.created_at,
        "eval_id": stored.eval_id,
        "name": stored.content.get("name") or "",
        "status": stored.status,
        "model": stored.content["data_source"].get("model") or "",
        "data_source": stored.content["data_source"],
        "report_url": url.rstrip("/") + ServerLinks(name=stored.id, path=EVAL_RUNS_PATH).report,
        "num_rows": stored.num_rows,
        "result_counts": {"total": tally.passed + tally.failed + tally.errored, **tally.model_dump()},
        "per_testing_criteria_results": [
            {"testing_criteria": name, **counted.get(name, ResultTally()).model_dump()} for name in names
        ],
        "per_model_usage": [{"model_name": name, **usage.model_dump()} for name, usage in stored.tally.models.items()],
        "error": stored.error,
        "metadata": stored.content.get("metadata") or {},
    }


def output_item(row: StoredRow, *, run: StoredRun) -> dict[str, Any]:
    """Return a graded row."""
    return {
        "id": item_id(run.id, row.number),
        "object": "eval.run.output_item",
        "created_at": row.graded_at,
        "run_id": run.id,
        "eval_id": run.eval_id,
        "status": row.status,
        "datasource_item_id": row.number,
        "datasource_item": row.item,
        "results": row.results,
        "sample": row.sample or _given_sample(row.given_sample or {}),
    }


def _given_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    text, model = sample.get("output_text"), sample.get("model")
    output = [{"role": "assistant", "content": text}] if isinstance(text, str) else []
    empty = empty_sample(model=model if isinstance(model, str) else "", params=SampleParams())
    return {**empty, "output": output}


def item_id(run_id: str, number: int) -> str:
    """Return the id of an output item."""
    return f"outputitem_{run_id.removeprefix('evalrun_')}_{number}"


def number_of(given: str, *, run_id: str, param: str) -> int:
    """Return the number of the row of an output item.

    Raises:
        Refused: It is not the id of an output item of the run: 400 if it is `after`, otherwise 404.
    """
    match = _ITEM_ID.fullmatch(given)
    if match is None or f"evalrun_{match[1]}" != run_id:
        raise unknown_item(given, param=param)
    return int(match[2])


def unknown_item(given: str, *, param: str) -> Refused:
    """Return the refusal of an id that no output item of the run has."""
    if param == "after":
        return Refused(invalid(f"after: {shown(given)} is not in this list", param=param, code="invalid_value"))
    message = f"output_item: {shown(given)} not found"
    return Refused(invalid(message, param=param, code="output_item_not_found"), status=404)
