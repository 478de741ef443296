"""Training and serving agree: the same weights and seeds give the same ids and masks in server, collector and harness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import training_parity as parity
from tests.vllm.judging import Asked
from tirjudge.types import Completion, Sampling


@pytest.mark.slow
async def test_server_collector_and_harness_agree_on_a_few_rollouts() -> None:
    found = await parity.measure(4, seed=5, temperature=1.6, num_compared=1)
    assert found["rollouts"] == 4
    assert (found["mismatches_server"], found["mismatches_harness"]) == (0, 0)
    assert found["largest_logprob_difference"] < 1e-4
    assert found["compared_tokens"] > 0


@pytest.mark.slow
async def test_server_collector_and_harness_agree_on_rollouts_with_function_calls() -> None:
    found = await parity.measure(4, seed=5, temperature=1.6, num_compared=1, calls=True)
    assert found["function_calls"] > 3
    assert (found["mismatches_server"], found["mismatches_harness"]) == (0, 0)
    assert found["largest_logprob_difference"] < 1e-4


@pytest.mark.slow
async def test_server_collector_and_harness_generate_the_same_rollouts() -> None:
    # At temperature 1, most rollouts of the bundled judge are equal, so a mismatch would not be noticed.
    found = await parity.measure(24, seed=5, temperature=1.6, num_compared=6)
    assert found["rollouts"] == 24
    assert found["distinct_rollouts"] > 12, (
        "expected different rollouts, because the rollouts of a prompt have different seeds"
    )
    assert found["rollouts_with_programs"] > 12
    assert (found["mismatches_server"], found["mismatches_harness"]) == (0, 0)
    assert found["largest_logprob_difference"] < 1e-4
    assert found["compared_tokens"] > 50


def test_different_id_or_mask_is_a_mismatch() -> None:
    one = parity.Seen(prompt_ids=(1,), ids=(2, 3), mask=(1, 0))
    assert parity.num_mismatches([one, one], [one, one]) == 0
    assert parity.num_mismatches([one, one], [one, replace(one, ids=(2, 4))]) == 1
    assert parity.num_mismatches([one], [replace(one, mask=(1, 1))]) == 1
    assert parity.num_mismatches([one], []) == 1
    assert parity.num_mismatches([one], [one, one]) == 1


def test_mask_is_built_from_the_completions_of_the_engine() -> None:
    def asked(prompt_ids: tuple[int, ...], *ids: int, num_appended: int = 0) -> Asked:
        logprobs = (0.0,) * len(ids)
        completion = Completion(
            text="", token_ids=ids, logprobs=logprobs, finish_reason="stop", num_appended=num_appended
        )
        return Asked(session="s", prompt_ids=prompt_ids, sampling=Sampling(max_tokens=9), completion=completion)

    # 9 ends a turn and is dropped; 5 was appended by the loop; 6 and 7 are observations
    seen = parity.seen_of(
        [
            asked((1, 1), 2, 3, 9),
            asked((1, 1, 2, 3, 6), 4, 5, num_appended=1),
            asked((1, 1, 2, 3, 6, 4, 5, 7), 8, 9),
        ]
    )
    assert seen.ids == (2, 3, 6, 4, 5, 7, 8, 9)
    assert seen.mask == (1, 1, 0, 1, 0, 0, 1, 1)
