"""The command `tirjudge plan`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def _number(text: str, *, of: str = "Load") -> Any:
    """An option that replaces a default figure, in the group of the help for what it describes."""
    return typer.Option(min=0.0, help=text, rich_help_panel=f"{of}: figures that replace a default")


def plan(
    judgments_per_day: Annotated[float, typer.Option(min=0.0, help="Number of judgments per day, such as 1e6.")],
    model: Annotated[str, typer.Option(help="A size of Qwen3 such as 8B, or a folder with a config.json.")] = "8B",
    gpu: Annotated[str, typer.Option(help="a100, h100, h200, b200, l40s or rtx4090.")] = "h100",
    precision: Annotated[str, typer.Option(help="Precision of the weights: bf16 or fp8.")] = "bf16",
    gpus_per_worker: Annotated[int, typer.Option(min=1, help="Number of GPUs per worker.")] = 1,
    explain: Annotated[bool, typer.Option("--explain", help="Show the source or formula of each figure.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as one JSON object.")] = False,
    prompt_tokens: Annotated[float | None, _number("Prompt tokens per rollout.")] = None,
    output_tokens: Annotated[float | None, _number("Output tokens per rollout, over all turns.")] = None,
    programs: Annotated[float | None, _number("Mean number of programs per rollout.")] = None,
    observation_tokens: Annotated[float | None, _number("Tokens of the output of one program.")] = None,
    program_s: Annotated[float | None, _number("Core seconds per program.")] = None,
    rollouts: Annotated[float | None, _number("Rollouts per judgment: orders times votes.")] = None,
    peak: Annotated[float | None, _number("Load of the busiest hour, relative to the mean.")] = None,
    use: Annotated[float | None, _number("Maximum utilization of the fleet at the peak, as a share.")] = None,
    max_sequences: Annotated[float | None, _number("vLLM's --max-num-seqs.", of="vLLM")] = None,
    max_model_len: Annotated[float | None, _number("vLLM's --max-model-len.", of="vLLM")] = None,
    memory_share: Annotated[float | None, _number("vLLM's --gpu-memory-utilization.", of="vLLM")] = None,
    reserve_gb: Annotated[float | None, _number("GB per GPU for activations and CUDA graphs.", of="vLLM")] = None,
    server_judgment_ms: Annotated[
        float | None, _number("Core milliseconds of the server per judgment.", of="Server and prices")
    ] = None,
    server_program_ms: Annotated[
        float | None, _number("Core milliseconds of the server per program.", of="Server and prices")
    ] = None,
    server_call_ms: Annotated[
        float | None, _number("Core milliseconds of the server per request to a worker.", of="Server and prices")
    ] = None,
    sandbox_wait: Annotated[
        float | None, _number("Maximum share of programs that wait for a slot.", of="Server and prices")
    ] = None,
    usd_per_gpu_hour: Annotated[
        float | None, _number("Price of a GPU hour in dollars.", of="Server and prices")
    ] = None,
    usd_per_core_hour: Annotated[
        float | None, _number("Price of a core hour in dollars.", of="Server and prices")
    ] = None,
    weight_read: Annotated[
        float | None, _number("Achieved share of the memory bandwidth when reading weights.", of="vLLM")
    ] = None,
    kv_read: Annotated[
        float | None, _number("Achieved share of the memory bandwidth when reading keys and values.", of="vLLM")
    ] = None,
    decode_share: Annotated[
        float | None, _number("Share of decoding's operations that does not overlap with memory reads.", of="vLLM")
    ] = None,
    prefill_mfu: Annotated[
        float | None, _number("Achieved share of the peak operations in prefill.", of="vLLM")
    ] = None,
    split_efficiency: Annotated[
        float | None, _number("Speed of each GPU when several share a model, relative to a single GPU.", of="vLLM")
    ] = None,
) -> None:
    """Plan the GPUs, cores and cost of a load. Each figure of the plan is marked as measured, published or assumed.

    Examples:
        tirjudge plan --judgments-per-day 5000000 --model 8B --gpu h100
        tirjudge plan --judgments-per-day 5000000 --model 8B --gpu h100 --explain
    """
    given = dict(locals())
    from tirjudge_server.planning.figures import find_gpu, find_model
    from tirjudge_server.planning.inputs import DEFAULTS, FITTED_SHARES
    from tirjudge_server.planning.plan import CapacityQuestion
    from tirjudge_server.planning.plan import plan as make_plan
    from tirjudge_server.planning.report import as_object, show
    from tirjudge_server.planning.steps import find_precision

    question = CapacityQuestion(
        judgments_per_day=judgments_per_day,
        gpu=find_gpu(gpu),
        model=find_model(model),
        precision=find_precision(precision),
        gpus_per_worker=gpus_per_worker,
    )
    made = make_plan(question, {name: given[name] for name in (*DEFAULTS, "usd_per_gpu_hour", *FITTED_SHARES)})
    if as_json:
        typer.echo(json.dumps(as_object(made), indent=2))
    else:
        show(made, explain=explain)
