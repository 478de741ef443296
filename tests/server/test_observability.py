"""The documentation and the dashboard agree with the metrics, labels and log fields in the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.judgments import build_judgment, build_request, build_rollout, build_turn, build_verdict
from tests.servers import scripted_service
from tirjudge.errors import EngineUnavailable, SandboxUnavailable
from tirjudge.http.workers import Worker
from tirjudge.types import CallRecord, Completion, ExecResult, Outcome, Sampling, StopReason
from tirjudge_sandbox import SandboxPool
from tirjudge_server.call import Call
from tirjudge_server.failure import FailureStyle, Fallbacks, MissingScore
from tirjudge_server.telemetry.logs import FIELDS
from tirjudge_server.telemetry.metrics import ServerMetrics
from tirjudge_server.telemetry.requests import AnsweredRequest

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "server" / "grafana" / "tirjudge.json").read_text(encoding="utf-8"))
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
OF_PROMETHEUS = {"instance", "le"}
"""Labels that Prometheus adds to all metrics, or to histograms."""


Told = dict[str, tuple[str, set[str], str]]
"""Name of a metric -> its type, its labels and its meaning."""


@pytest.fixture(scope="module")
def told() -> Told:
    """The metrics of a server that has observed an event of each kind."""
    fallbacks = Fallbacks()
    fallbacks.add("openrlhf", MissingScore.DEADLINE, style=FailureStyle.FALLBACK, reason="")
    workers = {part: [Worker(f"http://{part}:1")] for part in ("engine", "sandbox")}
    service = scripted_service([], workers=lambda: workers)
    metrics = ServerMetrics(service, pool=SandboxPool(slots=1).stats, fallbacks=fallbacks)
    observe_everything(metrics)
    families = [
        family
        for family in text_string_to_metric_families(metrics.text().decode())
        if not family.name.startswith("process_") and not family.name.endswith("_created")
    ]
    assert [family.name for family in families if not family.samples] == []
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            set(family.samples[0].labels) - {"le"},
            family.documentation,
        )
        for family in families
    }


def observe_everything(metrics: ServerMetrics) -> None:
    """Report an event for each metric, so that each has a sample, which shows its labels."""
    request, call = build_request(orders="both"), Call()
    called = CallRecord(
        function="run",
        version="1",
        arguments={},
        arguments_sha256="",
        result_sha256=None,
        num_bytes=0,
        error="no",
        ms=1,
    )
    turn = build_turn(Outcome.OK).model_copy(update={"calls": [called]})
    malformed = build_rollout(turns=[turn], stop_reason=StopReason.MALFORMED)
    tie, abstention = build_verdict("tie", reason="equal"), build_verdict("abstained", reason="no_verdict")
    for verdict in (build_verdict(best=0, label="A", basis="checked"), tie, abstention):
        metrics.on_end(request, call, build_judgment(verdict, rollouts=[malformed]))
    metrics.on_end(request, call, EngineUnavailable("the engine is down"))
    request_seen = AnsweredRequest(
        method="POST", route="/v1/judge", status=200, seconds=0.1, caller=None, judgment_id=None
    )
    metrics.on_request(request_seen)
    with metrics.generating([], sampling=Sampling(max_tokens=1), session="") as observed_completion:
        observed_completion(Completion(text="", token_ids=(), logprobs=(), finish_reason="stop", stop=None))
    with metrics.running("") as observed_program:
        observed_program(ExecResult(outcome=Outcome.OK))
    with pytest.raises(EngineUnavailable), metrics.generating([], sampling=Sampling(max_tokens=1), session=""):
        raise EngineUnavailable("the engine is down")
    with pytest.raises(SandboxUnavailable), metrics.running(""):
        raise SandboxUnavailable("the sandbox is down")


def test_every_metric_is_documented(told: Told) -> None:
    rows = re.findall(r"^\| `(tirjudge_\w+)` \| (\w+) \| ([^|]*) ?\| (.+) \|$", DOCS, re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    assert documented == told


def test_every_log_field_is_documented() -> None:
    section = DOCS.partition("## Logs")[2].partition("## Traces")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == FIELDS


def test_the_dashboard_uses_existing_metrics_and_labels(
    told: Told,
) -> None:
    samples = {
        name + suffix: labels
        for name, (kind, labels, _) in told.items()
        for suffix in (SUFFIXES[kind] if kind != "counter" else ("",))
    }
    assert len(EXPRESSIONS) > 30
    for expression in EXPRESSIONS:
        named = re.findall(r"\btirjudge_\w+", expression)
        assert set(named) <= set(samples), expression
        known = OF_PROMETHEUS.union(*(samples[name] for name in named))
        grouped = re.findall(r"\b(?:by|ignoring|on) \(([^)]*)\)", expression)
        used = {label.strip() for labels in grouped for label in labels.split(",")}
        used |= set(re.findall(r"[{,] ?(\w+)(?:=|!)", expression))
        assert used <= known, expression


def test_the_dashboard_shows_every_metric(told: Told) -> None:
    everything = json.dumps(DASHBOARD)
    assert [name for name in told if name not in everything] == []


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
