"""How fast the embedded engine starts and generates, beside transformers in the same run.

    python benchmarks/embedded_engine.py --out benchmarks/results/embedded_engine.json

The model is the bundled judge. Each measurement runs in a process of its own, so that memory and cold start are its own
too. Needs transformers and torch for the comparison alone.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from reporting import Out, report

from tirjudge.model import bundled_checkpoint

PROMPT_TOKENS, NEW_TOKENS = 300, 128
CONCURRENCIES = (1, 16)
ROUNDS = 3
"""The best of these counts: neighbours on a shared machine only ever slow a run down."""

Engine = Literal["embedded", "transformers"]


def prompt_ids(number: int) -> list[int]:
    """Another prompt for each number, so that no prefix is shared."""
    return [(number * 7919 + i * 104729) % 500 for i in range(PROMPT_TOKENS)]


async def measure_embedded(checkpoint: Path) -> dict[str, float]:
    started = time.perf_counter()
    from tirjudge.engines.embedded import EmbeddedEngine
    from tirjudge.types import Sampling

    engine = EmbeddedEngine.load(checkpoint)
    await engine.generate(prompt_ids(0), sampling=Sampling(max_tokens=1), session="first")
    figures = {"cold_start_s": round(time.perf_counter() - started, 3)}
    sampling = Sampling(max_tokens=NEW_TOKENS, temperature=1.0, seed=0)
    for concurrency in CONCURRENCIES:
        rates = []
        for number in range(ROUNDS):
            sessions = [concurrency * 1000 + number * concurrency + n for n in range(concurrency)]
            begun = time.perf_counter()
            completions = await asyncio.gather(
                *(engine.generate(prompt_ids(n), sampling=sampling, session=f"{n}") for n in sessions)
            )
            generated = sum(len(completion.token_ids) for completion in completions)
            rates.append(generated / (time.perf_counter() - begun))
        figures[f"tokens_per_s_at_{concurrency}"] = round(max(rates))
    engine.close()
    return figures


async def measure_transformers(checkpoint: Path) -> dict[str, float]:
    started = time.perf_counter()
    import torch
    from transformers import Qwen3ForCausalLM

    torch.set_num_threads(1)
    model = Qwen3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()

    def generate(number: int, *, num_tokens: int) -> None:
        ids = torch.tensor([prompt_ids(number)])
        options = {"do_sample": True, "top_k": 0, "max_new_tokens": num_tokens, "min_new_tokens": num_tokens}
        model.generate(ids, attention_mask=torch.ones_like(ids), **options)

    generate(0, num_tokens=1)
    figures = {"cold_start_s": round(time.perf_counter() - started, 3)}
    seconds = []
    for number in range(ROUNDS):
        begun = time.perf_counter()
        generate(number + 1, num_tokens=NEW_TOKENS)
        seconds.append(time.perf_counter() - begun)
    return figures | {"tokens_per_s_at_1": round(NEW_TOKENS / min(seconds))}


MEASUREMENTS = {"embedded": measure_embedded, "transformers": measure_transformers}


def main(
    only: Annotated[Engine | None, typer.Option(help="One measurement, in this process.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Default: the bundled judge.")] = None,
    out: Out = None,
) -> None:
    """Measure, and print the result as JSON."""
    folder = checkpoint or bundled_checkpoint()
    if only:
        figures = asyncio.run(MEASUREMENTS[only](folder))
        print(json.dumps(figures | {"peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))
        return
    measured: dict[str, Any] = {"prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS, "rounds": ROUNDS}
    for name in MEASUREMENTS:
        command = [sys.executable, __file__, "--only", name, "--checkpoint", str(folder)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        measured[name] = json.loads(printed.stdout)
    report(measured, out)


if __name__ == "__main__":
    typer.run(main)
