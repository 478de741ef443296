"""Tests for every engine that uses vLLM, with the bundled judge. The embedded engine gives the expected results.

A test module per engine imports these tests and defines the fixture `engine`.
"""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from tirjudge.engines.base import Engine
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm_answer import REPETITION
from tirjudge.errors import PromptTooLong
from tirjudge.formats.blocks import OUTPUT_FENCE
from tirjudge.labels import read_labels
from tirjudge.request_context import coming_from
from tirjudge.types import Completion, Sampling

PROMPT = (
    "Zwölf words 🙂: which of the answers has fewer words?\n\nAnswer A: Cats sleep.\n\nAnswer B: Cats sleep all day."
)
SCORES = [str(score) for score in range(1, 11)]
CONTEXT = 3072
"""Context length of the bundled judge."""

CLOSE = 2e-3
"""Maximum difference of log-probabilities between two implementations in fp32."""


def assert_same(found: Completion, expected: Completion) -> None:
    """Assert that completions are equal, with a tolerance for log-probabilities."""
    assert (found.text, found.token_ids) == (expected.text, expected.token_ids)
    assert (found.finish_reason, found.stop) == (expected.finish_reason, expected.stop)
    assert found.num_appended == expected.num_appended
    assert found.logprobs == pytest.approx(expected.logprobs, abs=CLOSE)
    assert found.token_logprobs == pytest.approx(expected.token_logprobs, abs=CLOSE)


def some_token(oracle: EmbeddedEngine) -> tuple[int, str]:
    """Return a token of at least three letters."""
    return next(
        (i, text.decode()) for i, text in oracle.tokenizer.bytes_of.items() if text.isalpha() and len(text) >= 3
    )


async def test_prompts_and_texts_have_the_ids_of_the_embedded_engine(engine: Engine, oracle: EmbeddedEngine):
    assert await engine.tokenizer.encode_prompt(PROMPT) == await oracle.tokenizer.encode_prompt(PROMPT)
    for text in ("A", "", "\nA 1/2\n```\n" * 20, "<preference>", "```output", "<|im_end|>", "数字 и 🙂"):
        assert await engine.tokenizer.encode(text) == oracle.tokenizer.encode_now(text)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=40),
        Sampling(max_tokens=200, stop=("</preference>", OUTPUT_FENCE)),
        Sampling(max_tokens=60, stop=("e",)),
        Sampling(max_tokens=1, allowed_token_ids=(40, 41), logprob_token_ids=(40, 41, 7)),
    ],
    ids=["greedy", "first-turn", "stopped", "constrained"],
)
async def test_completions_equal_those_of_the_embedded_engine(
    engine: Engine, oracle: EmbeddedEngine, sampling: Sampling
):
    ids = await oracle.tokenizer.encode_prompt(PROMPT)
    found = await engine.generate(ids, sampling=sampling, session="same")
    assert_same(found, await oracle.generate(ids, sampling=sampling, session="same"))


async def test_equal_seeds_give_equal_samples(engine: Engine, oracle: EmbeddedEngine):
    ids = await oracle.tokenizer.encode_prompt(PROMPT)
    sampling = Sampling(max_tokens=30, temperature=1.5, seed=2**62)
    first, second = [await engine.generate(ids, sampling=sampling, session="seed") for _ in range(2)]
    assert first.token_ids == second.token_ids
    greedy = await engine.generate(ids, sampling=Sampling(max_tokens=30), session="seed")
    assert first.token_ids != greedy.token_ids


async def test_the_end_of_turn_is_in_the_ids_but_not_in_the_text(engine: Engine, oracle: EmbeddedEngine):
    (eos,) = oracle.eos_token_ids
    sampling = Sampling(max_tokens=5, allowed_token_ids=(eos,), stop=("```output",))
    completion = await engine.generate([65, 66], sampling=sampling, session="eos")
    assert (completion.text, completion.token_ids, completion.finish_reason) == ("", (eos,), "stop")
    assert completion.stop is None
    assert engine.eos_token_ids == {eos}


async def test_special_tokens_appear_in_the_text(engine: Engine, oracle: EmbeddedEngine):
    for tag in ("<|im_start|>", "<preference>", "</preference>"):
        (token_id,) = oracle.tokenizer.encode_now(tag)
        completion = await engine.generate(
            [65], sampling=Sampling(max_tokens=2, allowed_token_ids=(token_id,)), session="tags"
        )
        assert (completion.text, completion.finish_reason) == (tag * 2, "length")


