"""The command `tirjudge`: its help, its subcommands and its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tirjudge.cli import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `tirjudge` in this process."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["tirjudge", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), shown.out, shown.err)

    return run


def test_help_lists_the_commands_of_all_packages(run: Run) -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in ("judge", "sandbox", "serve", "train", "worker"):
        assert f" {command} " in shown.stdout


@pytest.mark.slow
def test_help_imports_no_heavy_modules() -> None:
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


def test_version_is_printed(run: Run) -> None:
    assert run("--version").stdout == "tirjudge 0.1.0\n"


def test_no_arguments_show_the_help(run: Run) -> None:
    shown = run()
    assert "Commands" in shown.stdout + shown.stderr


@pytest.mark.slow
def test_a_missing_extra_is_one_line_that_names_it() -> None:
    script = "import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = None; from tirjudge.cli import main; main()"
    command = [sys.executable, "-c", script, "serve", "--port", "0"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 2
    assert shown.stderr in {
        f"tirjudge serve needs the module {name}: pip install 'tirjudge[server]'\n" for name in ("fastapi", "uvicorn")
    }


def test_a_command_that_cannot_be_imported_is_still_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tirjudge_server.cli", None)
    shown = run("--help")
    assert shown.returncode == 0
    assert "cannot be loaded" in shown.stdout
    assert run("serve").returncode == 2


def test_an_invalid_argument_shows_no_traceback(run: Run) -> None:
    shown = run("serve", "--model", "/nowhere", "--port", "0")
    assert shown.returncode == 2
    assert shown.stderr.startswith("tirjudge serve: model: /nowhere is not a checkpoint folder")
