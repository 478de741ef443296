"""The capacity plan, compared with manual calculations, and its measured inputs, compared with their result files."""

import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tirjudge_server.planning.figures import GPUS, MODELS, FigureSource, ModelShape, PlanError, find_gpu, find_model
from tirjudge_server.planning.inputs import DEFAULTS
from tirjudge_server.planning.plan import CapacityPlan, CapacityQuestion, plan
from tirjudge_server.planning.steps import PRECISIONS, find_precision, roofline

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"


def planned(*, model: str = "8B", per_day: float = 1e7, gpus_per_worker: int = 1, **given: float) -> CapacityPlan:
    question = CapacityQuestion(
        judgments_per_day=per_day,
        gpu=GPUS["h100"],
        model=MODELS[model],
        precision=PRECISIONS["bf16"],
        gpus_per_worker=gpus_per_worker,
    )
    return plan(question, given)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("0.6B", 0.596), ("1.7B", 1.72), ("4B", 4.02), ("8B", 8.19), ("14B", 14.77), ("32B", 32.76)],
)
def test_models_have_their_published_parameter_counts(name: str, billions: float) -> None:
    assert MODELS[name].num_parameters / 1e9 == pytest.approx(billions, rel=0.002)


def test_kv_cache_of_8b_model_is_144_kib_per_token() -> None:
    assert MODELS["8B"].kv_bytes_per_token == 2 * 36 * 8 * 128 * 2 == 144 * 1024


def test_config_of_a_checkpoint_is_read(tmp_path: Path) -> None:
    shape = find_model(str(ROOT / "judge" / "tirjudge" / "checkpoints" / "tiny"))
    assert (shape.num_layers, shape.num_kv_heads, shape.head_dim, shape.tied) == (6, 2, 64, True)
    assert shape.num_parameters == pytest.approx(5.5e6, rel=0.1)
    (tmp_path / "config.json").write_text(json.dumps({"num_experts": 128}))
    with pytest.raises(PlanError, match="mixture of experts"):
        find_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PlanError, match="no 'num_attention_heads'"):
        find_model(str(tmp_path))
    fine = json.loads((ROOT / "judge" / "tirjudge" / "checkpoints" / "tiny" / "config.json").read_text())
    broken = (b"{bad", b"[]", b"\xff\xfe", json.dumps({**fine, "num_attention_heads": 0, "head_dim": None}).encode())
    for content in broken:
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(PlanError, match=r"config\.json"):
            find_model(str(tmp_path))


def test_errors_for_unknown_names_list_known_names() -> None:
    with pytest.raises(PlanError, match="h100"):
        find_gpu("h900")
    with pytest.raises(PlanError, match="a folder with"):
        find_model("9B")
    with pytest.raises(PlanError, match="fp8"):
        find_precision("int3")
    assert find_model("Qwen/Qwen3-8B") is find_model("8B")


def test_decode_step_is_bound_by_memory_reads() -> None:
    cost = roofline(GPUS["h100"], MODELS["8B"], precision=PRECISIONS["bf16"])
    body = 36 * (2 * 4096 * 128 * (32 + 8) + 3 * 4096 * 12288)
    assert cost.base_s == pytest.approx(2 * (body + 151_936 * 4096) / (3.35e12 * 0.66))
    assert cost.per_context_token_s == pytest.approx(147_456 / (3.35e12 * 0.90))
    assert 1 / cost.decode_s(num_sequences=1, context_tokens=1) == pytest.approx(145, rel=0.02)


def test_gpus_and_cost_follow_from_worker_throughput() -> None:
    made = planned()
    step_s = made.cost.decode_s(num_sequences=made["batch"], context_tokens=made["batch"] * made["mean_context"])
    assert made["held_tokens"] == 755 + 1000 + 100
    assert made["batch"] == min(256, math.floor(made["kv_tokens"] / 1855))
    assert made["gpu_s_per_rollout"] == pytest.approx(1000 * step_s / made["batch"] + made["prefill_ms"] / 1000)
    assert made["workers"] == math.ceil(1e7 / 86_400 * 2 * made["gpu_s_per_rollout"] / 0.8)
    cores = made["sandbox_slots"] + made["servers"]
    assert made["usd_per_million"] == pytest.approx((made["gpus"] * 3.99 * 24 + cores * 0.04 * 24) / 10)


def test_kv_cache_size_matches_vllm() -> None:
    assert planned()["kv_tokens"] == pytest.approx(377_024, rel=0.01)


def test_votes_and_orders_multiply_the_load() -> None:
    assert planned(rollouts=6)["peak_rollouts_per_s"] == pytest.approx(6 * planned()["peak_rollouts_per_s"])


