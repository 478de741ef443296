"""The documentation names every command, every field and every folder there is."""

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tirjudge.types import JudgeRequest, Judgment, Verdict

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
JUDGING = (ROOT / "docs" / "judging.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("field", JudgeRequest.model_fields)
def test_every_field_of_a_request_is_explained(field: str) -> None:
    assert f"| `{field}` |" in JUDGING


@pytest.mark.parametrize(
    "field", [*Verdict.model_fields, *(set(Judgment.model_fields) - {"id", "object", "created", "verdict"})]
)
def test_every_field_of_an_answer_is_explained(field: str) -> None:
    assert re.search(rf"[`.]{field}`", JUDGING), field


@pytest.mark.parametrize("command", sorted(entry.name for entry in entry_points(group="tirjudge.commands")))
def test_every_command_is_named_in_the_documentation(command: str) -> None:
    assert f"`tirjudge {command}" in JUDGING


def test_the_tree_of_the_readme_is_the_tree_of_the_project() -> None:
    listed = re.findall(r"^([\w./-]+/?) {2,}\S", README, re.MULTILINE)
    assert len(listed) > 8
    for path in listed:
        assert (ROOT / path).exists(), path


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_test_is_what_ci_runs() -> None:
    assert "make test" in README
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
