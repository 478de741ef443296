"""The Dockerfile: what a linter says, what goes in, how the health check answers. deploy/check-image.sh builds it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
HEALTH_CHECKS = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)


def test_a_linter_of_dockerfiles_is_content(tool) -> None:
    for file in ("Dockerfile", "sandbox/image/Dockerfile"):
        done = subprocess.run([tool("hadolint"), file], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("", 0)


def test_yaml_of_deployments_is_well_formed(tool) -> None:
    rules = (
        "{extends: default, rules: {document-start: disable, line-length: {max: 130}, braces: {max-spaces-inside: 1}, "
        "comments: {min-spaces-from-content: 1}, truthy: {check-keys: false}}}"
    )
    files = [
        file
        for file in (ROOT / "deploy").rglob("*.y*ml")
        if "templates" not in file.parts  # those are templates of YAML
    ]
    assert len(files) == 6
    done = subprocess.run(
        [tool("yamllint"), "--strict", "--config-data", rules, *files], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("target", ["server", "vllm"])
def test_images_run_as_somebody_else_than_root(target: str) -> None:
    [stage] = re.findall(rf"^FROM \S+ AS {target}$(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    [user] = re.findall(r"^USER (\d+):\d+$", stage, re.MULTILINE)
    assert int(user) > 0
    assert "HEALTHCHECK" in stage


def test_pip_leaves_no_cache_and_builds_nothing_of_strangers() -> None:
    commands = re.findall(r"-m pip (?:\\\n|.)*?(?=$)", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert "--no-cache-dir" in command
        assert "--only-binary :all:" in command or "wheel --no-cache-dir --no-deps" in command


def test_all_that_a_wheel_is_built_from_goes_in() -> None:
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    packages = re.findall(
        r'^    "(\w+)/tirjudge\w*",$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(packages) == 5
    assert {*packages, "pyproject.toml", "README.md"} == set(allowed)


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers /ready like this; gives its port."""

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
    program, *arguments = json.loads(check)
    assert program == "python3"
    # A proxy is for the world outside; a health check that went through one would ask somebody else.
    environment = {"TIRJUDGE_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)
    return done.returncode


def test_the_health_check_tells_a_server_that_is_ready_from_all_others() -> None:
    assert len(HEALTH_CHECKS) == 2
    assert len(set(HEALTH_CHECKS)) == 1
    with answering(200) as port:
        assert health(port, check=HEALTH_CHECKS[0]) == 0
    with answering(503) as port:
        assert health(port, check=HEALTH_CHECKS[0]) == 1
    assert health(port, check=HEALTH_CHECKS[0]) == 1


def test_one_release_of_vllm_is_meant_everywhere() -> None:
    [image] = re.findall(r"^ARG VLLM_IMAGE=vllm/vllm-openai:(\S+)$", DOCKERFILE, re.MULTILINE)
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "tirjudge" / "values.yaml").read_text(encoding="utf-8"))
    compose = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    assert values["vllm"]["image"]["tag"] == image
    assert f"vllm/vllm-openai:${{VLLM_TAG:-{image}}}" in compose
