"""`tirjudge sandbox run` and `doctor`."""

import json
import os

import pytest
from typer.testing import CliRunner

from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.attacks import ATTACKS, problem_with
from tirjudge_sandbox.cli import app


@pytest.fixture
def sandbox(level, tmp_path):
    """Function that runs a program with `tirjudge sandbox run`."""

    def run(code: str, *options: str):
        file = tmp_path / "program.py"
        file.write_text(code)
        image = ["--image", os.environ["TIRJUDGE_TEST_IMAGE"]] if level.needs_image else []
        return CliRunner().invoke(app, ["run", str(file), "--level", level, *image, *options])

    return run


def test_run_prints_the_output_of_the_program(sandbox):
    result = sandbox("print(name, other)", "--bind", "name=a=b", "--bind", "other=")
    assert (result.exit_code, result.stdout) == (0, "a=b \n")


@pytest.mark.slow
def test_run_exits_with_the_exit_code_of_the_program(sandbox):
    assert sandbox("raise SystemExit(5)").exit_code == 5
    failed = sandbox("print('before')\n1 / 0")
    assert (failed.exit_code, failed.stdout) == (1, "before\n")
    assert failed.stderr == "error: ZeroDivisionError: division by zero\n"
    assert sandbox("while True: pass", "--cpu-s", "0.2").exit_code == 1


def test_run_prints_json(sandbox, level):
    fields = json.loads(sandbox("print(1)", "--json").stdout)
    assert (fields["outcome"], fields["stdout"], fields["level"]) == ("ok", "1\n", level)


def test_stdin_is_read_from_the_named_file(sandbox, tmp_path):
    (tmp_path / "input.txt").write_text("a line\nanother\n")
    assert sandbox("print(input())", "--stdin", str(tmp_path / "input.txt")).stdout == "a line\n"


def test_files_are_copied_in_and_out(sandbox, level, tmp_path):
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
def test_attached_files_can_be_read(sandbox, tmp_path):
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
def test_an_invalid_option_is_a_usage_error(sandbox, options):
    result = sandbox("print(1)", *options)
    assert result.exit_code == 2
    assert "expected" in result.stderr


def test_level_unsafe_needs_allow_unsafe(sandbox):
    result = sandbox("print(1)", "--level", "unsafe")
    assert result.exit_code == 2
    assert "allow_unsafe" in result.stderr


@pytest.mark.slow
@pytest.mark.on_host
def test_doctor_prints_kernel_features_and_levels(level):
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "user namespace" in result.stdout
    assert f"works  {level}" in result.stdout


@pytest.mark.slow
@pytest.mark.on_host
def test_the_json_of_doctor_has_working_levels_and_remedies_of_the_others(level, monkeypatch):
    monkeypatch.setattr("tirjudge_sandbox.doctor.ATTACKS", ATTACKS[:3])
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert all(finding["problem"] == "" for finding in report["attacks"])
    levels = {finding["name"]: finding for finding in report["levels"]}
    assert levels[level]["problem"] == ""
    assert report["print_ms"] > 0
    assert levels["docker"]["problem"] == "no image was given"
    assert "docker build" in levels["docker"]["remedy"]


async def test_an_attack_that_times_out_on_a_slow_machine_counts_as_blocked(level):
    attack = next(attack for attack in ATTACKS if attack.name == "start a hundred processes")
    async with SandboxPool(slots=1, limits=Limits(cpu_s=0.01), level=level) as pool:
        assert await problem_with(attack, pool=pool) == ""
