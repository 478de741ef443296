"""Pages of runs as files: what is written, in a real browser from the disk, and with hostile texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser import SharedBrowser, check_accessible
from tests.harness.commands import run_command
from tests.harness.reports.conftest import MakeRun, Pair
from tests.runs import HOSTILE, HOSTILE_TEXT, judge_hostile_rows
from tirjudge.types import Outcome
from tirjudge_harness.reports.pages.indexing import index_run
from tirjudge_harness.reports.pages.site import write_site
from tirjudge_sandbox import SandboxPool

PAIRS = [Pair(id=f"p{n}", named=(0, 0) if n % 3 else (1, 1), outcome=Outcome.OK) for n in range(6)]


def exported(*arguments: str | Path) -> list[str]:
    """Export, and return the paths of the files below the folder, which is the last argument."""
    out = Path(arguments[-1])
    done = run_command(["bench", "report", *map(str, arguments[:-1]), "--html", str(out)])
    assert (done.status, done.stdout) == (0, f"{out / 'index.html'}\n"), done.stderr
    return sorted(file.relative_to(out).as_posix() for file in out.rglob("*.html"))


@pytest.mark.slow
def test_one_run_is_a_report_items_and_lists(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(PAIRS)
    files = exported(folder, tmp_path / "site")
    assert {"index.html", "items-1.html", "all-1.html", "wrong-1.html", "subset-1-1.html"} <= set(files)
    assert "66.7 (30.0 to 90.3)" in (tmp_path / "site" / "index.html").read_text()
    wrong = (tmp_path / "site" / "wrong-1.html").read_text()
    assert re.findall(r'href="(items-[^"]+)"', wrong) == ["items-1.html#item-0", "items-1.html#item-3"]
    assert 'id="item-3"' in (tmp_path / "site" / "items-1.html").read_text()
    assert not (folder / "pages.db").exists()


@pytest.mark.slow
def test_all_links_of_an_export_are_files_of_it(make_run: MakeRun, tmp_path: Path) -> None:
    first, second = make_run(PAIRS), make_run([Pair(id=f"p{n}") for n in range(5)], folder="other")
    out = tmp_path / "site"
    files = exported(first, second, out)
    assert {"index.html", "compared-1-2.html", "run-1/index.html", "run-2/index.html"} <= set(files)
    for name in files:
        text = (out / name).read_text()
        for target in re.findall(r'href="([^"#]+)', text):
            if target != "data:,":
                assert ((out / name).parent / target).is_file(), f"{name}: {target}"
    comparison = (out / "compared-1-2.html").read_text()
    assert "Items that changed: 2" in comparison
    assert "p (Holm)" in comparison


def test_a_page_has_500_items(make_run: MakeRun, tmp_path: Path) -> None:
    index = index_run(make_run([Pair(id=f"p{n}", named=(n % 2,)) for n in range(501)]))
    done: list[tuple[int, int]] = []
    write_site([index], names=["run"], out=tmp_path / "site", on_page=lambda *counts: done.append(counts))
    assert done == [(1, 2), (2, 2)]
    pages = [(tmp_path / "site" / f"items-{page}.html").read_text() for page in (1, 2)]
    assert [page.count('<article id="item-') for page in pages] == [500, 1]
    assert 'href="items-2.html" rel="next"' in pages[0]
    assert (tmp_path / "site" / "all-2.html").is_file()
    assert not (tmp_path / "site" / "wrong-2.html").exists()  # 250 items


def test_hostile_names_are_escaped(make_run: MakeRun, tmp_path: Path) -> None:
    pairs = [Pair(id=text, subset=HOSTILE_TEXT) for text in HOSTILE]
    exported(make_run(pairs, folder=HOSTILE[1], model=HOSTILE_TEXT), tmp_path / "site")
    for file in (tmp_path / "site").iterdir():
        text = file.read_text().partition("<body>")[2]
        assert not re.search(r"<script>|<img|<b |<svg onload|\x1b|\u202e|href=.javascript", text)


def test_runs_that_cannot_be_compared_say_why(make_run: MakeRun, tmp_path: Path) -> None:
    first, second = make_run([Pair(id="a")]), make_run([Pair(id="b")], folder="other")
    exported(first, second, tmp_path / "site")
    assert "no common comparisons" in (tmp_path / "site" / "index.html").read_text()


def test_rows_with_other_texts_are_not_among_the_changed_items(make_run: MakeRun, tmp_path: Path) -> None:
    columns = {"layout": "labeled", "prompt": ["q"], "responses": ["a", "b"], "labels": ["label"], "id": "id"}
    runs = []
    for folder, texts, named in (("a", "xy", 0), ("b", "xz", 1)):
        pairs = [Pair(id=f"{n}", named=(named,), correct=(0,), content=text) for n, text in enumerate(texts)]
        data = {"path": "rows.csv", "sha256": folder * 64, "columns": columns}
        runs.append(make_run(pairs, folder=folder, benchmark="rows.csv", data=data))
    exported(*runs, tmp_path / "site")
    comparison = (tmp_path / "site" / "compared-1-2.html").read_text()
    assert "1 row with different texts" in comparison
    assert "Items that changed: 1" in comparison


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_command(["bench", "report", str(make_run(PAIRS)), "--html", str(tmp_path / "file" / "site")])
    assert done.status == 2
    assert "choose a writable folder" in " ".join(done.stderr.split())
    done = run_command(["bench", "report", str(make_run(PAIRS, folder="again")), "--html", str(tmp_path / "r.html")])
    assert done.status == 2
    assert "give a folder, in which index.html is the report" in " ".join(done.stderr.split())
    assert not (tmp_path / "r.html").exists()


@pytest.mark.slow
async def test_an_export_works_from_a_disk_with_the_keyboard(
    browser: SharedBrowser, make_run: MakeRun, tmp_path: Path
) -> None:
    first, second = index_run(make_run(PAIRS)), index_run(make_run([Pair(id="p0"), Pair(id="p1")], folder="other"))
    write_site([first, second], names=["first", "second"], out=tmp_path / "site")

    async def visit(page: Any) -> None:
        requested: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        await page.goto((tmp_path / "site" / "index.html").as_uri())
        await check_accessible(page)
        await page.get_by_role("link", name="first", exact=True).press("Enter")
        await page.wait_for_url("**/run-1/index.html")
        assert await page.locator("svg.chart").count() >= 4
        await check_accessible(page)
        await page.keyboard.press("e")
        await page.wait_for_url("**/all-1.html")
        await page.get_by_role("link", name="wrong (2)").press("Enter")
        await page.wait_for_url("**/wrong-1.html")
        await check_accessible(page)
        await page.get_by_role("link", name="p3").press("Enter")
        await page.wait_for_url("**/items-1.html#item-3")
        await check_accessible(page)
        await page.keyboard.press("u")
        await page.wait_for_url("**/run-1/index.html")
        await page.goto((tmp_path / "site" / "compared-1-2.html").as_uri())
        assert "Items that changed: 1" in await page.inner_text("main")
        await check_accessible(page)
        assert all(url.startswith(("file://", "data:")) for url in requested), requested

    await browser.visit(visit)


@pytest.mark.slow
async def test_hostile_texts_run_nothing_and_break_nothing(
    browser: SharedBrowser, pool: SandboxPool, tmp_path: Path
) -> None:
    folder = await judge_hostile_rows(tmp_path, pool=pool)
    index = index_run(folder)
    assert index.view.no_texts == ""
    write_site([index, index], names=[str(folder)] * 2, out=tmp_path / "site")
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20

    async def visit(page: Any) -> None:
        chosen = [file for file in pages if "run-2" not in file.parts]
        for file in chosen:
            await page.goto(file.as_uri())
            # The frame of the page is intact, and no text has become an element.
            assert await page.locator("body > main").count() == 1
            assert await page.locator("img, svg[onload], main script, b").count() == 0
            shown = await page.inner_text("body")
            assert not set("\x1b\u202e\u2066\x07") & set(shown)
            links = await page.eval_on_selector_all("a", "links => links.map(link => link.protocol)")
            assert set(links) <= {"file:"}
        await page.goto((tmp_path / "site" / "run-1" / "items-1.html").as_uri())
        assert HOSTILE[0] in await page.inner_text("main")

    await browser.visit(visit, viewport={"width": 360, "height": 640})
