"""The pages of Start and the README work when they are pasted, with the real commands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import serving_chat
from tests.docs.pasting import PastedResult, blocks, free_port, paste

ROOT = Path(__file__).parents[2]
START, GUIDES = ROOT / "docs" / "start", ROOT / "docs" / "guides"


def pasted(page: Path, *, folder: Path, python: Sequence[str] = (), **replaced: str) -> PastedResult:
    """Paste the blocks of a page that do not install anything, and run `python` programs after them."""
    programs = [f"python - <<'END'\n{program}END" for program in python]
    script = "\n".join([*(block for block in blocks(page, "sh") if "pip install" not in block), *programs])
    port = str(free_port())
    ports = {"tirjudge serve": f"tirjudge serve --port {port}"}
    ports |= {f"{host}:8400": f"{host}:{port}" for host in ("localhost", "127.0.0.1")}
    done = paste(script, folder=folder, replaced={**ports, **replaced})
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def answer_in(text: str) -> dict[str, Any]:
    """The JSON object in an output, which begins and ends with a line of its own."""
    return json.JSONDecoder().raw_decode(text[f"\n{text}".index("\n{\n") :])[0]


def test_every_page_of_start_has_commands() -> None:
    pages = {page.stem for page in START.glob("*.md")}
    assert pages == {"laptop", "ten-minutes", "ollama", "vllm"}
    for page in pages:
        assert blocks(START / f"{page}.md", "sh")


@pytest.mark.slow
def test_the_page_for_a_laptop_works_when_pasted(tmp_path: Path) -> None:
    python = [*blocks(START / "laptop.md", "python"), *blocks(GUIDES / "rewards-for-trainers.md", "python")]
    assert len(python) == 2
    done = pasted(START / "laptop.md", folder=tmp_path, python=python)
    assert "Verdict: response A is better" in done.stdout
    assert answer_in(done.stdout)["verdict"]["status"] == "decided"
    best, rewards = done.stdout.splitlines()[-2:]
    assert best.startswith("0 [")
    assert json.loads(rewards)[0] > json.loads(rewards)[1]


@pytest.mark.slow
def test_the_page_on_own_data_works_when_pasted(tmp_path: Path) -> None:
    done = pasted(START / "ten-minutes.md", folder=tmp_path)
    assert "accuracy" in done.stdout
    assert "Shakespeare" in (tmp_path / "runs" / "first" / "mine.csv").read_text()
    assert "accuracy" in (tmp_path / "runs" / "first" / "report.md").read_text()


@pytest.mark.slow
def test_the_page_on_ollama_works_with_an_endpoint_of_its_api(tmp_path: Path) -> None:
    with serving_chat(lambda prompt: "<preference>A</preference>") as chat:
        address = chat.url.removesuffix("/v1")
        done = pasted(
            START / "ollama.md", folder=tmp_path, **{"http://127.0.0.1:11434": address, "qwen3:8b": "gpt-scripted"}
        )
    assert "Verdict: " in done.stdout


@pytest.mark.slow
def test_the_page_on_vllm_works_with_a_worker(tmp_path: Path) -> None:
    port = str(free_port())
    ports = {
        "--port 8000": f"--port {port}",
        "localhost:8000": f"localhost:{port}",
        "127.0.0.1:8000": f"127.0.0.1:{port}",
    }
    done = pasted(START / "vllm.md", folder=tmp_path, **ports)
    assert "Verdict: " in done.stdout
    # The profile of the worker's checkpoint is used.
    assert ", forced" not in done.stdout
    assert not answer_in(done.stdout)["verdict"]["forced"]
    assert answer_in(done.stdout)["object"] == "judgment"


@pytest.mark.slow
def test_the_first_request_of_the_readme_works_when_pasted(tmp_path: Path) -> None:
    first, second = (
        block for block in blocks(ROOT / "README.md", "sh") if "tirjudge serve &" in block or "tirjudge judge" in block
    )
    (tmp_path / "README.md").write_text(f"```sh\n{first}{second}```\n")
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    done = pasted(tmp_path / "README.md", folder=tmp_path)
    assert answer_in(done.stdout)["verdict"]["best"] == 0
    assert "Verdict: response A is better" in done.stdout
