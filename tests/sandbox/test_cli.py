import json
import os

import pytest
from typer.testing import CliRunner

from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.attacks import ATTACKS, problem_with
from tirjudge_sandbox.cli import app


@pytest.fixture
def sandbox(level, tmp_path):
    """Runs a program's text by `tirjudge sandbox run`."""

    def run(code: str, *options: str):
        file = tmp_path / "program.py"
        file.write_text(code)
        image = ["--image", os.environ["TIRJUDGE_TEST_IMAGE"]] if level.needs_image else []
        return CliRunner().invoke(app, ["run", str(file), "--level", level, *image, *options])

    return run


def test_run_prints_what_the_program_printed(sandbox):
    result = sandbox("print(name, other)", "--bind", "name=a=b", "--bind", "other=")
    assert (result.exit_code, result.stdout) == (0, "a=b \n")


def test_run_exits_as_the_program_did(sandbox):
    assert sandbox("raise SystemExit(5)").exit_code == 5
    failed = sandbox("print('before')\n1 / 0")
    assert (failed.exit_code, failed.stdout) == (1, "before\n")
    assert failed.stderr == "error: ZeroDivisionError: division by zero\n"
    assert sandbox("while True: pass", "--cpu-s", "0.2").exit_code == 1


def test_run_prints_json(sandbox, level):
    fields = json.loads(sandbox("print(1)", "--json").stdout)
    assert (fields["outcome"], fields["stdout"], fields["level"]) == ("ok", "1\n", level)


def test_the_program_reads_what_stdin_names(sandbox, tmp_path):
    (tmp_path / "input.txt").write_text("a line\nanother\n")
    assert sandbox("print(input())", "--stdin", str(tmp_path / "input.txt")).stdout == "a line\n"


def test_files_go_in_and_come_out(sandbox, level, tmp_path):
    (tmp_path / "data.csv").write_bytes(b"1,2\n")
    code = "open('sum.txt', 'w').write(str(sum(map(int, open('data.csv').read().split(',')))))"
    options = ["--file", str(tmp_path / "data.csv"), "--fetch", "sum.txt", "--out", str(tmp_path)]
    result = sandbox(code, *options)
    if level.startswith("namespaces"):
        assert result.exit_code == 0
        assert (tmp_path / "sum.txt").read_text() == "3"
    else:
        assert result.exit_code == 2
        assert "files: " in result.stderr


@pytest.mark.on_host
def test_what_is_attached_can_be_read(sandbox, tmp_path):
    tmp_path.chmod(0o755)
    evidence = tmp_path / "evidence.txt"
    evidence.write_text("seen")
    evidence.chmod(0o644)
    result = sandbox("print(open(attachments['e']).read())", "--attach", f"e={evidence}")
    assert result.stdout == "seen\n"


@pytest.mark.parametrize(
    "options",
    [["--bind", "novalue"], ["--bind", "two words=x"], ["--attach", "novalue"], ["--cpu-s", "0"]],
)
def test_a_mistake_in_the_options_is_explained(sandbox, options):
    result = sandbox("print(1)", *options)
    assert result.exit_code == 2
    assert "given" in result.stderr


def test_unsafe_needs_its_own_flag(sandbox):
    result = sandbox("print(1)", "--level", "unsafe")
    assert result.exit_code == 2
    assert "allow_unsafe" in result.stderr


@pytest.mark.on_host
def test_the_doctor_names_building_blocks_and_level(level):
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "user namespace" in result.stdout
    assert f"works  {level}" in result.stdout


@pytest.mark.on_host
def test_the_doctors_json_holds_the_same(level):
    report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert {finding["name"]: finding["problem"] for finding in report["levels"]}[level] == ""
    assert report["print_ms"] > 0


@pytest.mark.on_host
def test_the_doctor_tells_what_is_wrong_with_a_level_apart_from_what_would_help(level):
    report = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    container = next(finding for finding in report["levels"] if finding["name"] == "docker")
    assert container["problem"] == "no image was given"
    assert "docker build" in container["remedy"]


async def test_to_the_doctor_an_attack_that_a_slow_machine_ran_out_of_time_for_was_held_off(level):
    attack = next(attack for attack in ATTACKS if attack.name == "start a hundred processes")
    async with SandboxPool(slots=1, limits=Limits(cpu_s=0.01), level=level) as pool:
        assert await problem_with(attack, pool=pool) == ""
