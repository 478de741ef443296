"""What is trained on is what is served: one set of weights and seeds gives the same ids and masks on every path."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tirjudge.types import Completion

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training_parity.py"


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_parity", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


async def test_server_collector_and_harness_give_the_same_24_rollouts(parity: ModuleType) -> None:
    found = await parity.measure(24, seed=5, temperature=1.6, num_compared=6)  # the bundled judge is sure of itself
    assert found["rollouts"] == 24
    assert found["distinct_rollouts"] > 12, "the two rollouts of a prompt have seeds of their own"
    assert found["rollouts_with_programs"] > 12
    assert (found["mismatches_server"], found["mismatches_harness"]) == (0, 0)
    assert found["largest_logprob_difference"] < 1e-4
    assert found["compared_tokens"] > 100


def test_one_other_id_or_mask_is_a_mismatch(parity: ModuleType) -> None:
    one = parity.Seen(prompt_ids=(1,), ids=(2, 3), mask=(1, 0))
    assert parity.num_mismatches([one, one], [one, one]) == 0
    assert parity.num_mismatches([one, one], [one, replace(one, ids=(2, 4))]) == 1
    assert parity.num_mismatches([one], [replace(one, mask=(1, 1))]) == 1
    assert parity.num_mismatches([one], []) == 1
    assert parity.num_mismatches([one], [one, one]) == 1


def test_the_mask_is_put_together_from_what_the_engine_returned(parity: ModuleType) -> None:
    def completion(*ids: int, num_appended: int = 0) -> Completion:
        return Completion(
            text="", token_ids=ids, logprobs=(0.0,) * len(ids), finish_reason="stop", num_appended=num_appended
        )

    # 9 ends a turn and is dropped; 5 was appended; 6 and 7 are observations
    turns = [
        ((1, 1), completion(2, 3, 9)),
        ((1, 1, 2, 3, 6), completion(4, 5, num_appended=1)),
        ((1, 1, 2, 3, 6, 4, 5, 7), completion(8, 9)),
    ]
    seen = parity._seen(turns)
    assert seen.ids == (2, 3, 6, 4, 5, 7, 8, 9)
    assert seen.mask == (1, 1, 0, 1, 0, 0, 1, 1)
