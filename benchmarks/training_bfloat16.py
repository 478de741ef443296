"""Measure a training step of the bundled judge in bfloat16 and in float32, on one core.

    python -m benchmarks.training_bfloat16 CHECKPOINT --out benchmarks/results/training_bfloat16.json

Each batch is computed in both, in turn, so that the ratio does not depend on the load of the machine. The time is that of the
loss and its gradients, without the optimizer. `tirjudge train bundled` uses bfloat16 on processors with instructions for it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from benchmarks.reporting import Out, report
from tirjudge_training.bundled.build import continuing, second_generation, second_profile
from tirjudge_training.bundled.sft import PackedBatch, batch_loss, batches_for_steps, multiplies_bfloat16
from tirjudge_training.bundled.vocabulary import TrainedVocabulary


def main(
    checkpoint: Annotated[Path, typer.Argument(help="Checkpoint folder of a judge of the second generation.")],
    steps: Annotated[int, typer.Option(min=2, help="Number of steps.")] = 20,
    out: Out = None,
) -> None:
    """Measure both data types in turn."""
    torch.set_num_threads(1)
    recipe = replace(
        continuing(second_generation(), checkpoint), num_workers=1, examples_per_shard=1024, examples_per_step=48
    )
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    vocabulary = TrainedVocabulary(tokenizer_json=tokenizer.to_str(), num_ids=recipe.vocab_size)
    model = Qwen3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    model.train()
    seconds: dict[bool, list[float]] = {True: [], False: []}
    num_tokens = 0
    drawn = batches_for_steps(recipe, rank=0, profile=second_profile(), vocabulary=vocabulary)
    for index, (_, batches) in enumerate(islice(drawn, steps + 1)):
        for bf16 in (True, False):
            taken = _timed(model, batches, vocabulary=vocabulary, bf16=bf16)
            if index:  # the first step is slower
                seconds[bf16].append(taken)
        num_tokens += sum(batch.num_tokens for batch in batches)
    report(
        {
            "processor_has_bfloat16": multiplies_bfloat16(),
            "torch": torch.__version__,
            "steps": steps,
            "tokens_per_step": num_tokens // (steps + 1),
            "bfloat16_p50_s": round(median(seconds[True]), 3),
            "float32_p50_s": round(median(seconds[False]), 3),
            "float32_over_bfloat16": round(
                median(f / b for b, f in zip(seconds[True], seconds[False], strict=True)), 2
            ),
        },
        out,
    )


def _timed(model: Qwen3ForCausalLM, batches: list[PackedBatch], *, vocabulary: TrainedVocabulary, bf16: bool) -> float:
    """Return the seconds that the loss of these batches and its gradients take."""
    started = time.perf_counter()
    for batch in batches:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss, _ = batch_loss(model, batch, vocabulary=vocabulary)
        loss.backward()
    model.zero_grad(set_to_none=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    typer.run(main)
