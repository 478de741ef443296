"""The Dockerfile: lint, contents, health check and lock files. deploy/check-image.sh builds the image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tirjudge.engines.vllm_version import is_tested

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
HEALTH_CHECKS = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)


def test_hadolint_finds_no_problem(tool) -> None:
    for file in ("Dockerfile", "sandbox/image/Dockerfile"):
        done = subprocess.run([tool("hadolint"), file], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("", 0)


def test_yamllint_finds_no_problem(tool) -> None:
    rules = (
        "{extends: default, rules: {document-start: disable, line-length: {max: 130}, braces: {max-spaces-inside: 1}, "
        "comments: {min-spaces-from-content: 1}, truthy: {check-keys: false}}}"
    )
    files = [
        file
        for file in (ROOT / "deploy").rglob("*.y*ml")
        if "templates" not in file.parts  # templates are not YAML
    ]
    assert len(files) == 6
    done = subprocess.run(
        [tool("yamllint"), "--strict", "--config-data", rules, *files], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("target", ["server", "vllm"])
def test_images_do_not_run_as_root(target: str) -> None:
    [stage] = re.findall(rf"^FROM \S+ AS {target}$(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    [user] = re.findall(r"^USER (\d+):\d+$", stage, re.MULTILINE)
    assert int(user) > 0
    assert "HEALTHCHECK" in stage


def test_pip_keeps_no_cache_and_installs_only_wheels() -> None:
    commands = re.findall(r"-m pip (?:\\\n|.)*?(?=$)", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        assert "--no-cache-dir" in command
        assert "--only-binary :all:" in command or "wheel --no-cache-dir --no-deps" in command


def test_the_build_context_has_everything_that_the_wheel_needs() -> None:
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    packages = re.findall(
        r'^    "(\w+)/tirjudge\w*",$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(packages) == 8
    assert {*packages, "pyproject.toml", "README.md"} == set(allowed)


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Serve /ready with this status, and yield the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/ready" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def health(port: int, *, check: str) -> int:
    """Run the health check of the image, and return its exit status."""
    program, *arguments = json.loads(check)
    assert program == "python3"
    # The health check must ignore proxy settings.
    environment = {"TIRJUDGE_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)
    return done.returncode


@pytest.mark.slow
def test_the_health_check_succeeds_only_if_the_server_is_ready() -> None:
    assert len(HEALTH_CHECKS) == 2
    assert len(set(HEALTH_CHECKS)) == 1
    with answering(200) as port:
        assert health(port, check=HEALTH_CHECKS[0]) == 0
    with answering(503) as port:
        assert health(port, check=HEALTH_CHECKS[0]) == 1
    assert health(port, check=HEALTH_CHECKS[0]) == 1


def test_all_files_name_the_same_release_of_vllm_and_it_was_tested() -> None:
    [image] = re.findall(r"^ARG VLLM_IMAGE=vllm/vllm-openai:(\S+)$", DOCKERFILE, re.MULTILINE)
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "tirjudge" / "values.yaml").read_text(encoding="utf-8"))
    compose = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    assert values["vllm"]["image"]["tag"] == image
    assert f"vllm/vllm-openai:${{VLLM_TAG:-{image}}}" in compose
    assert is_tested(image.removeprefix("v"))


LOCKS = {
    "server/image/requirements.lock": ("pyproject.toml", "server/image/programs.in"),
    "server/image/build.lock": ("server/image/build.in",),
    "sandbox/image/requirements.lock": ("sandbox/image/programs.in",),
}
"""Lock file -> the files from which it is generated."""


def requirements_in(file: str) -> list[Requirement]:
    """Return the requirements in a file; for pyproject.toml, those of the package with the extras of the image."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".toml"):
        project = tomllib.loads(text)["project"]
        extras = project["optional-dependencies"]
        return [Requirement(line) for line in (*project["dependencies"], *extras["server"], *extras["otel"])]
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def locked(file: str) -> dict[str, list[Requirement]]:
    """Return package name -> entries. A package with environment markers may have several entries."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
    entries: dict[str, list[Requirement]] = {}
    for line in text.splitlines():
        requirement, *hashes = re.split(r"\s+--hash=", line.strip())
        assert hashes, line
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), line
        entry = Requirement(requirement)
        entries.setdefault(canonicalize_name(entry.name), []).append(entry)
    return entries


@pytest.mark.parametrize("file", LOCKS)
def test_a_lock_file_satisfies_its_requirements(file: str) -> None:
    entries = locked(file)
    for wanted in [requirement for source in LOCKS[file] for requirement in requirements_in(source)]:
        for entry in entries[canonicalize_name(wanted.name)]:
            [specifier] = entry.specifier
            assert specifier.operator == "=="
            assert specifier.version in wanted.specifier, (str(wanted), str(entry))
            for extra in wanted.extras:
                assert any(name.startswith(f"{canonicalize_name(wanted.name)}-{extra}") for name in entries), str(
                    wanted
                )


@pytest.mark.parametrize("file", LOCKS)
def test_a_lock_file_names_no_index_and_is_small(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert "://" not in text
    assert "index" not in text
    assert len(text) < 1_000_000


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("file", LOCKS)
def test_each_package_has_one_locked_version_per_platform(file: str, machine: str, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.9", "platform_machine": machine}
    environment |= {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    environment |= {"platform_python_implementation": "CPython", "implementation_name": "cpython"}
    for name, entries in locked(file).items():
        selected = [entry for entry in entries if entry.marker is None or entry.marker.evaluate(environment)]
        assert len(selected) <= 1, name


def test_the_lock_of_the_build_has_the_build_requirements() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert wanted == [str(requirement) for requirement in requirements_in("server/image/build.in")]


@pytest.mark.parametrize("file", ["Dockerfile", "sandbox/image/Dockerfile"])
def test_base_images_are_exact_and_packages_are_installed_with_hashes(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    bases = re.findall(r"^ARG \w+_IMAGE=(\S+)$", text, re.MULTILINE)
    assert bases
    assert all(re.search(r":v?\d+\.\d+\.\d+", base) for base in bases)
    for base in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert base.startswith("${")
    commands = re.findall(r"\bpip\b[^&;\n]*\binstall\b[^&;\n]*", text.replace("\\\n", " "))
    assert commands
    for command in commands:
        assert "--require-hashes" in command or "--no-deps /wheels/" in command or "${PROGRAM_PACKAGES}" in command, (
            command
        )


def test_the_documented_build_with_evidence_has_the_packages_of_the_extra() -> None:
    [line] = re.findall(
        r'--build-arg PROGRAM_PACKAGES="(.*?)"', (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    )
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [str(Requirement(one)) for one in line.split()] == [str(Requirement(one)) for one in extras["evidence"]]


def test_third_party_images_are_exact_releases() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    images = [service["image"] for service in compose["services"].values() if service["image"] != "tirjudge"]
    assert len(images) == 4
    assert all(re.search(r"\d+\.\d+", image) for image in images)
