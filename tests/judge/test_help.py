"""The help of all commands: its groups, its examples, its width, and the hints for misspelt commands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.command_line import run_command
from tirjudge.cli import app
from tirjudge.help import leaves, split_examples

COMMANDS: dict[tuple[str, ...], Any] = dict(leaves(typer.main.get_command(app), path=("tirjudge",)))
"""Path of each command without subcommands -> its context."""

EXAMPLES = [(path, example) for path, ctx in COMMANDS.items() for example in split_examples(ctx.command.help)[1]]

MAX_OPTIONS = 16
"""Maximum number of options in one group of a help text."""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_an_example(path: tuple[str, ...]) -> None:
    assert path in [of for of, _ in EXAMPLES]


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_every_example_is_a_valid_command_line(
    path: tuple[str, ...], example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").touch()  # an argument that must exist
    words = shlex.split(example.partition(" > ")[0], comments=True)
    assert tuple(words[: len(path)]) == path
    ctx = COMMANDS[path]
    ctx.command.make_context(path[-1], words[len(path) :], parent=ctx.parent)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_options_come_in_groups_that_fit_a_screen(path: tuple[str, ...]) -> None:
    text = COMMANDS[path].get_help()
    sections = text.split("\n\n")
    assert max(section.count("\n  --") for section in sections) <= MAX_OPTIONS


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("path", [(), ("bench",), ("bench", "run"), ("train",), ("train", "data", "build"), ("serve",)])
def test_both_help_flags_work_at_every_depth(path: tuple[str, ...], flag: str) -> None:
    shown = run_command(*path, flag)
    assert shown.returncode == 0
    assert shown.stdout.startswith(" ".join(("Usage: tirjudge", *path)))


@pytest.mark.parametrize("columns", [80, 100])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    prose = run_command("serve", "--help").stdout.partition("\nExamples:\n")[0]
    assert max(map(len, prose.splitlines())) <= columns


def test_variables_of_options_are_named_once() -> None:
    shown = run_command("judge", "--help").stdout
    assert shown.count("TIRJUDGE_MODEL") == 1
    assert "[env var: VLLM_API_KEY]" in " ".join(run_command("worker", "--help").stdout.split())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["serv"], "No such command: serv. Did you mean serve?"),
        (["bench", "reprot"], "No such command: reprot. Did you mean report or export"),
        (["train", "wacth"], "No such command: wacth. Did you mean watch?"),
        (["zzz"], "No such command: zzz. See tirjudge --help."),
        (["serve", "--prot", "1"], "No such option: --prot (Possible options: --otlp, --port, --profile)"),
    ],
)
def test_a_misspelt_name_gets_a_hint(arguments: list[str], hint: str) -> None:
    shown = run_command(*arguments)
    assert shown.returncode == 2
    assert hint in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--port", "abc"], "'abc' given; expected: a valid integer\n"),
        (["serve", "--port", "70000"], "'70000' given; expected: less than or equal to 65535\n"),
        (["serve", "--port", "\x1b[1m"], "'\\x1b[1m' given; expected: a valid integer\n"),
        (["serve", "--log-level", "inf"], ": 'inf' is not one of 'debug', 'info', 'warning', 'error'.\n"),
    ],
)
def test_an_invalid_value_is_named_with_what_is_expected(arguments: list[str], says: str) -> None:
    done = run_command(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Value error" not in done.stderr
