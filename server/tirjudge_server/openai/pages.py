"""Paginated lists in OpenAI's format: at most `limit` items after the item with the id `after`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from tirjudge.http.protocol import invalid, shown
from tirjudge_server.openai.wire import Foreign
from tirjudge_web.errors import Refused
from tirjudge_web.openapi import field_docstrings

T = TypeVar("T")


class BatchesQuery(Foreign):
    """Query parameters of the list of batches."""

    after: str | None = None
    """Id of the last item of the previous page. Default: the first page."""
    limit: int = Field(default=20, ge=1, le=100)
    """Maximum number of items."""


class FilesQuery(Foreign):
    """Query parameters of the list of files."""

    after: str | None = None
    """Id of the last item of the previous page. Default: the first page."""
    limit: int = Field(default=10_000, ge=1, le=10_000)
    """Maximum number of items."""
    order: Literal["asc", "desc"] = "desc"
    """`asc`: the oldest items first; `desc`: the newest first."""
    purpose: str | None = None
    """Only files with this purpose. Default: all."""


class OrderedQuery(Foreign):
    """Query parameters of the lists of evals, their runs and their output items."""

    after: str | None = None
    """Id of the last item of the previous page. Default: the first page."""
    limit: int = Field(default=20, ge=1, le=100)
    """Maximum number of items."""
    order: Literal["asc", "desc"] = "asc"
    """`asc`: the oldest items first; `desc`: the newest first."""

    @property
    def is_reversed(self) -> bool:
        """Whether the newest objects come first."""
        return self.order == "desc"


class EvalsQuery(OrderedQuery):
    """Query parameters of the list of evals."""

    order_by: Literal["created_at", "updated_at"] = "created_at"
    """The time that the evals are sorted by."""


class RunsQuery(OrderedQuery):
    """Query parameters of the list of an eval's runs."""

    status: Literal["queued", "in_progress", "completed", "canceled", "failed"] | None = None
    """Only runs with this status. Default: all."""


class ItemsQuery(OrderedQuery):
    """Query parameters of the list of a run's output items."""

    status: Literal["pass", "fail", "error"] | None = None
    """Only items with this status. Default: all."""


def query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the fields of a query as OpenAPI parameters."""
    fields = model.model_json_schema()["properties"]
    described = field_docstrings(model)
    return [
        {"name": name, "in": "query", "required": False, "description": described[name], "schema": fields[name]}
        for name in fields
    ]


def page(items: Sequence[T], *, after: str | None, limit: int, id_of: Callable[[T], str]) -> tuple[list[T], bool]:
    """Return the items of one page, and whether more items follow.

    Args:
        items: The whole list.
        after: Id of the item before the page. None: the page starts at the beginning.
        limit: Maximum number of items on the page.
        id_of: Returns the id of an item.

    Raises:
        Refused: `after` is not the id of an item.
    """
    start = 0
    if after is not None:
        places = [index for index, item in enumerate(items) if id_of(item) == after]
        if not places:
            message = f"after: {shown(after)} is not in this list"
            raise Refused(invalid(message, param="after", code="invalid_value"))
        start = places[0] + 1
    return list(items[start : start + limit]), start + limit < len(items)


def listed(data: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a page in OpenAI's format."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }
