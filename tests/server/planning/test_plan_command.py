"""The command `tirjudge plan`."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tirjudge_server.planning.cli import plan
from tirjudge_server.planning.figures import PlanError
from tirjudge_server.planning.inputs import DEFAULTS

app = typer.Typer(add_completion=False)
app.command()(plan)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["--judgments-per-day", "1e6", *arguments], env={"COLUMNS": "200"})
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_plan_prints_summary_and_tables() -> None:
    said = run("--model", "8B", "--gpu", "h100")
    assert "1,000,000 judgments per day, Qwen3-8B on h100: 4 GPUs" in said
    assert "benchmarks/results" not in said


def test_explain_shows_sources_and_formulas() -> None:
    said = run("--explain")
    assert "benchmarks/results/plan_prompts.json" in said
    assert "min(max_sequences, kv_tokens / held_tokens)" in said


def test_json_has_value_origin_and_source_of_each_figure() -> None:
    made = json.loads(run("--json", "--output-tokens", "500", "--gpu", "h200"))
    assert made["inputs"]["output_tokens"] == {
        "value": 500.0,
        "unit": "tokens",
        "origin": "given",
        "source": "--output-tokens",
    }
    assert made["outputs"]["gpus"]["value"] >= 1


def test_unknown_gpu_is_an_error() -> None:
    with pytest.raises(PlanError, match="h100"):
        run("--gpu", "abacus")


def test_every_input_is_an_option() -> None:
    options = {name for option in typer.main.get_command(app).params for name in option.opts}
    assert {f"--{name.replace('_', '-')}" for name in DEFAULTS} <= options


def test_every_option_is_explained() -> None:
    explained = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
    for option in typer.main.get_command(app).params:
        assert f"`{option.opts[0]}`" in explained, option.opts[0]


def test_table_of_plans_in_docs_matches_the_command() -> None:
    explained = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
    for model, gpu, precision in re.findall(r"^\| (\d+B) \| (\w+) \| (bf16|fp8) \|", explained, re.MULTILINE):
        made = json.loads(run("--json", "--model", model, "--gpu", gpu, "--precision", precision))["outputs"]
        value = {name: figure["value"] for name, figure in made.items()}
        row = (
            f"| {model} | {gpu} | {precision} | {value['batch']} | {value['rollouts_per_s_per_worker']:.1f} "
            f"| {value['gpus']} | {value['latency_at_peak_s']:.1f}, {value['latency_alone_s']:.1f} "
            f"| {value['usd_per_million']:,.0f} | {value['usd_per_million_at_full_use']:,.0f} |"
        )
        assert row in explained
