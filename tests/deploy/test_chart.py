"""The Helm chart, rendered by Helm: valid for Kubernetes, secure, and consistent with the project's commands and settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge_sandbox.cli import app as sandbox_commands
from tirjudge_sandbox.jail import capabilities_for_gvisor
from tirjudge_server.access.cli import app as key_commands
from tirjudge_server.service import JudgeService
from tirjudge_server.serving import checked_public_url
from tirjudge_server.settings import OptionsClash
from tirjudge_server.telemetry.metrics import ServerMetrics

helm = pytest.importorskip("helm_python", reason="Helm is not installed: pip install --group deploy")

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "tirjudge"
DOCS = Path(__file__).parents[2] / "docs" / "deploy.md"

Manifest = dict[str, Any]

ROOT_IN_GVISOR = ["SYS_ADMIN", "SYS_CHROOT", "SETUID", "SETGID", "KILL"]

SECRETS: dict[str, Any] = {
    "records": {"existingSecret": "judge-records"},
    "firstKey": {"existingSecret": "judge-first-key"},
    "sandbox": {"existingSecret": "judge-sandbox"},
}
WITH_VLLM = {
    **SECRETS,
    "engines": {"existingSecret": "judge-engines"},
    "vllm": {"enabled": True, "replicas": 3, "gpus": 2, "huggingFaceSecret": "hub"},
}
EVERYTHING = {
    **WITH_VLLM,
    "engines": {"existingSecret": "judge-engines", "urls": ["http://10.0.0.7:8000", "https://elsewhere.example"]},
    "sandbox": {
        "existingSecret": "judge-sandbox",
        "runtimeClassName": "",
        "allowUnsafe": False,
        "seccompProfile": "tirjudge/sandbox.json",
    },
    "server": {
        "autoscaling": {"enabled": False},
        "filesClaim": "judge-files",
        "publicUrl": "https://judge.example.com",
        "env": [{"name": "TIRJUDGE_WITHHOLD", "value": "request.prompt"}],
        "networkPolicy": {"egress": [{"ports": [{"port": 4318}]}]},
        "tolerations": [{"operator": "Exists"}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "imagePullSecrets": [{"name": "registry"}],
}
VALUES = {"secrets": SECRETS, "vllm": WITH_VLLM, "everything": EVERYTHING}


def rendered(values: dict[str, Any]) -> list[Manifest]:
    """Render the chart, and return its manifests."""
    with helm.Chart.load(CHART) as chart:
        texts = chart.render(values, name="demo", namespace="judging")
    documents = chain.from_iterable(
        yaml.safe_load_all(text) for name, text in texts.items() if not name.endswith("NOTES.txt")
    )
    return [document for document in documents if document]


@pytest.fixture(params=VALUES, scope="module")
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return rendered(VALUES[request.param])


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Return component, such as `server` -> manifest."""
    return {
        found["metadata"]["labels"]["app.kubernetes.io/component"]: found
        for found in manifests
        if found["kind"] == kind
    }


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    return {
        part: found["spec"]["template"]
        for kind in ("Deployment", "StatefulSet")
        for part, found in of_kind(manifests, kind).items()
    }


def containers(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for part, pod in pods(manifests).items():
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            yield part, container


def environment(container: Manifest) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_lint_finds_no_problem(values: dict[str, Any]) -> None:
    report = helm.lint(CHART, values, strict=True)
    severe = [message for message in report["messages"] if message["severity"] > 1]
    assert (report["total_charts_linted"], report["errors"], severe) == (1, [], [])


@pytest.mark.parametrize("version", [pytest.param("1.30", marks=pytest.mark.slow), "1.37"])
def test_every_manifest_matches_the_schema_of_kubernetes(manifests: list[Manifest], version: str) -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install --group deploy"
    )
    checked = [manifest for manifest in manifests if manifest["kind"] != "ServiceMonitor"]
    assert len(checked) > 8
    for manifest in checked:
        schemas.validate(manifest, version, strict=True)


def is_root_in_gvisor(pod: Manifest) -> bool:
    """Whether the pod runs as root and starts only inside gVisor."""
    return "--level=gvisor" in pod["spec"]["containers"][0]["args"]


