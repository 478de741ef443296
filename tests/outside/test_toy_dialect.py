"""A dialect of another package: installed from a temporary folder, and spoken by `tirjudge serve`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

TOYS = Path(__file__).parent / "toys"
MAIN = [sys.executable, "-c", "from tirjudge.cli import main; main()"]
ENTRY_POINTS = "[tirjudge.dialects]\ntoy = tirjudge_toy.dialect:DIALECT\n"
RAIN = {
    "question": "Write one sentence about rain. Use no commas.",
    "answers": ["It rains.", "Yes, it rains, it does."],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy package, laid out as pip installs one."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(TOYS / "tirjudge_toy", folder / "tirjudge_toy", ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / "tirjudge_toy-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tirjudge-toy\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


def serve(site: Path, state: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [*MAIN, "serve", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "XDG_STATE_HOME": str(state)},
    )


@pytest.fixture(scope="module")
def url(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the bundled judge and all dialects that are installed."""
    process = serve(site, tmp_path_factory.mktemp("state"))
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "ready at http://" in line
    yield line.split()[4]
    process.terminate()
    process.communicate(timeout=60)


def test_responses_are_marked(url: str) -> None:
    answer = httpx2.post(f"{url}/toy/marks", json=RAIN, timeout=120)
    assert answer.status_code == 200, answer.text
    good, bad = answer.json()["marks"]
    assert 0 <= bad < good <= 10
    assert answer.json()["judge"] == httpx2.get(f"{url}/v1/models").json()["data"][0]["id"]
    assert 'tirjudge_judgments_total{dialect="toy"' in httpx2.get(f"{url}/metrics").text


def test_options_of_the_url_say_how_to_judge(url: str) -> None:
    answer = httpx2.post(f"{url}/toy/marks?mode=cohort&scale=0,1", json=RAIN, timeout=120)
    assert sum(answer.json()["marks"]) == pytest.approx(10)
    wrong = httpx2.post(f"{url}/toy/marks?mood=cohort", json=RAIN)
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "mood"


def test_a_missing_score_is_told_and_counted_by_the_row_of_the_dialect(url: str) -> None:
    answer = httpx2.post(f"{url}/toy/marks", json=RAIN | {"question": ""})
    assert answer.json()["marks"] == [None, None]
    assert answer.headers["x-judge-failed"] == "2"
    told = httpx2.get(f"{url}/metrics").text
    assert 'tirjudge_fallbacks_total{dialect="toy",reason="unreadable"} 2.0' in told


def test_the_endpoint_is_on_the_openapi_page(url: str) -> None:
    page = httpx2.get(f"{url}/openapi.json").json()
    operation = page["paths"]["/toy/marks"]["post"]
    assert operation["description"] == "Mark answers."
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ToyMarks")
    assert set(page["components"]["schemas"]["ToyMarks"]["properties"]) == {"question", "answers"}


def test_the_dialect_can_be_named(site: Path, tmp_path: Path) -> None:
    process = serve(site, tmp_path, "--dialects", "toy", "--records", "none", "--max-prompt-chars", "1")
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[4]
        assert httpx2.post(f"{url}/get_reward", json={"query": ["x"]}).status_code == 404
        # The row of the failure table says that a request which costs too much is an HTTP error.
        assert httpx2.post(f"{url}/toy/marks", json=RAIN).status_code == 413
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_the_example_of_the_docs_is_this_toy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    assert (TOYS / "tirjudge_toy" / "dialect.py").read_text(encoding="utf-8").strip() in page
    assert "tirjudge_toy.dialect:DIALECT" in page
