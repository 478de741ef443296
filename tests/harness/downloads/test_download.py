"""Downloads from a local server: files at URLs, and in the slow test the hub's interface with the real client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import httpx2
import pytest

from tests.harness.downloads.file_server import COMMIT, FileServer, serving
from tirjudge_harness.benchmark import Benchmark, BuiltInSource, HubSource, Row
from tirjudge_harness.columns import text
from tirjudge_harness.downloads.download import download
from tirjudge_harness.downloads.remote_files import RemoteFile, remote_source
from tirjudge_harness.downloads.snapshot import SNAPSHOT, DataSnapshot, find_snapshot, sha256_of_file, snapshots_in
from tirjudge_harness.downloads.transfer import download_file
from tirjudge_harness.examples import Example, example
from tirjudge_harness.items import InputError
from tirjudge_harness.metric_tree import cells_by
from tirjudge_harness.sources import load_examples

CONTENT = {
    "/quiz/v1/a/one.jsonl": b'{"q": "1"}\n' * 1,
    "/quiz/v1/b/two.jsonl": b'{"q": "2"}\n{"q": "3"}\n',
}


def examples(row: Row, part: str) -> Iterator[Example]:
    yield example(id=text(row, "q"), prompt="?", responses=("yes", "no"), correct=(0,), subset=part)


def quiz(server: FileServer, *, paths: tuple[str, ...] = tuple(CONTENT)) -> Benchmark:
    urls = tuple(f"{server.url}{path}" for path in paths)
    return Benchmark(
        name="quiz",
        title="Quiz",
        citation="none",
        sources={"items": HubSource(id="json", split="train", files=urls, revision="v1", license="MIT")},
        columns=("q",),
        examples=examples,
        sheet=cells_by("subset", ("items",)),
    )


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as content:
        content.files |= CONTENT
        yield content


def downloaded(benchmark: Benchmark, root: Path) -> list[str]:
    """Download a benchmark, and return the names of the files that were transferred."""
    names: list[str] = []

    def on_file(name: str, size: int | None):
        names.append(name)
        return lambda num: None

    download(benchmark, root=root, on_file=on_file)
    return names


def test_files_are_downloaded_with_a_manifest_and_load_without_a_network(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)
    assert downloaded(benchmark, tmp_path) == ["items/a/one.jsonl", "items/b/two.jsonl"]
    manifest = DataSnapshot.model_validate_json((tmp_path / "quiz" / SNAPSHOT).read_bytes())
    part = manifest.parts["items"]
    assert (part.revision, part.license, part.complete) == ("v1", "MIT", True)
    assert [(file.size, file.sha256) for file in part.files] == [
        (len(content), sha256_of_file(tmp_path / "quiz" / file.path))
        for content, file in zip(CONTENT.values(), part.files, strict=True)
    ]
    for data in (tmp_path, tmp_path / "quiz"):
        found = load_examples(benchmark, data=data, on_bad=lambda row: pytest.fail(str(row)))
        assert [one.outline.id for one in found] == ["1", "2", "3"]


def test_unchanged_files_are_not_downloaded_again(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)
    downloaded(benchmark, tmp_path)
    (tmp_path / "quiz" / "items" / "b" / "two.jsonl").write_text("{}")
    server.requests.clear()
    assert downloaded(benchmark, tmp_path) == ["items/b/two.jsonl"]
    assert [path for path, _ in server.requests] == ["/quiz/v1/b/two.jsonl"]


def test_a_lost_connection_is_continued(server: FileServer, tmp_path: Path) -> None:
    server.cut["/quiz/v1/b/two.jsonl"] = 5
    downloaded(quiz(server), tmp_path)
    assert server.requests[1:] == [("/quiz/v1/b/two.jsonl", ""), ("/quiz/v1/b/two.jsonl", "bytes=5-")]
    assert (tmp_path / "quiz" / "items" / "b" / "two.jsonl").read_bytes() == CONTENT["/quiz/v1/b/two.jsonl"]


def test_a_server_without_ranges_sends_the_file_again(server: FileServer, tmp_path: Path) -> None:
    server.cut["/quiz/v1/b/two.jsonl"], server.ignores_ranges = 5, True
    downloaded(quiz(server), tmp_path)
    assert (tmp_path / "quiz" / "items" / "b" / "two.jsonl").read_bytes() == CONTENT["/quiz/v1/b/two.jsonl"]


def test_a_stopped_download_continues_with_the_remaining_files(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)
    server.statuses["/quiz/v1/b/two.jsonl"] = 503
    with pytest.raises(InputError, match=r"two\.jsonl: cannot be downloaded: HTTP 503; .* run the same command again"):
        downloaded(benchmark, tmp_path)
    with pytest.raises(InputError, match="part items was not downloaded completely; run `tirjudge bench download quiz"):
        load_examples(benchmark, data=tmp_path, on_bad=print)
    server.statuses.clear()
    assert downloaded(benchmark, tmp_path) == ["items/b/two.jsonl"]


@pytest.mark.parametrize(
    ("status", "problem"),
    [(404, "cannot be downloaded: HTTP 404"), (401, "access denied .HTTP 401.; accept the conditions .* set HF_TOKEN")],
)
def test_a_refused_file_is_one_error(server: FileServer, tmp_path: Path, status: int, problem: str) -> None:
    server.statuses["/quiz/v1/a/one.jsonl"] = status
    with pytest.raises(InputError, match=f"one.jsonl: {problem}"):
        downloaded(quiz(server), tmp_path)


def test_a_changed_and_a_missing_file_are_refused_by_name(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)
    downloaded(benchmark, tmp_path)
    path = tmp_path / "quiz" / "items" / "b" / "two.jsonl"
    path.write_bytes(CONTENT["/quiz/v1/b/two.jsonl"].replace(b"2", b"9"))
    with pytest.raises(
        InputError, match=r"two\.jsonl: the file changed since the download: SHA-256 \w+ instead of"
    ) as raised:
        load_examples(benchmark, data=tmp_path, on_bad=print)
    assert f"`tirjudge bench download quiz --part items --out {tmp_path}`" in str(raised.value)
    path.unlink()
    with pytest.raises(InputError, match=r"two\.jsonl: the file is missing"):
        load_examples(benchmark, data=tmp_path, on_bad=print)


def test_a_part_that_was_not_downloaded_is_an_error(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)
    downloaded(benchmark, tmp_path)
    (source,) = benchmark.sources.values()
    more = replace(benchmark, sources={"items": source, "more": source}, sheet=cells_by("subset", ("items", "more")))
    with pytest.raises(InputError, match="part more was not downloaded; run `tirjudge bench download quiz --part more"):
        load_examples(more, data=tmp_path, parts=["more"], on_bad=print)


def test_the_folder_of_another_benchmark_is_an_error(server: FileServer, tmp_path: Path) -> None:
    downloaded(quiz(server), tmp_path)
    with pytest.raises(InputError, match="has the rows of quiz, not of other"):
        find_snapshot(tmp_path / "quiz", benchmark="other")
    assert find_snapshot(tmp_path, benchmark="other") is None
    assert [one.manifest.benchmark for one in snapshots_in(tmp_path)] == ["quiz"]


def transferred(file: RemoteFile, to: Path) -> str:
    with httpx2.Client(follow_redirects=True) as client:
        return download_file(file, to, client=client, headers={}, on_bytes=lambda num: None)


@pytest.mark.parametrize("expected", [{"sha256": "0" * 64}, {"git_sha1": "1" * 40}])
def test_a_wrong_checksum_is_an_error_and_leaves_no_file(
    server: FileServer, tmp_path: Path, expected: dict[str, str]
) -> None:
    path = "/quiz/v1/a/one.jsonl"
    file = RemoteFile(url=server.url + path, path=PurePosixPath("one"), size=len(CONTENT[path]), **expected)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"wrong checksum: .* instead of [01]{12}; the file was deleted"):
        transferred(file, tmp_path / "one")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_larger_than_expected_is_an_error(server: FileServer, tmp_path: Path) -> None:
    file = RemoteFile(url=f"{server.url}/quiz/v1/a/one.jsonl", path=PurePosixPath("one"), size=3)
    with pytest.raises(InputError, match="sends more than the expected 3 bytes"):
        transferred(file, tmp_path / "one")


def test_no_network_is_one_error(tmp_path: Path) -> None:
    with serving() as closed:
        benchmark = quiz(closed)
    with pytest.raises(InputError, match=r"cannot be downloaded: ConnectError: .*; check the network"):
        downloaded(benchmark, tmp_path)


def test_a_full_disk_is_one_error(server: FileServer, tmp_path: Path) -> None:
    """/dev/full refuses every write like a full disk."""
    folder = tmp_path / "quiz" / "items" / "a"
    folder.mkdir(parents=True)
    (folder / ".unfinished-one.jsonl").symlink_to("/dev/full")
    with pytest.raises(InputError, match="the disk is full; free space and run the same command again to continue"):
        downloaded(quiz(server), tmp_path)


def test_two_downloads_do_not_write_one_folder(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)

    def on_file(name: str, size: int | None):
        with pytest.raises(ValueError, match="another process writes it"):
            download(benchmark, root=tmp_path, on_file=lambda name, size: lambda num: None)
        return lambda num: None

    download(benchmark, root=tmp_path, on_file=on_file)


def test_a_path_that_leaves_the_folder_is_refused() -> None:
    urls = ("https://example.org/a/%2e%2e/%2e%2e/x.jsonl", "https://example.org/b/y.jsonl")
    with pytest.raises(ValueError, match="not a safe file name"):
        remote_source(HubSource(id="json", split="train", files=urls))


def test_unknown_parts_and_built_in_rows_are_errors(server: FileServer, tmp_path: Path) -> None:
    benchmark = quiz(server)
    with pytest.raises(InputError, match="--part: quiz has no part 'odd'; choose items"):
        download(benchmark, root=tmp_path, parts=["odd"], on_file=lambda name, size: lambda num: None)
    built_in = BuiltInSource(id="own", revision="1", rows=list)
    with pytest.raises(InputError, match="the rows are part of this package and need no download"):
        downloaded(replace(benchmark, sources={"items": built_in}), tmp_path)


LOAD = """
import sys
from dataclasses import replace
from pathlib import Path
from tirjudge_harness.benchmark import HubSource
from tirjudge_harness.benchmarks.codejudgebench import BENCHMARK as code
from tirjudge_harness.benchmarks.judgebench import BENCHMARK as pairs
from tirjudge_harness.downloads.download import download
from tirjudge_harness.sources import load_examples
root = Path(sys.argv[1])
for benchmark, parts in ((pairs, ("gpt",)), (code, ("codegen",))):
    source = replace(benchmark.sources[parts[0]], revision="main")
    benchmark = replace(benchmark, sources={parts[0]: source})
    for _ in range(2):
        done = download(benchmark, root=root, parts=parts, on_file=lambda name, size: print(name, size) or (lambda num: None))
    (part,) = done.manifest.parts.values()
    print(part.source, part.config, part.revision, part.license, [file.split for file in part.files])
    for one in load_examples(benchmark, data=root, on_bad=print):
        print(one.outline.id, one.outline.tags["split"])
