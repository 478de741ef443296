"""`GET /docs`: the page loads nothing, has every operation and every field, and its examples work."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from tests.server.records.conftest import VERSIONS
from tests.server.speaking import service_of
from tests.servers import mint_key
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.app import create_app as create_sandbox
from tirjudge_sandbox.service import SandboxService
from tirjudge_server.access import Access
from tirjudge_server.app import create_app
from tirjudge_server.dialects import DIALECTS, examples_of, requests_of
from tirjudge_server.examples import EXAMPLES
from tirjudge_server.records.database import open_database
from tirjudge_server.records.store import Records
from tirjudge_web.reference import reference_page

VERDICTS = {"<score>": "<score>7</score>", "<preference>": "<preference>A</preference>"}

LOADING = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "svg", "video", "audio"}
"""Elements that load something, run something or send something."""

VALUES = {"default", "const", "enum", "example", "examples"}
"""Keywords of a schema that hold values, not schemas."""

RESTRICTING = {"allOf", "anyOf", "oneOf", "not"}
"""Keywords of a schema whose schemas restrict the same object."""


class Links(HTMLParser):
    """Collects the elements, the link targets and the ids of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.targets: set[str] = set()
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src"):
                self.targets.add(value or "")


def model(sequence: str) -> str:
    return VERDICTS[max(VERDICTS, key=sequence.rfind)]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return create_app(service_of(model), files=tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def page(app: FastAPI) -> str:
    return reference_page(app.openapi())


def test_the_page_loads_nothing(page: str) -> None:
    links = Links(page)
    assert not links.elements & LOADING
    assert {target for target in links.targets if not target.startswith("#")} == {"openapi.json"}


def test_every_link_of_the_page_has_a_target(page: str) -> None:
    links = Links(page)
    assert len(set(links.ids)) == len(links.ids)
    assert {target[1:] for target in links.targets if target.startswith("#")} <= set(links.ids)


def test_the_page_has_every_operation(app: FastAPI, page: str) -> None:
    ids = Links(page).ids
    operations = [f"{method}-{path}" for path, methods in app.openapi()["paths"].items() for method in methods]
    assert len(operations) > 30
    assert set(operations) <= set(ids)


async def test_the_policy_allows_the_style_of_the_page_only(app: FastAPI) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        answer = await client.get("/docs")
    policy = answer.headers["content-security-policy"]
    [style] = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


async def test_the_page_needs_no_key(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "records.db"))
    mint_key(database)
    access = Access(database)
    await access.load()
    app = create_app(service_of(model), access=access)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        page, refused = await client.get("/docs"), await client.get("/v1/models")
    database.close()
    assert (page.status_code, refused.status_code) == (200, 401)


def test_texts_of_the_schema_are_escaped() -> None:
    schema: dict[str, Any] = {
        "info": {"title": "<script>1</script>", "version": "1"},
        "paths": {"/<b>": {"get": {"description": "`<i>` <script>2</script>", "responses": {}, "tags": ["<u>"]}}},
    }
    page = reference_page(schema)
    assert not {"script", "i", "u"} & Links(page).elements
    assert "<code>&lt;i&gt;</code>" in page


def test_every_operation_has_a_tag_that_is_described(app: FastAPI) -> None:
    schema = app.openapi()
    described = {tag["name"] for tag in schema["tags"] if tag["description"]}
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert set(operation["tags"]) <= described


def test_only_operations_that_check_keys_name_the_security_scheme(app: FastAPI) -> None:
    schema = app.openapi()
    assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    open_paths = {path for path, ops in schema["paths"].items() if any("security" not in op for op in ops.values())}
    assert open_paths == {"/health", "/ready", "/metrics"}


