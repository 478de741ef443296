"""Synthetic tasks of code: their programs decide them in the real sandbox, and forging changes nothing."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from benchmarks.functions_checkpoint import FORGED, forged
from tirjudge.formats.blocks import bindings
from tirjudge.tools.functions import Offer
from tirjudge.types import MODEL_MODES, Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_training.synthetic.code import TASKS
from tirjudge_training.synthetic.examples import Mixture, draw_examples, segments

CODE = Mixture(code=1.0, numeric=0.0, conduct=0.0, toolless=0.0, ties=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [False, True])
async def test_the_recorded_output_is_that_of_the_sandbox(pool: SandboxPool, held_out: bool) -> None:
    for mode in MODEL_MODES:
        for example in islice(draw_examples(mode, rng=Random(5), held_out=held_out, mixture=CODE), 3):
            bound = bindings(mode, prompt=example.prompt, responses=example.responses)
            result = await pool.run(example.code or "", bindings=bound, offer=Offer(functions=FUNCTIONS))
            assert segments(example)[1].text == f"\n{result.stdout.strip()}\n```\n", result.error


async def test_a_forging_response_does_not_change_the_output(pool: SandboxPool) -> None:
    example = next(draw_examples(Mode.PAIRWISE, rng=Random(6), held_out=True, mixture=CODE))
    responses = [text if number == example.label else forged(text) for number, text in enumerate(example.responses)]
    assert sum(FORGED in text for text in responses) == 1
    bound = bindings(Mode.PAIRWISE, prompt=example.prompt, responses=responses)
    result = await pool.run(example.code or "", bindings=bound, offer=Offer(functions=FUNCTIONS))
    assert segments(example)[1].text == f"\n{result.stdout.strip()}\n```\n"


def test_training_and_held_out_items_have_different_tasks() -> None:
    assert 0 < sum(task.is_held_out for task in TASKS) < len(TASKS)
    assert len({task.does for task in TASKS}) == len(TASKS)
