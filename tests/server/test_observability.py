"""The documentation and the dashboard name the metrics, labels and fields that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.http.workers import Worker
from tirjudge.judge import Judge
from tirjudge.tools.python import PythonTool
from tirjudge_sandbox import SandboxPool
from tirjudge_server.failure import FailureStyle, Fallbacks, MissingScore
from tirjudge_server.service import JudgeService
from tirjudge_server.telemetry.logs import FIELDS
from tirjudge_server.telemetry.metrics import ServerMetrics

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "server" / "grafana" / "tirjudge.json").read_text(encoding="utf-8"))
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
OF_PROMETHEUS = {"instance", "le"}
"""Labels that every server's metrics, or every histogram's, have."""


@pytest.fixture
def told(pool: SandboxPool) -> dict[str, tuple[str, set[str], str]]:
    """Name -> type, labels and meaning, of a server where something has fallen back."""
    fallbacks = Fallbacks()
    fallbacks.add("openrlhf", MissingScore.DEADLINE, style=FailureStyle.FALLBACK, reason="")
    workers = {part: [Worker(f"http://{part}:1")] for part in ("engine", "sandbox")}
    service = JudgeService(Judge(engine=ScriptedEngine(()), tools=[PythonTool(pool)]), workers=lambda: workers)
    metrics = ServerMetrics(service, pool=pool.stats, fallbacks=fallbacks)
    labels = {
        metric._name: set(metric._labelnames)
        for metric in vars(metrics).values()
        if isinstance(metric, MetricWrapperBase)
    }
    families = [
        family
        for family in text_string_to_metric_families(metrics.text().decode())
        if not family.name.startswith("process_") and not family.name.endswith("_created")
    ]
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            labels.get(family.name, set(family.samples[0].labels) if family.samples else set()),
            family.documentation,
        )
        for family in families
    }


def test_every_metric_is_documented_as_it_is(told: dict[str, tuple[str, set[str], str]]) -> None:
    rows = re.findall(r"^\| `(tirjudge_\w+)` \| (\w+) \| ([^|]*) ?\| (.+) \|$", DOCS, re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    assert documented == told


def test_every_field_of_a_log_line_is_documented_as_it_is() -> None:
    section = DOCS.partition("## Logs")[2].partition("## Traces")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)) == FIELDS


def test_the_dashboard_shows_only_metrics_and_labels_that_there_are(
    told: dict[str, tuple[str, set[str], str]],
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


def test_the_dashboard_shows_every_metric(told: dict[str, tuple[str, set[str], str]]) -> None:
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
