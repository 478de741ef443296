"""Lists in pages, as OpenAI's clients turn them: `after` an id, at most `limit`, and whether there are more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from tirjudge.http.protocol import invalid, shown
from tirjudge_server.openai.wire import Foreign
from tirjudge_web.errors import Refused

T = TypeVar("T")


class BatchesQuery(Foreign):
    """Which page of the batches."""

    after: str | None = None
    limit: int = Field(default=20, ge=1, le=100)


class FilesQuery(Foreign):
    """Which page of the files."""

    after: str | None = None
    limit: int = Field(default=10_000, ge=1, le=10_000)
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = None


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """The fields of a query, for the OpenAPI page."""
    fields = model.model_json_schema()["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": fields[name]} for name in fields]


def page(items: Sequence[T], *, after: str | None, limit: int, id_of: Callable[[T], str]) -> tuple[list[T], bool]:
    """The items of one page, and whether others follow.

    Raises:
        Refused: `after` is none of them.
    """
    start = 0
    if after is not None:
        places = [index for index, item in enumerate(items) if id_of(item) == after]
        if not places:
            raise Refused(invalid(f"after: no {shown(after)} in this list", param="after", code="invalid_value"))
        start = places[0] + 1
    return list(items[start : start + limit]), start + limit < len(items)


def listed(data: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page in OpenAI's shape."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }
