"""The documentation names every command, field, option and folder of the project."""

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer

from tirjudge.types import JudgeRequest, Judgment, Verdict
from tirjudge_server.call import Priority
from tirjudge_server.cli import serve
from tirjudge_server.openapi import ERROR_STATUSES
from tirjudge_server.settings import ServerSettings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVER = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
JUDGING = (ROOT / "docs" / "judging.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("field", JudgeRequest.model_fields)
def test_every_field_of_a_request_is_explained(field: str) -> None:
    assert f"| `{field}` |" in JUDGING


@pytest.mark.parametrize(
    "field", [*Verdict.model_fields, *sorted(set(Judgment.model_fields) - {"id", "object", "created", "verdict"})]
)
def test_every_field_of_an_answer_is_explained(field: str) -> None:
    assert re.search(rf"[`.]{field}`", JUDGING), field


@pytest.mark.parametrize("command", sorted(entry.name for entry in entry_points(group="tirjudge.commands")))
def test_every_command_is_named_in_the_documentation(command: str) -> None:
    assert f"`tirjudge {command}" in JUDGING


def options_of_serve() -> list[str]:
    command = typer.main.get_command(cli_of(serve))
    return [name for option in command.params for name in (*option.opts, *option.secondary_opts)]


def cli_of(function: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return app


@pytest.mark.parametrize("option", options_of_serve())
def test_every_option_of_the_server_is_explained(option: str) -> None:
    assert re.search(rf"^\|[^|]*`{option}`", SERVER, re.MULTILINE)


def test_every_option_of_the_server_is_an_environment_variable_too() -> None:
    for option in typer.main.get_command(cli_of(serve)).params:
        assert option.envvar == option.opts[0].replace("--", "TIRJUDGE_").replace("-", "_").upper()


@pytest.mark.parametrize("status", ERROR_STATUSES)
def test_every_status_of_the_server_is_explained(status: str) -> None:
    assert re.search(rf"^\| (\d+, )*{status}(, \d+)* \|", SERVER, re.MULTILINE)


@pytest.mark.parametrize("priority", Priority)
def test_every_priority_is_explained(priority: Priority) -> None:
    assert f"`{priority.name.lower()}`" in SERVER


def test_the_defaults_of_the_server_are_those_of_its_settings() -> None:
    defaults = ServerSettings()
    given = dict(re.findall(r"^\| `--([a-z-]+)` \| ([\d.]+) \|", SERVER, re.MULTILINE))
    assert {name: float(value) for name, value in given.items()} == {
        "engine-wait-s": defaults.engine_wait_s,
        "max-concurrency": defaults.concurrency,
        "max-queue": defaults.max_queue,
        "deadline-s": defaults.deadline_s,
        "max-body-mb": defaults.max_body_mb,
        "max-rollouts": defaults.max_rollouts,
        "max-prompt-chars": defaults.max_prompt_chars,
        "max-files-mb": defaults.max_files_mb,
        "max-files": defaults.max_files,
        "max-batches": defaults.max_batches,
        "grace-s": defaults.grace_s,
        "header-timeout-s": defaults.header_timeout_s,
        "cohort-size": defaults.cohort_size,
    }


def test_the_tree_of_the_readme_is_the_tree_of_the_project() -> None:
    listed = re.findall(r"^([\w./-]+/?) {2,}\S", README, re.MULTILINE)
    assert len(listed) > 8
    for path in listed:
        assert (ROOT / path).exists(), path


def test_links_in_the_documentation_are_valid() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_test_is_what_ci_runs() -> None:
    assert "make test" in README
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
