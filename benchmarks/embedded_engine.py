"""How fast the embedded engine starts and generates, beside transformers in the same run.

    python benchmarks/embedded_engine.py > embedded_engine.json

The model is random: 2.4M parameters, 5 layers of 192, a vocabulary of 2048. Each measurement runs in a process of its
own, so that memory and cold start are its own too. Needs transformers and torch for the comparison alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VOCAB, HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2048, 192, 512, 5, 6, 2, 32
PROMPT_TOKENS, NEW_TOKENS = 300, 128
CONCURRENCIES = (1, 16)
ROUNDS = 3
"""The best of these counts: neighbours on a shared machine only ever slow a run down."""


def write_checkpoint(path: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
    }
    (path / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    shapes = {"embed_tokens": (VOCAB, HIDDEN), "norm": (HIDDEN,)}
    for n in range(LAYERS):
        shapes |= {
            f"layers.{n}.self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
            f"layers.{n}.self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"layers.{n}.self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"layers.{n}.self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
            f"layers.{n}.self_attn.q_norm": (HEAD_DIM,),
            f"layers.{n}.self_attn.k_norm": (HEAD_DIM,),
            f"layers.{n}.mlp.gate_proj": (INTERMEDIATE, HIDDEN),
            f"layers.{n}.mlp.up_proj": (INTERMEDIATE, HIDDEN),
            f"layers.{n}.mlp.down_proj": (HIDDEN, INTERMEDIATE),
            f"layers.{n}.input_layernorm": (HIDDEN,),
            f"layers.{n}.post_attention_layernorm": (HIDDEN,),
        }
    weights = {
        f"model.{name}.weight": (rng.normal(scale=0.06, size=shape) if len(shape) > 1 else np.ones(shape)).astype("f4")
        for name, shape in shapes.items()
    }
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(f"w{n}" for n in range(VOCAB - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path / "tokenizer.json"))


def prompt_ids(n: int) -> list[int]:
    """Another prompt for each n, so that no prefix is shared."""
    return [(n * 7919 + i * 104729) % VOCAB for i in range(PROMPT_TOKENS)]


def measure_embedded(path: Path) -> dict[str, Any]:
    started = time.perf_counter()
    from tirjudge.engines.embedded import EmbeddedEngine
    from tirjudge.types import Sampling

    async def rate(engine: EmbeddedEngine, *, concurrency: int, first: int) -> float:
        sampling = Sampling(max_tokens=NEW_TOKENS, temperature=1.0, seed=0)
        prompts = [prompt_ids(first + n) for n in range(concurrency)]
        begun = time.perf_counter()
        await asyncio.gather(
            *(engine.generate(ids, sampling=sampling, session=f"{first + n}") for n, ids in enumerate(prompts))
        )
        return concurrency * NEW_TOKENS / (time.perf_counter() - begun)

    async def measure() -> dict[str, Any]:
        engine = EmbeddedEngine.load(path)
        await engine.generate(prompt_ids(0), sampling=Sampling(max_tokens=1), session="first")
        report: dict[str, Any] = {"cold_start_s": round(time.perf_counter() - started, 3)}
        for concurrency in CONCURRENCIES:
            rates = [
                await rate(engine, concurrency=concurrency, first=concurrency * 1000 + n * concurrency)
                for n in range(ROUNDS)
            ]
            report[f"tokens_per_s_at_{concurrency}"] = round(max(rates))
        engine.close()
        return report

    return asyncio.run(measure()) | {"peak_rss_mb": peak_rss_mb()}


def measure_transformers(path: Path) -> dict[str, Any]:
    started = time.perf_counter()
    import torch
    from transformers import Qwen3ForCausalLM

    torch.set_num_threads(1)
    model = Qwen3ForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    def generate(n: int, *, num_tokens: int) -> None:
        ids = torch.tensor([prompt_ids(n)])
        mask = torch.ones_like(ids)
        output = model.generate(ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=num_tokens)
        assert output.shape == (1, PROMPT_TOKENS + num_tokens), output.shape

    generate(0, num_tokens=1)
    report: dict[str, Any] = {"cold_start_s": round(time.perf_counter() - started, 3)}
    rates = []
    for n in range(ROUNDS):
        begun = time.perf_counter()
        generate(n + 1, num_tokens=NEW_TOKENS)
        rates.append(NEW_TOKENS / (time.perf_counter() - begun))
    return report | {"tokens_per_s_at_1": round(max(rates)), "peak_rss_mb": peak_rss_mb()}


def peak_rss_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


MEASUREMENTS = {"embedded": measure_embedded, "transformers": measure_transformers}


def run_in_its_own_process(name: str, *, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", name, "--checkpoint", str(path)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", choices=MEASUREMENTS, help="one measurement in this process")
    parser.add_argument("--checkpoint", type=Path, help="of that measurement")
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(MEASUREMENTS[given.measure](given.checkpoint)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        report = {name: run_in_its_own_process(name, path=Path(folder)) for name in MEASUREMENTS}
    workload = {"prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS, "rounds": ROUNDS}
    machine = {"cpus": os.cpu_count(), "architecture": platform.machine(), "python": platform.python_version()}
    print(json.dumps(report | {"workload": workload, "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
