"""The compose file, as read by Docker Compose, and the files that it mounts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

SECRETS = ("POSTGRES_PASSWORD", "SANDBOX_KEY", "VLLM_KEY", "GRAFANA_PASSWORD")

OURS = ("server", "sandbox")
"""Services that run this project's image."""


@pytest.fixture(scope="module")
def read(root: Path, tool):
    """Return a function that runs `docker-compose config` with the given secrets set."""

    def run(*secrets: str) -> subprocess.CompletedProcess[str]:
        around = {name: value for name, value in os.environ.items() if name not in SECRETS}
        command = [tool("docker-compose"), "--file", "compose.yaml", "--profile", "gpu", "config", "--format", "json"]
        environment = around | {name: f"secret of {name}" for name in secrets}
        return subprocess.run(
            command, cwd=root / "deploy", env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture(scope="module")
def project(read) -> dict[str, Any]:
    done = read(*SECRETS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("missing", SECRETS)
def test_a_missing_secret_is_an_error(read, missing: str) -> None:
    done = read(*(name for name in SECRETS if name != missing))
    assert done.returncode != 0
    assert f"set {missing} in deploy/.env" in done.stderr


def test_the_example_lists_every_secret_without_a_value(root: Path) -> None:
    lines = (root / "deploy" / "env.example").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert given == dict.fromkeys(SECRETS, "")


def test_ports_are_bound_to_the_loopback_interface(project: dict[str, Any]) -> None:
    ports = [port for service in project["services"].values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_services_have_no_unneeded_privileges(project: dict[str, Any]) -> None:
    for name, service in project["services"].items():
        assert not service.get("privileged"), name
        if name != "grafana":
            assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert "cap_add" not in service, name
    for name in OURS:
        assert project["services"][name]["read_only"], name


def test_sandbox_and_database_are_in_internal_networks(project: dict[str, Any]) -> None:
    for service, network in (("sandbox", "programs"), ("postgres", "data")):
        assert list(project["services"][service]["networks"]) == [network]
        assert project["networks"][network]["internal"] is True
    assert {"programs", "data"} < set(project["services"]["server"]["networks"])


def test_environment_of_the_server_has_only_known_settings(
    project: dict[str, Any], settings_of_serve: set[str]
) -> None:
    given = {name for name in project["services"]["server"]["environment"] if name.startswith("TIRJUDGE_")}
    assert len(given) >= 5
    assert given <= settings_of_serve


def test_server_and_workers_have_the_same_keys(project: dict[str, Any]) -> None:
    server, sandbox = (project["services"][name]["environment"] for name in OURS)
    assert server["TIRJUDGE_SANDBOX_KEY"] == sandbox["TIRJUDGE_SANDBOX_KEYS"] == "secret of SANDBOX_KEY"
    assert server["TIRJUDGE_ENGINE_KEY"] == project["services"]["vllm"]["environment"]["VLLM_API_KEY"]


def test_allowed_hosts_are_the_names_that_clients_use(project: dict[str, Any]) -> None:
    server, sandbox = (project["services"][name]["environment"] for name in OURS)
    assert server["TIRJUDGE_ALLOWED_HOST"].split() == ["server"]
    assert server["TIRJUDGE_SANDBOX"] == f"http://{sandbox['TIRJUDGE_ALLOWED_HOST']}:8090"


def test_mounted_files_exist(project: dict[str, Any]) -> None:
    binds = [
        volume["source"]
        for service in project["services"].values()
        for volume in service.get("volumes", ())
        if volume["type"] == "bind"
    ]
    assert len(binds) == 3
    assert [path for path in binds if not Path(path).exists()] == []


def test_prometheus_can_reach_the_services_that_it_scrapes(root: Path, project: dict[str, Any]) -> None:
    config = yaml.safe_load((root / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))
    scraped = {
        target["names"][0]: target["port"] for job in config["scrape_configs"] for target in job["dns_sd_configs"]
    }
    assert scraped == {"server": 8400, "sandbox": 8090, "vllm": 8000}
    ours = set(project["services"]["prometheus"]["networks"])
    for name in scraped:
        assert ours & set(project["services"][name]["networks"]), name


def test_grafana_finds_its_dashboard_and_data_source(root: Path, project: dict[str, Any]) -> None:
    provisioning = root / "deploy" / "grafana" / "provisioning"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "tirjudge.yaml").read_text(encoding="utf-8"))[
        "providers"
    ]
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text(encoding="utf-8"))[
        "datasources"
    ]
    places = {volume["target"]: volume["source"] for volume in project["services"]["grafana"]["volumes"]}
    folder = Path(places[provider["options"]["path"]])
    assert [file.name for file in folder.glob("*.json")] == ["tirjudge.json"]
    home = project["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/tirjudge.json"
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)