"""


def with_hub(url: str, tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new process, because the client reads these variables when it is imported."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


FAIL = """
import sys
from pathlib import Path
from tirjudge_harness.benchmarks.alpacaeval_human import BENCHMARK as file
from tirjudge_harness.benchmarks.judgebench import BENCHMARK as split
from tirjudge_harness.downloads.download import download
for benchmark in (file, split):
    try:
        download(benchmark, root=Path(sys.argv[1]), on_file=print)
    except ValueError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_and_an_unknown_data_set_are_one_line(tmp_path: Path) -> None:
    with serving() as server:
        unknown = with_hub(server.url, tmp_path, FAIL)
    for done in (unknown, with_hub(server.url, tmp_path, FAIL)):
        first, second = done.stdout.splitlines()
        assert first.startswith("InputError json: cannot be read from the hub: ")
        assert second.startswith("InputError ScalerLab/JudgeBench: cannot be read from the hub: ")
        assert second.endswith("check the network, HF_ENDPOINT (a mirror) and HF_TOKEN (for data sets with conditions)")
    assert unknown.stdout.count("404 Not Found") == 2
    assert "ConnectError" in done.stdout


@pytest.mark.slow
def test_splits_of_the_hub_are_downloaded_with_the_real_client(server: FileServer, tmp_path: Path) -> None:
    pair = {
        "pair_id": "p1",
        "source": "mmlu-pro-law",
        "question": "?",
        "response_A": "a",
        "response_B": "b",
        "label": "A>B",
    }
    code = {"question_content": "Add.", "difficulty": "easy", "pos_response": "1", "neg_response": "2"}
    card = """---
license: mit
configs:
- config_name: codegen
  data_files:
  - split: gemini
    path: codegen/gemini-*
  - split: claude
    path: codegen/claude-*
- config_name: testgen
  data_files:
  - split: gemini
    path: testgen/gemini-*
---
"""
    rows = {split: json.dumps(code | {"question_id": f"{split}-1"}).encode() for split in ("gemini", "claude")}
    server.repositories = {
        "ScalerLab/JudgeBench": {
            "README.md": b"---\nlicense: mit\n---\n",
            "data/gpt-00000-of-00001.jsonl": json.dumps(pair).encode(),
            "data/claude-00000-of-00001.jsonl": json.dumps(pair | {"pair_id": "p2"}).encode(),
        },
        "mattymchen/codejudgebench": {
            "README.md": card.encode(),
            "codegen/gemini-00000-of-00001.jsonl": rows["gemini"],
            "codegen/claude-00000-of-00001.jsonl": rows["claude"],
            "testgen/gemini-00000-of-00001.jsonl": rows["gemini"],
        },
    }
    server.large = frozenset({"data/gpt-00000-of-00001.jsonl"})
    done = with_hub(server.url, tmp_path, LOAD)
    sizes = {split: len(row) for split, row in rows.items()}
    assert done.stdout.splitlines() == [
        f"gpt/data/gpt-00000-of-00001.jsonl {len(json.dumps(pair))}",
        f"ScalerLab/JudgeBench None {COMMIT} mit [None]",
        "p1 gpt",
        f"codegen/codegen/gemini-00000-of-00001.jsonl {sizes['gemini']}",
        f"codegen/codegen/claude-00000-of-00001.jsonl {sizes['claude']}",
        f"mattymchen/codejudgebench codegen {COMMIT} mit ['gemini', 'claude']",
        "codegen/gemini/gemini-1 gemini",
        "codegen/claude/claude-1 claude",
    ], (done.stderr[-3000:], server.missing)
