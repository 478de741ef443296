"""How long the prompts of real judgments are, in tokens of Qwen's tokenizer.

    python benchmarks/plan_prompts.py ROWS.jsonl.gz ... --out benchmarks/results/plan_prompts.json

A row is `{"prompt", "responses", ...}`. Rows of two responses become pairwise prompts, and every response a pointwise one,
rendered as a judge with tools renders them. The tokenizer is the one in the package dashscope (pip install dashscope
tiktoken): that of Qwen's first models, whose ordinary tokens Qwen3 has kept.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from statistics import fmean, quantiles
from typing import Annotated, Any

import typer

from tirjudge.formats.tirjudge_1 import render_prompt, template
from tirjudge.profile import Profile
from tirjudge.types import Mode

PROFILE = Profile()


def main(
    files: Annotated[list[Path], typer.Argument(exists=True)],
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Count, and print the result as JSON."""
    from dashscope import get_tokenizer

    encode = get_tokenizer("qwen-7b-chat").encode
    lengths: dict[str, dict[Mode, list[int]]] = {}
    num_chars = 0
    for file in files:
        found = lengths.setdefault(file.name, {Mode.PAIRWISE: [], Mode.POINTWISE: []})
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                for mode, responses in shown(row["responses"]):
                    text = render(mode, prompt=row["prompt"], responses=responses)
                    found[mode].append(len(encode(text)))
                    num_chars += len(text)
    everything = [number for found in lengths.values() for numbers in found.values() for number in numbers]
    result: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/plan_prompts.py", *(file.name for file in files)]),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None,
        "chars_per_token": round(num_chars / sum(everything), 2),
        "template_tokens": {mode: len(encode(template(mode, tools=True))) for mode in (Mode.PAIRWISE, Mode.POINTWISE)},
        "all": {
            mode: spread([number for found in lengths.values() for number in found[mode]])
            for mode in (Mode.PAIRWISE, Mode.POINTWISE)
        },
        "files": {
            name: {mode: spread(numbers) for mode, numbers in found.items() if numbers}
            for name, found in lengths.items()
        },
    }
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def shown(responses: list[str]) -> list[tuple[Mode, list[str]]]:
    pairs = [(Mode.PAIRWISE, responses)] if len(responses) == 2 else []
    return [*pairs, *((Mode.POINTWISE, [response]) for response in responses)]


def render(mode: Mode, *, prompt: str, responses: list[str]) -> str:
    return render_prompt(
        mode,
        prompt=prompt,
        responses=responses,
        tools=True,
        max_tool_calls=3,
        prompt_chars=PROFILE.prompt_chars,
        response_chars=min(PROFILE.response_chars, PROFILE.all_responses_chars // len(responses)),
    )


def spread(lengths: list[int]) -> dict[str, float]:
    """Of tokens."""
    cuts = quantiles(lengths, n=20)
    return {
        "num_prompts": len(lengths),
        "mean": round(fmean(lengths)),
        "p50": round(cuts[9]),
        "p95": round(cuts[18]),
        "longest": max(lengths),
    }


if __name__ == "__main__":
    typer.run(main)
