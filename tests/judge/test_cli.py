from __future__ import annotations

import subprocess
import sys


def run(*arguments: str, before: str = "pass") -> subprocess.CompletedProcess[str]:
    """`tirjudge` in a process of its own."""
    script = f"import sys; {before}; from tirjudge.cli import main; main()"
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True)


def test_help_lists_the_commands_of_all_rooms() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in ("judge", "sandbox", "serve", "train", "worker"):
        assert f" {command} " in shown.stdout


def test_help_loads_nothing_heavy() -> None:
    script = """
import sys
from tirjudge.cli import app
try:
    app(["--help"])
except SystemExit:
    pass
print(sorted({"torch", "transformers", "fastapi", "uvicorn", "vllm", "numpy"} & set(sys.modules)), file=sys.stderr)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stderr == "[]\n"


def test_version_is_printed() -> None:
    assert run("--version").stdout == "tirjudge 0.1.0\n"


def test_no_arguments_show_the_help() -> None:
    shown = run()
    assert "Commands" in shown.stdout + shown.stderr


def test_a_missing_extra_is_one_line_that_names_it() -> None:
    shown = run("serve", "--port", "0", before="sys.modules['fastapi'] = sys.modules['uvicorn'] = None")
    assert shown.returncode == 2
    assert shown.stderr == "tirjudge serve needs: pip install 'tirjudge[server]'\n"


def test_a_room_that_cannot_be_imported_is_still_listed() -> None:
    without_room = "sys.modules['tirjudge_server'] = sys.modules['tirjudge_server.cli'] = None"
    shown = run("--help", before=without_room)
    assert shown.returncode == 0
    assert "cannot be loaded" in shown.stdout
    assert run("serve", before=without_room).returncode == 2


def test_a_mistake_in_the_arguments_shows_no_traceback() -> None:
    shown = run("serve", "--model", "/nowhere", "--port", "0")
    assert shown.returncode == 2
    assert shown.stderr.startswith("tirjudge serve: model: /nowhere is not a checkpoint folder")