def test_pods_meet_the_restricted_pod_security_standard(manifests: list[Manifest]) -> None:
    for part, pod in pods(manifests).items():
        spec = pod["spec"]
        assert spec["securityContext"].get("runAsNonRoot", False) is not is_root_in_gvisor(pod), part
        assert (spec["securityContext"]["runAsUser"] == 0) is is_root_in_gvisor(pod), part
        assert spec["securityContext"]["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"), part
        assert spec["automountServiceAccountToken"] is False, part
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), part
        kinds = {kind for volume in spec["volumes"] for kind in set(volume) - {"name"}}
        assert kinds <= {"emptyDir", "configMap", "persistentVolumeClaim"}, part
    for part, container in containers(manifests):
        security = container["securityContext"]
        is_root = is_root_in_gvisor(pods(manifests)[part])
        assert security.get("allowPrivilegeEscalation") is (None if is_root else False), part
        assert security["capabilities"] == {"drop": ["ALL"], **({"add": ROOT_IN_GVISOR} if is_root else {})}, part
        assert security.get("readOnlyRootFilesystem") is (None if part == "vllm" else True), part
        assert "memory" in container["resources"]["limits"], part


def test_selectors_match_the_pods_of_their_component(manifests: list[Manifest]) -> None:
    labels = {part: pod["metadata"]["labels"] for part, pod in pods(manifests).items()}

    def found(selector: dict[str, str]) -> list[str]:
        return [part for part in labels if selector.items() <= labels[part].items()]

    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        for part, manifest in of_kind(manifests, kind).items():
            assert found(manifest["spec"]["selector"]["matchLabels"]) == [part], kind
    for part, service in of_kind(manifests, "Service").items():
        assert found(service["spec"]["selector"]) == [part]
        ports = {
            port["name"] for container in pods(manifests)[part]["spec"]["containers"] for port in container["ports"]
        }
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for part, policy in of_kind(manifests, "NetworkPolicy").items():
        assert found(policy["spec"]["podSelector"]["matchLabels"]) == [part]
    assert set(of_kind(manifests, "NetworkPolicy")) == set(labels) == set(of_kind(manifests, "PodDisruptionBudget"))


def test_sandbox_workers_have_no_egress_and_accept_only_servers_and_monitoring(manifests: list[Manifest]) -> None:
    policy = of_kind(manifests, "NetworkPolicy")["sandbox"]["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [])
    [rule] = policy["ingress"]
    clients = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for peer in rule["from"]
        if "podSelector" in peer
    ]
    monitors = [peer["namespaceSelector"] for peer in rule["from"] if "namespaceSelector" in peer]
    assert (clients, len(monitors), rule["ports"]) == (["server"], 1, [{"port": 8090, "protocol": "TCP"}])


def test_sandbox_workers_run_in_gvisor_by_default() -> None:
    spec = pods(rendered(SECRETS))["sandbox"]["spec"]
    assert spec["runtimeClassName"] == "gvisor"
    assert "--level=gvisor" in spec["containers"][0]["args"]
    assert "--allow-unsafe" not in spec["containers"][0]["args"]
    bare = pods(rendered(EVERYTHING))["sandbox"]["spec"]
    assert "runtimeClassName" not in bare
    assert not {"--allow-unsafe", "--level=gvisor"} & set(bare["containers"][0]["args"])
    assert bare["securityContext"]["seccompProfile"] == {
        "type": "Localhost",
        "localhostProfile": "tirjudge/sandbox.json",
    }


@pytest.mark.parametrize(
    ("sandbox", "is_root"),
    [
        ({}, True),
        ({"rootInGvisor": False}, False),
        ({"allowUnsafe": True}, False),
        ({"runtimeClassName": "", "allowUnsafe": False}, False),
    ],
    ids=["defaults", "not as root", "unsafe allowed", "no runtime class"],
)
def test_workers_are_root_only_inside_gvisor(sandbox: dict[str, Any], is_root: bool) -> None:
    values = {**SECRETS, "sandbox": {**SECRETS["sandbox"], **sandbox}}
    pod = pods(rendered(values))["sandbox"]
    container = pod["spec"]["containers"][0]
    assert is_root_in_gvisor(pod) is is_root
    assert pod["spec"]["securityContext"]["runAsUser"] == (0 if is_root else 10001)
    assert set(container["securityContext"]["capabilities"].get("add", [])) == (
        set(ROOT_IN_GVISOR) if is_root else set()
    )
    assert ("--allow-unsafe" in container["args"]) is bool(sandbox.get("allowUnsafe"))