def test_error_for_too_large_model_says_what_to_change() -> None:
    with pytest.raises(PlanError, match="--gpus-per-worker 2"):
        planned(model="32B", max_model_len=32_768)


def test_number_out_of_range_is_refused() -> None:
    with pytest.raises(PlanError, match="expected a share of at most 1"):
        planned(use=1.5)
    with pytest.raises(PlanError, match="--peak: expected a number above 0, got 0"):
        planned(peak=0)
    for per_day in (0, math.inf, math.nan):
        with pytest.raises(PlanError, match="--judgments-per-day"):
            planned(per_day=per_day)
    with pytest.raises(PlanError, match="--peak: expected a finite number, got inf"):
        planned(peak=math.inf)
    with pytest.raises(PlanError, match=r"--max-sequences: expected at least 1, got 0\.5"):
        planned(max_sequences=0.5)
    with pytest.raises(PlanError, match="--max-model-len: 4096 given, but one rollout has 20855 tokens"):
        planned(output_tokens=20_000, max_model_len=4096)


FACTORS = {"max_sequences": 0.5, "sandbox_wait": 50.0}
"""Factors for inputs where a change of 10 % disappears in rounding."""


@pytest.mark.parametrize("name", sorted(planned().inputs.keys() - {"max_model_len"}))
def test_every_input_can_be_given_and_affects_the_plan(name: str) -> None:
    before = planned(gpus_per_worker=2)
    made = planned(gpus_per_worker=2, **{name: before[name] * FACTORS.get(name, 0.9)})
    assert made.inputs[name].origin is FigureSource.GIVEN
    assert made.inputs[name].source == f"--{name.replace('_', '-')}"
    assert any(figure.value != before[figure.name] for figure in made.outputs.values())


def test_every_figure_has_a_source() -> None:
    made = planned()
    for figure in (made.inputs | made.outputs).values():
        assert figure.source, figure.name
    assert all(figure.origin is FigureSource.DERIVED for figure in made.outputs.values())


def test_batch_at_peak_follows_littles_law() -> None:
    made = planned()
    per_s = made["peak_rollouts_per_s"] / made["workers"]
    batch, context = made["batch_at_peak"], made["mean_context"]
    step_s = made.cost.decode_s(num_sequences=batch, context_tokens=batch * context)
    seconds = 1000 * step_s / (1 - per_s * made["prefill_ms"] / 1000)  # no sequence decodes during prefill
    assert batch == pytest.approx(per_s * seconds)
    assert made["latency_alone_s"] < seconds < made["latency_at_peak_s"]
    assert made["under_way"] == pytest.approx(made["peak_rollouts_per_s"] * made["latency_at_peak_s"])


# Measured defaults match their result files.


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_prompt_tokens_match_measurement() -> None:
    assert DEFAULTS["prompt_tokens"].value == result("plan_prompts")["all"]["pairwise"]["mean"]


def test_programs_match_measurement() -> None:
    assert DEFAULTS["programs"].value == result("server_programs")["remote"]["programs_per_judgment"]


def test_program_time_matches_measurement() -> None:
    measured = result("sandbox_speed")["figures"]["print"]["pool over HTTP, namespaces"]["64"]["cpu_ms"]
    assert DEFAULTS["program_s"].value == pytest.approx(measured / 1000, rel=0.05)


def test_server_time_matches_measurement() -> None:
    def core_ms(programs: int) -> float:
        runs = result("server_overhead")["speed"]
        [run] = [run for run in runs if run["programs_per_judgment"] == programs and run["records"]]
        return fmean(entry["cpu_ms_per_judgment"] for entry in run["rounds"] if entry["concurrency"] == 64)

    assert DEFAULTS["server_judgment_ms"].value == pytest.approx(core_ms(0), rel=0.05)
    assert DEFAULTS["server_program_ms"].value == pytest.approx(core_ms(1) - core_ms(0), rel=0.05)


def test_source_of_assumed_call_time_has_measured_value() -> None:
    measured = result("server_overhead")["remote"]
    rest_ms = measured["server_core_ms_per_judgment"] - DEFAULTS["server_judgment_ms"].value
    assert rest_ms / measured["calls_per_judgment"] == pytest.approx(3.0, rel=0.05)
    assert "server_overhead.json has 3.0" in DEFAULTS["server_call_ms"].source


@pytest.mark.parametrize("name", PRECISIONS)
def test_coefficients_match_fit(name: str) -> None:
    fitted = result("plan_engine")["precisions"][name]["fitted"]
    for key, value in fitted.items():
        assert getattr(PRECISIONS[name], key) == pytest.approx(value, abs=0.006), key


def test_shape_of_llama_is_parsed() -> None:
    config = {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
    }
    shape = ModelShape.parse(config, name="llama")
    assert shape.num_parameters / 1e9 == pytest.approx(8.03, rel=0.002)
