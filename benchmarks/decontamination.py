"""Measures how long it takes to screen the whole mixture against benchmarks, and whether planted prompts are found.

    python benchmarks/decontamination.py --out benchmarks/results/decontamination.json

The texts are generated: 20,000 prompts of benchmarks and 26,361 of training, 40 to 200 words each out of 20,000, and in 500
of the latter one eight-word piece of a benchmark's prompt.
"""

from __future__ import annotations

import random
import time

import numpy as np
import typer
from reporting import Out, report

from tirjudge_training.data.decontamination import NUM_WORDS, index_of

NUM_TRAINING, NUM_BENCHMARK, NUM_PLANTED = 26_361, 20_000, 500


def main(out: Out = None) -> None:
    """Measure, and print the result as JSON."""
    draw = random.Random(8)
    words = [f"w{number}" for number in range(20_000)]
    benchmark = [_text(draw, words) for _ in range(NUM_BENCHMARK)]
    training = [_text(draw, words) for _ in range(NUM_TRAINING)]
    planted = set(draw.sample(range(NUM_TRAINING), NUM_PLANTED))
    for place in planted:
        training[place] = f"{training[place]} {_piece(draw, benchmark)} {_text(draw, words)}"
    times = [(time.perf_counter(), time.process_time())]
    index = index_of({"generated": benchmark})
    times.append((time.perf_counter(), time.process_time()))
    nothing = np.zeros(0, dtype=np.uint64)
    found = {number for number, text in enumerate(training) if index.found_in([text], exempt=nothing) is not None}
    times.append((time.perf_counter(), time.process_time()))
    (index_s, index_cpu_s), (scan_s, scan_cpu_s) = np.diff(np.array(times), axis=0).round(2).tolist()
    figures = {
        "num_training": NUM_TRAINING,
        "num_benchmark": NUM_BENCHMARK,
        "num_grams": len(index.grams),
        "index_s": index_s,
        "scan_s": scan_s,
        "index_cpu_s": index_cpu_s,
        "scan_cpu_s": scan_cpu_s,
        "num_planted": NUM_PLANTED,
        "num_planted_found": len(found & planted),
        "num_others_found": len(found - planted),
    }
    report(figures, out)


def _text(draw: random.Random, words: list[str]) -> str:
    return " ".join(draw.choices(words, k=draw.randint(40, 200)))


def _piece(draw: random.Random, benchmark: list[str]) -> str:
    words = draw.choice(benchmark).split()
    start = draw.randrange(len(words) - NUM_WORDS + 1)
    return " ".join(words[start : start + NUM_WORDS])


if __name__ == "__main__":
    typer.run(main)
