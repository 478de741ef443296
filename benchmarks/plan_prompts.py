"""Count the tokens of real judgment prompts with Qwen's tokenizer.

    python benchmarks/plan_prompts.py ROWS.jsonl.gz ... --out benchmarks/results/plan_prompts.json

A row is `{"prompt", "responses", ...}`. A row with two responses is rendered as a pairwise prompt, and every response as a
pointwise prompt, both with tools. The tokenizer comes with the package dashscope (pip install dashscope tiktoken). It is
the tokenizer of Qwen's first models. Apart from the control tokens, Qwen3 has the same tokens.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import fmean, quantiles
from typing import Annotated

import typer
from reporting import Out, report

from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.profile import Profile
from tirjudge.types import Mode

PROFILE = Profile()


def main(files: Annotated[list[Path], typer.Argument(exists=True)], out: Out = None) -> None:
    """Count, and print the result as JSON."""
    from dashscope import get_tokenizer

    encode = get_tokenizer("qwen-7b-chat").encode
    lengths: dict[Mode, dict[str, list[int]]] = {Mode.PAIRWISE: {}, Mode.POINTWISE: {}}
    num_chars = 0
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                pairs = [(Mode.PAIRWISE, row["responses"])] if len(row["responses"]) == 2 else []
                for mode, responses in [*pairs, *((Mode.POINTWISE, [response]) for response in row["responses"])]:
                    text = render(mode, prompt=row["prompt"], responses=responses)
                    lengths[mode].setdefault(file.name, []).append(len(encode(text)))
                    num_chars += len(text)
    every = {mode: [number for numbers in found.values() for number in numbers] for mode, found in lengths.items()}
    result = {
        "chars_per_token": round(num_chars / sum(map(sum, every.values())), 2),
        "template_tokens": {mode: len(encode(FORMAT.template(mode, tools=True))) for mode in every},
        "all": {mode: spread(numbers) for mode, numbers in every.items() if numbers},
        "files": {mode: {name: spread(numbers) for name, numbers in found.items()} for mode, found in lengths.items()},
    }
    report(result, out)


def render(mode: Mode, *, prompt: str, responses: list[str]) -> str:
    """Render a prompt with the limits of the default profile."""
    return FORMAT.render_prompt(
        mode,
        prompt=prompt,
        responses=responses,
        tools=True,
        max_tool_calls=3,
        prompt_chars=PROFILE.prompt_chars,
        response_chars=min(PROFILE.response_chars, PROFILE.all_responses_chars // len(responses)),
    )


def spread(lengths: list[int]) -> dict[str, float]:
    """Return mean and percentiles of lengths in tokens."""
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
