"""docs/sandbox-service.md names all endpoints, fields and options of the service."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import typer

from tirjudge.types import ExecResult, Outcome
from tirjudge_sandbox.app import create_app
from tirjudge_sandbox.cli import app
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.service import SandboxService
from tirjudge_sandbox.session import ClientMessage
from tirjudge_sandbox.wire import SESSION_PATH, ExecuteRequest, SessionRequest, body_of

PAGE = (Path(__file__).parents[3] / "docs" / "sandbox-service.md").read_text(encoding="utf-8")


async def test_every_endpoint_is_documented(service: SandboxService) -> None:
    paths = create_app(service).openapi()["paths"]
    assert len(paths) > 7
    for path, methods in paths.items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in PAGE, path


@pytest.mark.parametrize("field", ExecuteRequest.model_fields)
def test_every_field_of_a_request_is_documented(field: str) -> None:
    assert f"| `{field}` |" in PAGE


def test_sessions_are_documented() -> None:
    assert f"`{SESSION_PATH}`" in PAGE
    for field in {*SessionRequest.model_fields, *ClientMessage.model_fields} - {*ExecuteRequest.model_fields}:
        assert f"`{field}`" in PAGE or f'"{field}":' in PAGE, field


@pytest.mark.parametrize(
    "field", [*body_of(ExecResult(outcome=Outcome.OK)), *(field.name for field in fields(Limits)), *Outcome]
)
def test_every_field_of_a_response_and_every_limit_and_outcome_is_documented(field: str) -> None:
    assert f"`{field}`" in PAGE


def test_every_option_of_the_command_is_documented() -> None:
    group = typer.main.get_command(app)
    command = group.commands["serve"]  # type: ignore[attr-defined]
    options = [option for parameter in command.params for option in parameter.opts]
    assert len(options) > 12
    for option in options:
        assert f"`{option}`" in PAGE or option == "--help"
