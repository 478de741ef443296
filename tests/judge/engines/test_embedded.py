"""The embedded engine compared with transformers, and its batching, caching, cancellation and failures."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tests.endless import endless
from tirjudge.engines import embedded
from tirjudge.engines.checkpoint import Qwen3Config
from tirjudge.engines.embedded import (
    GREEDY_BELOW,
    Backend,
    EmbeddedEngine,
    KVCache,
    Qwen3,
    Span,
    choose_token,
    log_softmax,
)
from tirjudge.engines.repetition import MIN_COUNT, is_repeated
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong
from tirjudge.types import Completion, Sampling

TOLERANCE = 1e-4
IDS = [int(i) for i in np.random.default_rng(0).integers(0, 300, size=120)]
OTHER = [int(i) for i in np.random.default_rng(1).integers(0, 300, size=120)]

MakeEngine = Callable[..., EmbeddedEngine]


def assert_equals_reference(completion: Completion, prompt_ids: Sequence[int], checkpoint) -> None:
    ids = [*prompt_ids, *completion.token_ids]
    expected = checkpoint.logprobs(ids)[len(prompt_ids) - 1 : -1]
    found = [row[i] for row, i in zip(expected, completion.token_ids, strict=True)]
    np.testing.assert_allclose(completion.logprobs, found, atol=TOLERANCE)


def model_of(path: Path, *, backend: str = "numpy") -> tuple[Qwen3, KVCache]:
    engine = EmbeddedEngine.load(path, backend=backend)
    engine.close()
    return engine.model, KVCache(engine.model, num_slots=4, context_tokens=256)


# ----------------------------------------------------------------------------------------------------------- the forward


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tied", [True, False])
def test_prefill_logits_equal_transformers(make_checkpoint, dtype, tied):
    checkpoint = make_checkpoint(dtype=dtype, tie_word_embeddings=tied)
    model, cache = model_of(checkpoint.path)
    logits = model.forward([Span(slot=0, start=0, token_ids=IDS)], cache=cache)
    np.testing.assert_allclose(log_softmax(logits)[0], checkpoint.logprobs(IDS)[-1], atol=TOLERANCE)


@pytest.mark.parametrize("heads", [(6, 6), (6, 1)])
def test_logits_equal_transformers_for_every_number_of_kv_heads(make_checkpoint, heads):
    checkpoint = make_checkpoint(num_attention_heads=heads[0], num_key_value_heads=heads[1], rope_theta=5e5)
    model, cache = model_of(checkpoint.path)
    logits = model.forward([Span(slot=0, start=0, token_ids=IDS)], cache=cache)
    np.testing.assert_allclose(log_softmax(logits)[0], checkpoint.logprobs(IDS)[-1], atol=TOLERANCE)


def test_rope_theta_is_read_from_old_and_new_configurations(make_checkpoint):
    checkpoint = make_checkpoint(rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    config_path = checkpoint.path / "config.json"
    config = json.loads(config_path.read_text())
    assert Qwen3Config.parse(config).rope_theta == 5e5
    del config["rope_parameters"]
    assert Qwen3Config.parse(config | {"rope_theta": 1e6, "rope_scaling": None}).rope_theta == 1e6


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_chunks_and_mixed_batches_equal_transformers(checkpoint, backend):
    model, cache = model_of(checkpoint.path, backend=backend)
    model.forward([Span(slot=2, start=0, token_ids=IDS[:50]), Span(slot=0, start=0, token_ids=OTHER[:9])], cache=cache)
    spans = [
        Span(slot=0, start=9, token_ids=OTHER[9:10]),
        Span(slot=2, start=50, token_ids=IDS[50:51]),
        Span(slot=3, start=0, token_ids=OTHER[:30]),
    ]
    model.forward(spans, cache=cache)
    spans = [
        Span(slot=3, start=30, token_ids=OTHER[30:31]),
        Span(slot=2, start=51, token_ids=IDS[51:120]),
        Span(slot=0, start=10, token_ids=OTHER[10:20]),
    ]
    logprobs = log_softmax(model.forward(spans, cache=cache))
    expected = [checkpoint.logprobs(ids)[-1] for ids in (OTHER[:31], IDS[:120], OTHER[:20])]
    np.testing.assert_allclose(logprobs, expected, atol=TOLERANCE)


def test_torch_and_numpy_logits_are_equal(checkpoint):
    spans = [Span(slot=1, start=0, token_ids=IDS[:1]), Span(slot=0, start=0, token_ids=OTHER)]
    logits = []
    for backend in ("numpy", "torch"):
        model, cache = model_of(checkpoint.path, backend=backend)
        logits.append(model.forward(spans, cache=cache))
    np.testing.assert_allclose(logits[0], logits[1], atol=TOLERANCE)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
async def test_a_model_can_be_loaded_from_a_state_dict(checkpoint, tokenizer: Tokenizer, backend):
    config = Qwen3Config.parse(checkpoint.oracle.config.to_dict())
    model = Qwen3(checkpoint.oracle.state_dict(), config=config, backend=Backend.parse(backend))
    engine = EmbeddedEngine(model, tokenizer=LocalTokenizer(tokenizer), eos_token_ids=frozenset())
    completion = await engine.generate(IDS, sampling=Sampling(max_tokens=8), session="a")
    engine.close()
    assert_equals_reference(completion, IDS, checkpoint)


# -------------------------------------------------------------------------------------------------- concurrent generation


async def test_greedy_ids_equal_those_of_transformers_generate(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    prompts = [IDS[:n] for n in (3, 40, 77)] + [OTHER[:n] for n in (1, 20)]
    sampling = Sampling(max_tokens=24)
    found = await asyncio.gather(
        *(engine.generate(ids, sampling=sampling, session=str(n)) for n, ids in enumerate(prompts))
    )
    for ids, completion in zip(prompts, found, strict=True):
        with torch.inference_mode():
            generated = checkpoint.oracle.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)
        assert list(completion.token_ids) == generated[0, len(ids) :].tolist()
        assert_equals_reference(completion, ids, checkpoint)


async def test_a_seeded_sample_does_not_depend_on_its_batch(make_engine: MakeEngine):
    sampling = Sampling(max_tokens=40, temperature=1.0, top_p=0.9, seed=7)
    alone = await make_engine().generate(IDS, sampling=sampling, session="a")
    engine = make_engine(max_batch=3)
    others = (
        engine.generate(OTHER[:n], sampling=Sampling(max_tokens=n, temperature=1.0), session=str(n))
        for n in (5, 11, 50, 90)
    )
    together = await asyncio.gather(*others, engine.generate(IDS, sampling=sampling, session="a"))
    assert together[-1].token_ids == alone.token_ids
    assert (await engine.generate(IDS, sampling=Sampling(max_tokens=40), session="a")).token_ids != alone.token_ids


async def test_prompts_longer_than_a_chunk_equal_transformers(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    long_ids = IDS + OTHER + IDS + OTHER
    assert len(long_ids) > embedded.PREFILL_TOKENS
    found = await asyncio.gather(
        engine.generate(OTHER[:9], sampling=Sampling(max_tokens=20), session="short"),
        engine.generate(long_ids, sampling=Sampling(max_tokens=5), session="long"),
    )
    assert_equals_reference(found[0], OTHER[:9], checkpoint)
    assert_equals_reference(found[1], long_ids, checkpoint)


async def test_a_repetition_is_stopped(make_engine: MakeEngine):
    sampling = Sampling(max_tokens=200, allowed_token_ids=(65,))
    completion = await make_engine().generate(IDS[:4], sampling=sampling, session="lost")
    assert (completion.token_ids, completion.finish_reason) == ((65,) * MIN_COUNT, "repetition")


@pytest.mark.parametrize(
    ("token_ids", "repeated"),
    [
        ([5] * 63, False),
        ([5] * 64, True),
        ([9, *([5, 6] * 64)], True),
        ([9, *([5, 6] * 63), 6], False),
        ([*range(32)] * 64, True),
        ([*range(33)] * 64, False),
        ([*([7] * 64), 8], False),
        ([], False),
    ],
)
def test_a_pattern_is_repeated_if_it_fills_the_end(token_ids: list[int], repeated: bool):
    assert is_repeated(token_ids) is repeated


async def test_the_context_ends_a_completion_and_rejects_a_prompt_that_fills_it(make_engine: MakeEngine):
    engine = make_engine(context_tokens=64)
    completion = await engine.generate(IDS[:60], sampling=Sampling(max_tokens=99, allowed_token_ids=(65,)), session="a")
    assert (len(completion.token_ids), completion.finish_reason) == (4, "length")
    for ids in (IDS[:64], []):
        with pytest.raises(PromptTooLong, match="63"):
            await engine.generate(ids, sampling=Sampling(max_tokens=1), session="a")


async def test_an_id_outside_the_vocabulary_is_rejected_and_the_engine_keeps_working(make_engine: MakeEngine):
    engine = make_engine()
    with pytest.raises(ValueError, match="not in the range"):
        await engine.generate([100_000], sampling=Sampling(max_tokens=1), session="a")
    await engine.generate([1], sampling=Sampling(max_tokens=1), session="a")


# -------------------------------------------------------------------------------------------------------------- the cache


async def test_the_next_turn_computes_only_new_tokens(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    first = await engine.generate(IDS, sampling=Sampling(max_tokens=10), session="a")
    prompt = [*IDS, *first.token_ids, *OTHER[:30]]
    second = await engine.generate(prompt, sampling=Sampling(max_tokens=10), session="a")
    assert second.num_cached == len(IDS) + 9  # the last sampled token was never computed
    assert_equals_reference(second, prompt, checkpoint)


async def test_a_turn_with_a_shorter_common_prefix_reuses_that_prefix(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    await engine.generate(IDS, sampling=Sampling(max_tokens=10), session="a")
    prompt = [*IDS[:70], *OTHER[:20]]
    completion = await engine.generate(prompt, sampling=Sampling(max_tokens=10), session="a")
    assert completion.num_cached == 70
    assert_equals_reference(completion, prompt, checkpoint)


async def test_a_new_session_copies_the_prefix_of_another_session(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    first = await engine.generate(IDS, sampling=Sampling(max_tokens=10), session="a")
    prompt = [*IDS[:100], *OTHER]
    other = await engine.generate(prompt, sampling=Sampling(max_tokens=10), session="b")
    assert other.num_cached == 100
    assert_equals_reference(other, prompt, checkpoint)
    prompt = [*IDS, *first.token_ids, *OTHER]
    again = await engine.generate(prompt, sampling=Sampling(max_tokens=10), session="a")
    assert again.num_cached == len(IDS) + 9
    assert_equals_reference(again, prompt, checkpoint)


async def test_concurrent_votes_compute_their_prompt_once(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    votes = (
        engine.generate(IDS, sampling=Sampling(max_tokens=12, temperature=1.0, seed=n), session=str(n))
        for n in range(5)
    )
    completions = await asyncio.gather(*votes)
    assert [completion.num_cached for completion in completions] == [0, 119, 119, 119, 119]
    assert len({completion.token_ids for completion in completions}) > 1
    for completion in completions:
        assert_equals_reference(completion, IDS, checkpoint)


async def test_evicted_sessions_are_recomputed_without_new_memory(make_engine: MakeEngine, checkpoint):
    engine = make_engine(max_batch=2, cache_tokens=2 * 512)
    cache = engine.cache
    memory = (cache.keys, cache.values, len(cache.slots))
    prompts = {str(n): [n, *IDS[n : n + 30]] for n in range(5)}
    for _ in range(2):
        for session, ids in prompts.items():
            completion = await engine.generate(ids, sampling=Sampling(max_tokens=6), session=session)
            assert completion.num_cached == 0
            assert_equals_reference(completion, ids, checkpoint)
            prompts[session] = [*ids, *completion.token_ids, *OTHER[:3]]
    assert (cache.keys, cache.values, len(cache.slots)) == memory


async def test_a_waiting_turn_of_a_cached_session_goes_before_new_sessions(make_engine: MakeEngine):
    engine = make_engine(max_batch=1, cache_tokens=2 * 512)
    first = await engine.generate(IDS, sampling=Sampling(max_tokens=4), session="kept")
    tasks = [
        asyncio.create_task(engine.generate(ids, sampling=Sampling(max_tokens=30), session=session))
        for session, ids in [
            ("new 1", OTHER[:50]),
            ("new 2", OTHER[50:]),
            ("new 3", OTHER[20:70]),
            ("kept", [*IDS, *first.token_ids, 5]),
        ]
    ]
    completions = await asyncio.gather(*tasks)
    assert completions[-1].num_cached == len(IDS) + 3


async def test_concurrent_requests_of_one_session_are_correct(make_engine: MakeEngine, checkpoint):
    engine = make_engine()
    prompts = [IDS, [*IDS[:60], *OTHER], [*IDS, *OTHER]]
    found = await asyncio.gather(
        *(engine.generate(ids, sampling=Sampling(max_tokens=10), session="same") for ids in prompts)
    )
    for ids, completion in zip(prompts, found, strict=True):
        assert_equals_reference(completion, ids, checkpoint)


# ------------------------------------------------------------------------------------------------- sampling and stopping


async def test_a_constraint_limits_sampling_but_not_label_logprobs(make_engine: MakeEngine, checkpoint):
    sampling = Sampling(max_tokens=1, allowed_token_ids=(40, 41), logprob_token_ids=(40, 41, 7))
    completion = await make_engine().generate(IDS, sampling=sampling, session="a")
    expected = checkpoint.logprobs(IDS)[-1]
    assert completion.token_ids == (40 if expected[40] > expected[41] else 41,)
    assert completion.token_logprobs == pytest.approx({i: expected[i] for i in (40, 41, 7)}, abs=TOLERANCE)
    assert completion.logprobs[0] == pytest.approx(expected[completion.token_ids[0]], abs=TOLERANCE)


async def test_the_end_of_turn_token_is_in_the_ids_but_not_in_the_text(make_engine: MakeEngine, tokenizer: Tokenizer):
    engine = make_engine()
    eos = tokenizer.token_to_id("<|im_end|>")
    assert engine.eos_token_ids == {eos}
    completion = await engine.generate(IDS, sampling=Sampling(max_tokens=5, allowed_token_ids=(eos,)), session="a")
    assert (completion.text, completion.token_ids, completion.finish_reason) == ("", (eos,), "stop")
    assert completion.stop is None


async def test_an_added_token_can_be_a_stop_string(make_engine: MakeEngine, tokenizer: Tokenizer):
    tag = tokenizer.token_to_id("```output")
    sampling = Sampling(max_tokens=5, allowed_token_ids=(tag,), stop=("</preference>", "```output"))
    completion = await make_engine().generate(IDS, sampling=sampling, session="a")
    assert (completion.text, completion.token_ids, completion.stop) == ("```output", (tag,), "```output")


async def test_a_stop_string_may_span_tokens_and_end_within_one(make_engine: MakeEngine, tokenizer: Tokenizer):
    dots, engine = tokenizer.encode("..").ids, make_engine()
    assert len(dots) == 2
    sampling = Sampling(max_tokens=9, allowed_token_ids=(dots[0],), stop=("...",))
    spanning = await engine.generate(IDS, sampling=sampling, session="a")
    assert (spanning.text, len(spanning.token_ids), spanning.num_appended) == ("...", 3, 0)
    newlines = tokenizer.token_to_id("ĊĊĊ")
    sampling = Sampling(max_tokens=9, allowed_token_ids=(newlines,), stop=("\n\n\n\n",))
    spilling = await engine.generate(IDS, sampling=sampling, session="a")
    assert (spilling.text, spilling.stop, spilling.num_appended) == ("\n\n\n\n", "\n\n\n\n", 1)
    assert spilling.token_ids == (newlines, *tokenizer.encode("\n").ids)
    assert spilling.logprobs[1:] == (0.0,)
    assert spilling.logprobs[0] < 0


async def test_characters_of_several_tokens_are_complete_in_the_text(make_engine: MakeEngine, tokenizer: Tokenizer):
    ids = tokenizer.encode("🙃").ids
    assert len(ids) > 1
    engine = make_engine()
    sampling = Sampling(max_tokens=64, temperature=1.0, allowed_token_ids=tuple(ids), seed=0, stop=("🙃",))
    completion = await engine.generate(IDS, sampling=sampling, session="a")
    assert completion.text == tokenizer.decode(list(completion.token_ids), skip_special_tokens=False)


def test_sampling_follows_temperature_and_nucleus():
    logprobs = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))

    def shares(sampling: Sampling) -> list[float]:
        rng = np.random.default_rng(0)
        drawn = [choose_token(logprobs, sampling=sampling, rng=rng) for _ in range(4000)]
        return [drawn.count(i) / 4000 for i in range(4)]

    assert shares(Sampling(max_tokens=1, temperature=1.0)) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.02)
    assert shares(Sampling(max_tokens=1, temperature=1.0, top_p=0.8)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.02)
    squares = [0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365]
    assert shares(Sampling(max_tokens=1, temperature=0.5)) == pytest.approx(squares, abs=0.02)
    assert choose_token(logprobs, sampling=Sampling(max_tokens=1, allowed_token_ids=(3, 2)), rng=None) == 2


# ------------------------------------------------------------------------------------------- cancelling, closing, failing


async def test_a_cancelled_request_frees_its_place_in_the_batch(make_engine: MakeEngine):
    engine = make_engine(max_batch=1)
    joined, cancelled = asyncio.Event(), threading.Event()
    loop, forward = asyncio.get_running_loop(), engine.model.forward

    def held(*args, **kwargs):
        loop.call_soon_threadsafe(joined.set)
        assert cancelled.wait(timeout=30)
        return forward(*args, **kwargs)

    engine.model.forward = held
    tasks = [asyncio.create_task(engine.generate(IDS, sampling=endless(400), session=s)) for s in ("runs", "waits")]
    await joined.wait()
    for task in tasks:
        task.cancel()
    assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*tasks, return_exceptions=True))
    cancelled.set()
    await engine.generate(OTHER, sampling=Sampling(max_tokens=2), session="next")
    assert (engine.num_running, engine.num_waiting) == (0, 0)


async def test_closing_fails_pending_and_new_requests(make_engine: MakeEngine):
    engine = make_engine(max_batch=1)
    forward = engine.model.forward

    def held(*args, **kwargs):
        while engine.ended is None:
            time.sleep(0.001)
        return forward(*args, **kwargs)

    engine.model.forward = held
    tasks = [asyncio.create_task(engine.generate(IDS, sampling=endless(400), session=s)) for s in ("runs", "waits")]
    await asyncio.sleep(0)
    engine.close()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, EngineUnavailable)
    with pytest.raises(EngineUnavailable, match="closed"):
        await engine.generate(IDS, sampling=endless(400), session="comes")


async def test_an_engine_failure_fails_every_request_with_its_cause(make_engine: MakeEngine, caplog):
    engine = make_engine(max_batch=2)

    def fail(*_args, **_kwargs):
        raise FloatingPointError("no such number")

    engine.model.forward = fail
    requests = (engine.generate(IDS, sampling=Sampling(max_tokens=1), session=str(n)) for n in range(5))
    for result in await asyncio.gather(*requests, return_exceptions=True):
        assert isinstance(result, EngineUnavailable)
        assert "FloatingPointError: no such number" in str(result)
    assert "no such number" in caplog.text
    assert engine.ended is not None


# --------------------------------------------------------------------------------------------------------------- loading


def test_a_large_model_is_rejected_before_its_weights_are_read(checkpoint, tmp_path: Path):
    config = json.loads((checkpoint.path / "config.json").read_text()) | {"vocab_size": 10**7}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"M parameters.*40M.*vLLM.*tirjudge serve --engine http://host:8000"):
        EmbeddedEngine.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
    ],
)
def test_an_unsupported_architecture_is_named(checkpoint, tmp_path: Path, change, named):
    config = json.loads((checkpoint.path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=named + r".*vLLM"):
        EmbeddedEngine.load(tmp_path)


def test_a_folder_that_is_not_a_checkpoint_is_rejected(tmp_path: Path, checkpoint):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        EmbeddedEngine.load(tmp_path)
    (tmp_path / "config.json").write_bytes((checkpoint.path / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        EmbeddedEngine.load(tmp_path)
    weights = load_file(checkpoint.path / "model.safetensors")
    save_file({name: weight.to(torch.float64) for name, weight in weights.items()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="F64"):
        EmbeddedEngine.load(tmp_path)


def test_an_unknown_backend_is_named():
    with pytest.raises(ValueError, match="'jax' given"):
        Backend.parse("jax")


@pytest.mark.parametrize(("temperature", "top_p"), [(1e-300, 1.0), (1e-46, 0.5), (1.0, 1e-300)])
def test_sampling_at_the_edge_of_floats_is_greedy(temperature: float, top_p: float) -> None:
    logprobs = np.log(np.array([0.2, 0.5, 0.3], dtype=np.float32))
    sampling = Sampling(max_tokens=1, temperature=temperature, top_p=top_p)
    rng = np.random.default_rng(0) if temperature >= GREEDY_BELOW else None
    assert choose_token(logprobs, sampling=sampling, rng=rng) == 1