async def test_a_token_that_extends_past_the_stop_string_is_split(engine: Engine, oracle: EmbeddedEngine):
    token_id, text = some_token(oracle)
    stop = text + text[:1]
    sampling = Sampling(max_tokens=9, allowed_token_ids=(token_id,), stop=(stop,))
    completion = await engine.generate([65, 66], sampling=sampling, session="spill")
    assert completion.text == completion.stop == stop
    assert completion.token_ids == (token_id, *oracle.tokenizer.encode_now(text[:1]))
    assert completion.num_appended == 1
    assert (completion.logprobs[0] < 0, completion.logprobs[1:]) == (True, (0.0,))
    assert_same(completion, await oracle.generate([65, 66], sampling=sampling, session="spill"))


async def test_characters_of_several_tokens_are_decoded(engine: Engine, oracle: EmbeddedEngine):
    """The bundled judge copies, so after a repeated letter it often writes the two tokens of this letter."""
    encode = oracle.tokenizer.encode_now
    letters = [letter for letter in "èüñöжα" if len(encode(letter)) == 2]
    for letter, seed in product(letters, range(20)):
        ids = tuple(encode(letter))
        sampling = Sampling(max_tokens=2, temperature=2.0, seed=seed, allowed_token_ids=ids, stop=(letter,))
        prompt = [65, 66, *ids * 4]
        completion = await engine.generate(prompt, sampling=sampling, session=f"utf-8 {ids[0]} {seed}")
        if completion.token_ids == ids:
            assert (completion.text, completion.stop, completion.num_appended) == (letter, letter, 0)
            return
    pytest.fail(f"no sample has the tokens of one of {letters} in turn")


@pytest.mark.slow
async def test_label_reads_are_right_in_batches_with_other_requests(engine: Engine, oracle: EmbeddedEngine):
    """Requests with and without log-probabilities of certain ids share batches."""
    prompts = [await oracle.tokenizer.encode_prompt(f"{PROMPT} {number}") for number in range(16)]
    sets = [SCORES if number % 2 else ["A", "B"] for number in range(16)]
    turn = Sampling(max_tokens=40)

    async def ask(target: Engine, number: int) -> tuple[dict[str, float], Completion]:
        reading = read_labels(prompts[number], labels=sets[number], engine=target, session=f"read {number}")
        writing = target.generate(prompts[number], sampling=turn, session=f"write {number}")
        read, written = await asyncio.gather(reading, writing)
        return read, written

    found = await asyncio.gather(*(ask(engine, number) for number in range(16)))
    for number, (logprobs, completion) in enumerate(found):
        expected, written = await ask(oracle, number)
        assert list(logprobs) == sets[number]
        assert logprobs == pytest.approx(expected, abs=10 * CLOSE)
        assert_same(completion, written)


async def test_the_prefix_of_the_next_turn_is_cached(engine: Engine, oracle: EmbeddedEngine):
    ids = await oracle.tokenizer.encode_prompt(f"Turns of {type(engine).__name__}. {PROMPT}")
    first = await engine.generate(ids, sampling=Sampling(max_tokens=40), session="turns")
    prompt = [*ids, *first.token_ids, *oracle.tokenizer.encode_now("\nB 2/2\n```\n")]
    second = await engine.generate(prompt, sampling=Sampling(max_tokens=8), session="turns")
    sent_before = len(ids) + len(first.token_ids) - 1
    assert sent_before - 32 <= second.num_cached <= sent_before


async def test_callers_do_not_share_cached_prefixes(engine: Engine, oracle: EmbeddedEngine):
    ids = await oracle.tokenizer.encode_prompt(f"Salt for {type(engine).__name__}. {PROMPT}")
    cached = []
    for caller in ("ann", "bob", "ann", None):
        with coming_from(caller):
            done = await engine.generate(ids, sampling=Sampling(max_tokens=1), session=f"salt {caller}")
        cached.append(done.num_cached)
    assert cached[1] == 0
    assert cached[2] >= len(ids) - 33
    assert cached[3] < 32  # requests without a caller share the beginning of the prompt


async def test_a_repetition_is_stopped(engine: Engine, oracle: EmbeddedEngine):
    token_id, text = some_token(oracle)
    sampling = Sampling(max_tokens=600, allowed_token_ids=(token_id,))
    completion = await engine.generate([65, 66], sampling=sampling, session="lost")
    times = REPETITION["min_count"]
    assert (completion.text, completion.token_ids) == (text * times, (token_id,) * times)
    assert (completion.finish_reason, completion.stop) == ("repetition", None)


async def test_a_completion_ends_at_the_end_of_the_context(engine: Engine):
    sampling = Sampling(max_tokens=99, allowed_token_ids=(65,))
    completion = await engine.generate([65] * (CONTEXT - 4), sampling=sampling, session="long")
    assert (len(completion.token_ids), completion.finish_reason) == (4, "length")


async def test_a_prompt_that_fills_the_context_is_rejected(engine: Engine):
    with pytest.raises(PromptTooLong, match=f"{CONTEXT} tokens"):
        await engine.generate([65] * CONTEXT, sampling=Sampling(max_tokens=1), session="long")
