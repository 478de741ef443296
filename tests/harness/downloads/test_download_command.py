from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.commands import run_command
from tests.harness.downloads.file_server import FileServer, serving
from tirjudge_harness.benchmark import HubSource
from tirjudge_harness.benchmarks.llmbar import BENCHMARK
from tirjudge_harness.downloads.cli import shown_size

ROWS = [{"input": f"Write {n}.", "output_1": f"{n}", "output_2": "no", "label": 1} for n in range(2)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that has the rows of LLMBar."""
    with serving() as content:
        content.files["/v1/dataset.json"] = json.dumps(ROWS).encode()
        source = HubSource(
            id="json", split="train", files=f"{content.url}/v1/dataset.json", revision="v1", license="MIT"
        )
        monkeypatch.setitem(BENCHMARK.sources, "natural", source)  # type: ignore[arg-type]
        yield content


def test_a_download_is_listed_and_verified(server: FileServer, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    done = run_command(["bench", "download", "llmbar", "--part", "natural", *out])
    assert (done.status, done.stderr.strip()) == (0, "llmbar/natural/dataset.json")
    size = len(server.files["/v1/dataset.json"])
    assert done.stdout.strip() == f"{tmp_path / 'llmbar'}: natural, {size} bytes"
    listed = run_command(["bench", "download", "--list", *out]).stdout
    assert listed.splitlines()[1].split() == ["llmbar", "natural", "1", str(size), "bytes", "v1", "MIT"]
    verified = run_command(["bench", "download", "llmbar", "--verify", *out])
    assert (verified.status, verified.stdout.strip()) == (0, f"{tmp_path / 'llmbar'}: unchanged, 1 file")


def test_verify_names_a_changed_file_and_fails(server: FileServer, tmp_path: Path) -> None:
    run_command(["bench", "download", "llmbar", "--part", "natural", "--out", str(tmp_path)])
    path = tmp_path / "llmbar" / "natural" / "dataset.json"
    path.write_text(path.read_text().replace("no", "on", 1))
    verified = run_command(["bench", "download", "--verify", "--out", str(tmp_path)])
    assert verified.status == 1
    assert verified.stdout.startswith(f"{path}: the file changed since the download")


@pytest.mark.slow
def test_a_run_reads_the_downloaded_rows(server: FileServer, tmp_path: Path) -> None:
    run_command(["bench", "download", "llmbar", "--part", "natural", "--out", str(tmp_path / "data")])
    run = ["bench", "run", "llmbar", "--part", "natural", "--json"]
    done = run_command([*run, "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run")])
    assert done.status == 0, done.stderr
    (result,) = json.loads(done.stdout)
    assert result["counts"]["examples"] == 2
    assert result["manifest"]["data"]["sources"] == {"natural": "json@v1"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give the names of benchmarks, such as "),
        (["nothing"], "unknown benchmark 'nothing'"),
        (["llmbar", "rmb", "--part", "natural"], "--part needs a single benchmark"),
        (["llmbar", "--part", "odd"], "--part: llmbar has no part 'odd'; choose natural, neighbor"),
        (["selfcheck"], "selfcheck: the rows are part of this package and need no download"),
        (["--list"], "has no download of any benchmark"),
        (["llmbar", "--verify"], "has no download of llmbar"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path: Path, arguments: list[str], problem: str) -> None:
    done = run_command(["bench", "download", *arguments, "--out", str(tmp_path)])
    assert done.status == 2
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (1_960_188, "2.0 MB"), (3 * 10**12, "3000.0 GB")],
)
def test_sizes_are_shown_with_units(num_bytes: int, shown: str) -> None:
    assert shown_size(num_bytes) == shown


@pytest.mark.slow
def test_list_shows_columns_sources_sizes_licenses_and_revisions() -> None:
    found = {one["name"]: one for one in json.loads(run_command(["bench", "list", "--json"]).stdout)}
    assert found["judgebench"]["columns"] == ["pair_id", "source", "question", "response_A", "response_B", "label"]
    assert found["judgebench"]["sources"]["gpt"] == {
        "id": "ScalerLab/JudgeBench",
        "config": None,
        "split": "gpt",
        "files": [],
        "revision": "57dd5e0b9817d07f05ec8f45a91b2ce1e310e308",
        "num_rows": 350,
        "license": "MIT",
    }
    assert found["selfcheck"]["sources"]["items"]["num_rows"] == 60
    lines = run_command(["bench", "list", "-v"]).stdout.splitlines()
    start = lines.index("judgebench: JudgeBench, arXiv:2410.12784")
    assert lines[start + 1] == "  modes: pairwise, pointwise"
    assert lines[start + 4].startswith(
        "  claude (optional): 270 rows, license MIT, ScalerLab/JudgeBench/claude, revision "
    )
    assert any("Pairwise_set: unknown number of rows" in line and "and 48 more files" in line for line in lines)
