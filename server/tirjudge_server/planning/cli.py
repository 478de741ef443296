"""`tirjudge plan`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def _number(text: str) -> Any:
    return typer.Option(min=0.0, help=text, rich_help_panel="Figures that replace a default")


def plan(
    judgments_per_day: Annotated[float, typer.Option(min=0.0, help="How many have to be made, such as 1e6.")],
    model: Annotated[str, typer.Option(help="A size of Qwen3 such as 8B, or a folder with a config.json.")] = "8B",
    gpu: Annotated[str, typer.Option(help="a100, h100, h200, b200, l40s or rtx4090.")] = "h100",
    precision: Annotated[str, typer.Option(help="Of the weights: bf16 or fp8.")] = "bf16",
    gpus_per_worker: Annotated[int, typer.Option(min=1, help="GPUs that share a model.")] = 1,
    explain: Annotated[bool, typer.Option("--explain", help="Show how each figure comes about.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON object.")] = False,
    prompt_tokens: Annotated[float | None, _number("Of the prompt of one rollout.")] = None,
    output_tokens: Annotated[float | None, _number("That the model writes in one rollout, all turns together.")] = None,
    programs: Annotated[float | None, _number("That run in one rollout, on average.")] = None,
    observation_tokens: Annotated[float | None, _number("Of what a program printed.")] = None,
    program_s: Annotated[float | None, _number("Seconds of a core that a program takes.")] = None,
    rollouts: Annotated[float | None, _number("Of one judgment: orders times votes.")] = None,
    peak: Annotated[float | None, _number("The busiest hour over the mean.")] = None,
    use: Annotated[float | None, _number("Share of what the fleet can do that the peak may ask of it.")] = None,
    max_sequences: Annotated[float | None, _number("vLLM's --max-num-seqs.")] = None,
    max_model_len: Annotated[float | None, _number("vLLM's --max-model-len.")] = None,
    memory_share: Annotated[float | None, _number("vLLM's --gpu-memory-utilization.")] = None,
    reserve_gb: Annotated[float | None, _number("Memory of a GPU for activations and graphs.")] = None,
    server_judgment_ms: Annotated[float | None, _number("Server's core time for a judgment.")] = None,
    server_program_ms: Annotated[float | None, _number("Server's core time for a program.")] = None,
    server_call_ms: Annotated[float | None, _number("Server's core time for a request to a worker.")] = None,
    sandbox_wait: Annotated[float | None, _number("Share of programs that may wait for a slot.")] = None,
    usd_per_gpu_hour: Annotated[float | None, _number("Price of a GPU.")] = None,
    usd_per_core_hour: Annotated[float | None, _number("Price of a core.")] = None,
    weight_read: Annotated[float | None, _number("Share of the bandwidth that reading weights comes to.")] = None,
    kv_read: Annotated[float | None, _number("The same for keys and values.")] = None,
    decode_share: Annotated[float | None, _number("Share of decoding's operations that reading does not hide.")] = None,
    prefill_mfu: Annotated[float | None, _number("Share of the operations that prefill comes to.")] = None,
    split_efficiency: Annotated[float | None, _number("Of each of several GPUs that share a model.")] = None,
) -> None:
    """How many GPUs and cores a load needs, and what it costs. Every figure says whether it was measured or assumed."""
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