def test_workers_have_the_capabilities_that_level_gvisor_needs() -> None:
    assert sorted(ROOT_IN_GVISOR) == sorted(capabilities_for_gvisor())


def test_environment_of_servers_has_only_known_settings(manifests: list[Manifest], settings_of_serve: set[str]) -> None:
    [server] = [container for _, container in containers(manifests) if container["name"] == "server"]
    given = {name for name in environment(server) if name.startswith("TIRJUDGE_")}
    assert len(given) >= 10
    assert given <= settings_of_serve
    assert server["args"] == ["serve"]


def test_commands_of_pods_are_valid(manifests: list[Manifest]) -> None:
    commands = {"sandbox": sandbox_commands, "keys": key_commands}
    num_valid = 0
    for _, container in containers(manifests):
        program, *arguments = [str(argument) for argument in container["args"]]
        if program in commands:
            group = typer.main.get_group(commands[program])
            name, command, rest = group.resolve_command(typer.Context(group), arguments)
            assert command is not None
            command.make_context(name, rest)
            num_valid += 1
    assert num_valid == 2


@pytest.mark.parametrize("values", [WITH_VLLM, EVERYTHING], ids=["vllm", "everything"])
def test_servers_get_the_url_of_every_worker(values: dict[str, Any]) -> None:
    manifests = rendered(values)
    [server] = [container for _, container in containers(manifests) if container["name"] == "server"]
    [config] = [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]
    [mount] = [mount for mount in server["volumeMounts"] if mount["name"] == "engines"]
    assert environment(server)["TIRJUDGE_ENGINES_FILE"] == f"{mount['mountPath']}/{next(iter(config['data']))}"
    waited_s = int(environment(server)["TIRJUDGE_ENGINE_WAIT_S"])
    probe = server["startupProbe"]
    deadline_s = of_kind(manifests, "Deployment")["server"]["spec"]["progressDeadlineSeconds"]
    assert deadline_s > probe["periodSeconds"] * probe["failureThreshold"] > waited_s > 60
    urls_by_part = {
        "vllm": [url for url in config["data"]["urls"].split() if url not in values["engines"].get("urls", ())],
        "sandbox": environment(server)["TIRJUDGE_SANDBOX"].split(),
    }
    assert set(values["engines"].get("urls", ())) <= set(config["data"]["urls"].split())
    for part, urls in urls_by_part.items():
        workers, service = of_kind(manifests, "StatefulSet")[part], of_kind(manifests, "Service")[part]
        name, behind = workers["metadata"]["name"], service["metadata"]["name"]
        port = workers["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
        assert (workers["spec"]["serviceName"], service["spec"]["clusterIP"]) == (behind, "None")
        expected = [f"http://{name}-{i}.{behind}.judging.svc:{port}" for i in range(workers["spec"]["replicas"])]
        assert urls == expected, part


def test_allowed_hosts_are_the_names_that_clients_use() -> None:
    values = {**SECRETS, "server": {"allowedHosts": ["judge.example.com"]}}
    manifests = rendered(values)
    by_name = {container["name"]: environment(container) for _, container in containers(manifests)}
    allowed = by_name["server"]["TIRJUDGE_ALLOWED_HOST"].split()
    assert allowed[0] == of_kind(manifests, "Service")["server"]["metadata"]["name"]
    assert allowed[1:] == [
        *(f"{allowed[0]}.judging{end}" for end in ("", ".svc", ".svc.cluster.local")),
        "judge.example.com",
    ]
    asked = by_name["server"]["TIRJUDGE_SANDBOX"].split()
    workers = [f"{of_kind(manifests, 'StatefulSet')['sandbox']['metadata']['name']}-{i}" for i in range(len(asked))]
    pattern = by_name["sandbox"]["TIRJUDGE_ALLOWED_HOST"]
    assert [f"http://{pattern.replace('$(POD_NAME)', worker)}:8090" for worker in workers] == asked


@pytest.mark.parametrize("url", ["https://judge.example.com", "http://10.0.0.7:8400/", "https://[::1]:8443"])
def test_servers_get_the_public_url(url: str) -> None:
    manifests = rendered({**SECRETS, "server": {"publicUrl": url}})
    [server] = [container for _, container in containers(manifests) if container["name"] == "server"]
    assert environment(server)["TIRJUDGE_PUBLIC_URL"] == url
    assert checked_public_url(url) == url.removesuffix("/")


@pytest.mark.parametrize("url", ["judge.example.com", "https://judge.example.com/judge", "ftp://judge.example.com"])
def test_the_chart_refuses_public_urls_that_servers_refuse(url: str) -> None:
    with pytest.raises(OptionsClash):
        checked_public_url(url)
    with pytest.raises(helm.HelmError, match="publicUrl"):
        rendered({**SECRETS, "server": {"publicUrl": url}})


def test_servers_have_no_public_url_by_default() -> None:
    [server] = [container for _, container in containers(rendered(SECRETS)) if container["name"] == "server"]
    assert "TIRJUDGE_PUBLIC_URL" not in environment(server)


def test_the_metric_of_the_autoscaler_exists_and_is_documented() -> None:
    scaler = of_kind(rendered(SECRETS), "HorizontalPodAutoscaler")["server"]["spec"]
    [metric] = scaler["metrics"]
    name = metric["pods"]["metric"]["name"]
    metrics = ServerMetrics(JudgeService(Judge(engine=ScriptedEngine(()), tools=()))).text().decode()
    assert f"\n{name} " in metrics
    deployment = of_kind(rendered(SECRETS), "Deployment")["server"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    [rule] = [
        rule
        for block in re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
        if "seriesQuery" in block
        for rule in yaml.safe_load(block)["rules"]["custom"]
    ]
    assert rule["seriesQuery"].startswith(f"{name}{{")
    assert {value["resource"] for value in rule["resources"]["overrides"].values()} == {"namespace", "pod"}


def test_manifests_contain_no_secret(manifests: list[Manifest]) -> None:
    for part, container in containers(manifests):
        for variable in container.get("env", ()):
            if re.search("KEY|TOKEN|RECORDS|PASSWORD", variable["name"]):
                assert set(variable["valueFrom"]["secretKeyRef"]) == {"name", "key"}, (part, variable["name"])
    assert not [manifest for manifest in manifests if manifest["kind"] == "Secret"]


@pytest.mark.parametrize("missing", SECRETS)
def test_a_missing_secret_is_an_error(missing: str) -> None:
    values = {name: value for name, value in SECRETS.items() if name != missing}
    with pytest.raises(helm.HelmError, match=f"{missing}.existingSecret is not set"):
        rendered(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"sandbox": {"existingSecret": "s", "runtimeClassName": "", "allowUnsafe": True}},
            "programs are not isolated",
        ),
        ({"vllm": {"enabled": True}}, "engines.existingSecret is not set"),
        ({"server": {"replicsa": 3}}, "replicsa"),
        ({"sandbox": {"existingSecret": "s", "slots": 0}}, "slots"),
        ({"engines": {"urls": ["vllm:8000"]}}, "urls"),
    ],
)
def test_invalid_values_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm.HelmError, match=message):
        rendered({**SECRETS, **values})


def test_the_schema_has_exactly_the_values_of_the_chart() -> None:
    def paths(values: dict[str, Any], schema: dict[str, Any], at: str = "") -> Iterator[tuple[str, bool, bool]]:
        known = schema.get("properties", {})
        for name in {*values, *known} - {"global"}:
            yield f"{at}{name}", name in values, name in known
            if isinstance(values.get(name), dict) and "properties" in known.get(name, {}):
                yield from paths(values[name], known[name], f"{at}{name}.")

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    found = list(paths(values, schema))
    assert len(found) > 80
    assert [path for path, given, known in found if not (given and known)] == []
