"""The documentation site: every page is in its navigation, every link has a target, and it builds without warnings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SHOWN = {
    "measurements/bundled-card.md": "judge/tirjudge/checkpoints/tiny/README.md",
    "measurements/scripts.md": "benchmarks/README.md",
}


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def listed(page: Path) -> Iterator[Path]:
    """The pages in the navigation of a page, and below."""
    for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for line in tree.splitlines():
            if line and not line.startswith(":"):
                child = (page.parent / f"{line}.md").resolve()
                yield child
                yield from listed(child)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_once_in_the_navigation() -> None:
    found = list(listed(DOCS / "index.md"))
    assert sorted(found) == [page for page in PAGES if page != DOCS / "index.md"]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_links_have_a_page_and_an_anchor(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^()\s#]*)(?:#([^()\s]+))?\)", prose(page)):
        goal = (page.parent / target).resolve() if target else page
        assert goal.exists(), f"{page.name}: {target}"
        if anchor and goal.suffix == ".md" and "commands" not in goal.name:
            assert anchor in anchors(goal), f"{page.name}: {target}#{anchor}"


@pytest.mark.parametrize(("page", "shows"), SHOWN.items())
def test_pages_of_the_repository_are_shown_by_the_site(page: str, shows: str) -> None:
    assert shows in (DOCS / page).read_text(encoding="utf-8")
    assert (ROOT / shows).exists()


@pytest.mark.slow
def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-d",
        str(tmp_path / "doctrees"),
    ]
    done = subprocess.run(
        [*command, str(DOCS), str(tmp_path / "site")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LANG": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    site = tmp_path / "site"
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert 'id="tirjudge-bench-run"' in commands
    assert "Print the result as JSON." in commands
    assert "TIRJUDGE_MAX_QUEUE" in (site / "reference" / "configuration.html").read_text(encoding="utf-8")
    assert "/v1/judge" in (site / "api.html").read_text(encoding="utf-8")
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert "tirjudge.AsyncClient.judge_batch" in python
    assert "probabilities" in python
    assert "tirjudge" in (site / "measurements" / "scripts.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?://[^\"]+)", page.read_text(encoding="utf-8")
        )
        assert not loaded, (page.name, loaded)