def undescribed(node: Any, place: str = "", *, described: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield the place of each property without a description in a document with schemas.

    Args:
        node: a part of the document.
        place: its place in the document.
        described: properties of the schema that `node` restricts. It may restrict them without a description.
    """
    if isinstance(node, list):
        for index, part in enumerate(node):
            yield from undescribed(part, f"{place}/{index}", described=described)
    if not isinstance(node, dict):
        return
    fields = node.get("properties", {})
    for name, field in fields.items():
        if not field.get("description") and name not in described:
            yield f"{place}.{name}"
        yield from undescribed(field, f"{place}.{name}")
    for keyword, part in node.items():
        if keyword not in {"properties", *VALUES}:
            yield from undescribed(
                part,
                f"{place}/{keyword}",
                described=described | fields.keys() if keyword in RESTRICTING else frozenset(),
            )


def test_every_field_and_parameter_is_described(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "records.db"))
    records, access = Records(database, versions=VERSIONS), Access(database)
    reloadable: Any = object()
    app = create_app(
        service_of(model), files=tmp_path / "files", records=records, access=access, model=reloadable, runs=tmp_path
    )
    schema = app.openapi()
    records.close()
    assert {"JudgmentList", "Replay", "Reloaded", "ChatRequest"} <= schema["components"]["schemas"].keys()
    missing = [*undescribed(schema["components"]["schemas"]), *undescribed(schema["paths"])]
    missing += [
        f"{path} {method} {parameter['name']}"
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert not missing, "without a description:\n" + "\n".join(missing)


def test_undescribed_fields_are_found_everywhere() -> None:
    inline = {"type": "object", "properties": {"c": {}}}
    branch = {"properties": {"a": {"const": 1}, "d": {}}}
    fields = {"a": {"description": "A."}, "b": {"description": "B.", "items": inline}, "properties": {}}
    schema = {"properties": fields, "allOf": [{"anyOf": [branch]}], "default": {"properties": {"e": {}}}}
    assert list(undescribed(schema)) == [".b/items.c", ".properties", "/allOf/0/anyOf/0.d"]


def test_every_native_endpoint_has_an_example(app: FastAPI) -> None:
    # A batch needs the id of an uploaded file, a file is a form, and a path with `{` needs the id of an eval.
    with_body = {
        path
        for path, operations in app.openapi()["paths"].items()
        if "{" not in path
        and "application/json" in operations.get("post", {}).get("requestBody", {}).get("content", {})
    }
    assert set(EXAMPLES) == with_body - set(requests_of(list(DIALECTS))) - {"/v1/batches"}


def test_every_endpoint_of_a_dialect_has_an_example(app: FastAPI) -> None:
    assert set(requests_of(list(DIALECTS))) <= set(examples_of(list(DIALECTS)))


FOREIGN = examples_of(list(DIALECTS))


@pytest.mark.parametrize(
    ("path", "title"),
    [(path, title) for given in (EXAMPLES, FOREIGN) for path, bodies in given.items() for title in bodies],
)
async def test_examples_of_the_schema_get_an_answer(app: FastAPI, path: str, title: str) -> None:
    shown = app.openapi()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"]
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        answer = await client.post(path, json=shown[title]["value"])
    assert answer.status_code == 200, answer.text
    assert "x-judge-failed" not in answer.headers
    schema = app.openapi()["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator(app, schema).validate(answer.json())


def validator(app: FastAPI, schema: dict[str, Any]) -> Draft202012Validator:
    """Validates against a schema of the OpenAPI document, and refuses properties that the schema does not declare."""
    return Draft202012Validator(strict(schema) | {"components": strict(app.openapi()["components"])})


def strict(schema: Any) -> Any:
    """The schema without room for properties that it does not declare."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema and "additionalProperties" not in schema else {}
    return {name: strict(value) for name, value in schema.items()} | closed


def test_every_json_response_has_a_schema(app: FastAPI) -> None:
    without = [
        f"{method} {path}"
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
        for kind, content in operation["responses"]["200"]["content"].items()
        if kind == "application/json" and not content.get("schema")
    ]
    assert without == []


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("/v1/judge", ["judgment.created", "judgment.turn", "judgment.completed"]),
        ("/v1/chat/completions", [*["ChatCompletionChunk"] * 4, "End"]),
        ("/v1/completions", [*["TextCompletionChunk"] * 2, "End"]),
    ],
)
async def test_events_of_a_stream_match_the_schema(app: FastAPI, path: str, kinds: list[str]) -> None:
    body = next(iter(EXAMPLES[path].values())) | {"stream": True}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    declared = app.openapi()["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    assert [kind_of(event, app=app, kinds=declared["oneOf"]) for event in events_in(answer.text)] == kinds


def events_in(text: str) -> list[dict[str, str]]:
    """The events of a stream."""
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]


def kind_of(event: dict[str, str], *, app: FastAPI, kinds: list[dict[str, Any]]) -> str:
    """Title of the one kind of event that an event is."""
    found = []
    for kind in kinds:
        content = kind["properties"]["data"].get("contentSchema")
        is_json = event["data"] != "[DONE]"
        if not validator(app, kind).is_valid(event) or (content is not None) != is_json:
            continue
        if content is None or validator(app, content).is_valid(json.loads(event["data"])):
            found.append(kind["title"])
    assert len(found) == 1, (event, found)
    return found[0]


def test_the_sandbox_service_has_the_page_too() -> None:
    page = reference_page(create_sandbox(SandboxService(SandboxPool(slots=1))).openapi())
    assert {"post-/v1/execute", "get-/health"} <= set(Links(page).ids)
