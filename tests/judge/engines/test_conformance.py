"""The same tests for the embedded engine and for the HTTP client of a mini worker on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import replace

import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from tests.endless import endless
from tirjudge.engines.base import Engine
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.errors import PromptTooLong
from tirjudge.labels import read_labels
from tirjudge.types import Completion, Sampling

PROMPT = "Zwölf words 🙂: which follows the words better?"


@pytest_asyncio.fixture(params=["embedded", "http"])
async def engine(
    request: pytest.FixtureRequest, shared_engine: EmbeddedEngine, worker_url: str
) -> AsyncIterator[Engine]:
    if request.param == "embedded":
        yield shared_engine
        return
    engine = VLLMEngine(worker_url)
    await engine.ready()
    yield engine
    await engine.aclose()


def rounded(completion: Completion) -> Completion:
    """Return the completion without cache-dependent values: the cache count, and the last digits of the logprobs."""
    return replace(
        completion,
        num_cached=0,
        logprobs=tuple(round(logprob, 3) for logprob in completion.logprobs),
        token_logprobs={i: round(logprob, 3) for i, logprob in completion.token_logprobs.items()},
    )


async def test_prompts_and_texts_are_encoded_by_the_tokenizer_of_the_checkpoint(engine: Engine, tokenizer: Tokenizer):
    rendered = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    assert await engine.tokenizer.encode_prompt(PROMPT) == tokenizer.encode(rendered).ids
    for text in ("A", "A", "", "\nA 1/2\n```\n" * 20):
        assert await engine.tokenizer.encode(text) == tokenizer.encode(text).ids


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=30),
        Sampling(max_tokens=30, temperature=1.0, seed=3),
        Sampling(max_tokens=60, temperature=0.7, top_p=0.8, seed=2**62, stop=("e", "`")),
        Sampling(max_tokens=1, allowed_token_ids=(40, 41), logprob_token_ids=(40, 41, 7)),
    ],
    ids=["greedy", "sampled", "stopped", "constrained"],
)
async def test_engines_generate_equal_completions(engine: Engine, shared_engine: EmbeddedEngine, sampling: Sampling):
    ids = await engine.tokenizer.encode_prompt(PROMPT)
    found = await engine.generate(ids, sampling=sampling, session="conformance")
    expected = await shared_engine.generate(ids, sampling=sampling, session="expected")
    assert rounded(found) == rounded(expected)
    assert len(found.logprobs) == len(found.token_ids)


async def test_the_end_of_turn_token_is_hidden_and_reported(engine: Engine, tokenizer: Tokenizer):
    eos = tokenizer.token_to_id("<|im_end|>")
    sampling = Sampling(max_tokens=5, allowed_token_ids=(eos,), stop=("```output",))
    completion = await engine.generate([65, 66], sampling=sampling, session="eos")
    assert (completion.text, completion.token_ids, completion.finish_reason) == ("", (eos,), "stop")
    assert completion.stop is None
    assert engine.eos_token_ids == {eos}


async def test_special_tokens_other_than_the_end_of_turn_are_text(engine: Engine, tokenizer: Tokenizer):
    start = tokenizer.token_to_id("<|im_start|>")
    completion = await engine.generate([65], sampling=Sampling(max_tokens=2, allowed_token_ids=(start,)), session="s")
    assert (completion.text, completion.finish_reason) == ("<|im_start|><|im_start|>", "length")


async def test_a_token_that_reaches_past_the_stop_string_is_re_encoded(engine: Engine, tokenizer: Tokenizer):
    newlines = tokenizer.token_to_id("ĊĊĊ")
    sampling = Sampling(max_tokens=9, allowed_token_ids=(newlines,), stop=("\n\n\n\n",))
    completion = await engine.generate([65, 66], sampling=sampling, session="spill")
    assert completion.text == completion.stop == "\n\n\n\n"
    assert completion.token_ids == (newlines, *tokenizer.encode("\n").ids)
    assert completion.num_appended == 1
    assert completion.logprobs[1:] == (0.0,)


async def test_characters_of_several_tokens_reach_the_text(engine: Engine, tokenizer: Tokenizer):
    ids = tokenizer.encode("🙃").ids
    sampling = Sampling(max_tokens=200, temperature=1.0, seed=1, allowed_token_ids=tuple(ids), stop=("🙃",))
    completion = await engine.generate([65, 66], sampling=sampling, session="utf-8")
    assert completion.text == tokenizer.decode(list(completion.token_ids), skip_special_tokens=False)
    assert completion.text.endswith("🙃")
    assert completion.num_appended == 0


async def test_the_next_turn_hits_the_cache_of_its_session(engine: Engine):
    ids = await engine.tokenizer.encode_prompt(f"{PROMPT} {type(engine).__name__}")
    first = await engine.generate(ids, sampling=Sampling(max_tokens=8), session="turns")
    observation = await engine.tokenizer.encode("\nB 2/2\n```\n")
    prompt = [*ids, *first.token_ids, *observation]
    second = await engine.generate(prompt, sampling=Sampling(max_tokens=8), session="turns")
    assert second.num_cached == len(ids) + 7


async def test_labels_are_read_over_the_full_vocabulary(engine: Engine):
    ids = await engine.tokenizer.encode_prompt(PROMPT)
    logprobs = await read_labels(ids, labels=[str(n) for n in range(1, 11)], engine=engine, session="labels")
    assert list(logprobs) == [str(n) for n in range(1, 11)]
    assert all(logprob < 0 for logprob in logprobs.values())


@pytest.mark.slow
async def test_concurrent_rollouts_do_not_affect_each_other(engine: Engine):
    prompts = [await engine.tokenizer.encode_prompt(f"{PROMPT} {n}") for n in range(24)]
    sampling = Sampling(max_tokens=12, temperature=1.0, seed=5)
    together = await asyncio.gather(
        *(engine.generate(ids, sampling=sampling, session=f"together {n}") for n, ids in enumerate(prompts))
    )
    for ids, completion in zip(prompts, together, strict=True):
        alone = await engine.generate(ids, sampling=sampling, session="alone")
        assert completion.token_ids == alone.token_ids


async def test_a_completion_ends_where_the_context_ends(engine: Engine):
    completion = await engine.generate(
        [65] * 508, sampling=Sampling(max_tokens=99, allowed_token_ids=(65,)), session="l"
    )
    assert (len(completion.token_ids), completion.finish_reason) == (4, "length")


async def test_a_prompt_that_fills_the_context_is_too_long(engine: Engine):
    with pytest.raises(PromptTooLong, match="512 tokens"):
        await engine.generate([65] * 512, sampling=Sampling(max_tokens=1), session="l")


async def test_a_cancelled_turn_is_removed_from_the_engine(
    engine: Engine, shared_engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
):
    joined, left = asyncio.Event(), threading.Event()
    loop, forward, leave = asyncio.get_running_loop(), shared_engine.model.forward, Future.cancel

    def held(*args, **kwargs):
        loop.call_soon_threadsafe(joined.set)
        assert left.wait(timeout=30), "the engine was not notified of the cancellation"
        return forward(*args, **kwargs)

    def cancel(future: Future) -> bool:
        cancelled = leave(future)
        left.set()
        return cancelled

    monkeypatch.setattr(shared_engine.model, "forward", held)
    monkeypatch.setattr(Future, "cancel", cancel)
    task = asyncio.create_task(engine.generate([65, 66], sampling=endless(480), session="endless"))
    await joined.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await engine.generate([65], sampling=Sampling(max_tokens=1), session="next")
    assert shared_engine.num_running == 0
