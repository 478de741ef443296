"""`tirjudge show` writes self-contained pages, from runs, files and the records of a server."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.commands import run_command
from tests.judgments import build_judgment, build_request, build_rollout, build_rollout_verdict, build_verdict
from tests.servers import scripted_service, serve_in_thread
from tirjudge.client import Client
from tirjudge.types import Judgment
from tirjudge_server.app import create_app
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records


def judged() -> Judgment:
    """A judgment of two responses."""
    voted = build_rollout_verdict("B", best=1, probabilities={"A": 0.2, "B": 0.8})
    verdict = build_verdict(best=1, label="B", probabilities=[0.2, 0.8], confidence=0.8, label_mass=1.0)
    return build_judgment(verdict, id="jdg_1", rollouts=[build_rollout(verdict=voted)])


def test_a_file_with_one_judgment_becomes_a_page(tmp_path: Path) -> None:
    file, page = tmp_path / "judgment.json", tmp_path / "page.html"
    file.write_text(judged().model_dump_json(indent=1))
    done = run_command(["show", str(file), "-o", str(page)])
    assert (done.status, done.stdout.strip()) == (0, str(page)), done.stderr
    html = page.read_text()
    assert "Response B is better" in html
    assert '<link rel="stylesheet"' not in html
    assert page.stat().st_mode & 0o077 == 0
    assert "response B is better" in run_command(["show", str(file)]).stdout


def test_an_output_file_becomes_one_page_for_each_judgment(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    lines = [
        {"id": str(number), "item_sha256": "0" * 64, "configuration": {}, "judgment": judged().model_dump(mode="json")}
        for number in range(2)
    ]
    output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run_command(["show", str(output), "-o", str(tmp_path / "page.html")])
    assert done.status == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["page-1.html", "page-2.html"]
    missing = run_command(["show", str(output), "-o", str(tmp_path / "none" / "page.html")])
    assert (missing.status, "existing folder" in missing.stderr) == (2, True)


def test_a_damaged_file_is_refused_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "judgment.json"
    file.write_text(json.dumps(judged().model_dump(mode="json") | {"mode": "x"}))
    done = run_command(["show", str(file)])
    assert done.status == 2
    assert "mode" in done.stderr


def test_a_file_that_is_no_output_says_how_to_make_one(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("prompt,answer_a,answer_b\nWhy?,a,b\n")
    done = run_command(["show", str(rows)])
    assert done.status == 2
    assert "not a run and not an output of `tirjudge judge`" in done.stderr


def test_an_id_is_read_from_the_server(tmp_path: Path) -> None:
    @asynccontextmanager
    async def opened():
        service = scripted_service(["<preference>A</preference>"] * 4)
        versions = versions_of(service.judge, fingerprint=None, isolation=None)
        async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
            service.records = records
            yield create_app(service, records=records)

    with serve_in_thread(opened()) as url:
        with Client(url) as client:
            judgment = client.judge(build_request("Which <b>one</b>?", tools="off"))
        page = tmp_path / "page.html"
        done = run_command(["show", judgment.id, "--url", url, "-o", str(page)])
        unknown = run_command(["show", "jdg_" + "0" * 32, "--url", url])
    assert done.status == 0, done.stderr
    assert "Which &lt;b&gt;one&lt;/b&gt;?" in page.read_text()
    assert "Matches its hash" in page.read_text()
    assert (unknown.status != 0, "not on record" in unknown.stderr) == (True, True)
