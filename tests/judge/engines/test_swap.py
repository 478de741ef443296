"""Replacing weights between turns: running turns finish with the old weights, later turns use only the new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tirjudge.engines.checkpoint import Qwen3Config, read_eos_token_ids, read_json, read_safetensors
from tirjudge.engines.embedded import Backend, EmbeddedEngine, Qwen3
from tirjudge.engines.tokenization import LocalTokenizer
from tirjudge.errors import CheckpointError, EngineUnavailable
from tirjudge.types import Sampling

# Greedy: a sampled token can depend on the last digits of the logits, which depend on what else is in the batch.
LONG = Sampling(max_tokens=60, temperature=0.0)
PROMPT = list(range(40, 80))

MakeEngine = Callable[..., EmbeddedEngine]
Said = tuple[tuple[int, ...], tuple[float, ...]]
"""Ids and their log-probabilities."""


@pytest.fixture
def other(checkpoint) -> dict[str, np.ndarray]:
    """Weights of the same shapes that generate other texts."""
    rng = np.random.default_rng(5)
    weights = read_safetensors(checkpoint.path / "model.safetensors")
    return {name: (array + rng.normal(0, 0.1, array.shape)).astype(np.float32) for name, array in weights.items()}


async def said(engine: EmbeddedEngine, *, session: str) -> Said:
    completion = await engine.generate(PROMPT, sampling=LONG, session=session)
    return completion.token_ids, completion.logprobs


def is_same(one: Said, other: Said) -> bool:
    """Whether two results are equal up to the last digits of the logprobs, which depend on cache hits."""
    return one[0] == other[0] and np.allclose(one[1], other[1], atol=1e-5)


def engine_of(checkpoint, weights, *, backend: str = "numpy") -> EmbeddedEngine:
    config = Qwen3Config.parse(read_json(checkpoint.path / "config.json"))
    return EmbeddedEngine(
        Qwen3(weights, config=config, backend=Backend.parse(backend)),
        tokenizer=LocalTokenizer.load(checkpoint.path),
        eos_token_ids=read_eos_token_ids(checkpoint.path),
    )


async def test_running_turns_end_with_old_weights_and_later_ones_use_new_weights(
    make_engine: MakeEngine, checkpoint, other
) -> None:
    engine, fresh = make_engine(max_batch=4), engine_of(checkpoint, other)
    try:
        old, new = await said(engine, session="alone"), await said(fresh, session="alone")
        assert old[0] != new[0]
        early = [asyncio.create_task(said(engine, session=f"early-{n}")) for n in range(4)]
        while engine.num_running < 4:  # noqa: ASYNC110
            await asyncio.sleep(0)
        swapping = asyncio.create_task(engine.swap(other, version=2))
        late = [asyncio.create_task(said(engine, session=f"late-{n}")) for n in range(3)]
        first = await asyncio.gather(*early)
        await swapping
        assert engine.version == 2
        assert [ids for ids, _ in first] == [old[0]] * 4
        for ids, logprobs in await asyncio.gather(*late):
            # Turns that arrived before the swap was requested may still have joined the old batch.
            assert ids in (old[0], new[0])
            assert is_same((ids, logprobs), old if ids == old[0] else new)
        assert (await said(engine, session="early-0"))[0] == new[0]
    finally:
        fresh.close()


async def test_the_cache_of_old_weights_is_not_reused(make_engine: MakeEngine, checkpoint, other) -> None:
    engine, fresh = make_engine(), engine_of(checkpoint, other)
    try:
        await said(engine, session="s")
        await engine.swap(other, version="two")
        again = await engine.generate(PROMPT, sampling=LONG, session="s")
        assert again.num_cached == 0
        new = await said(fresh, session="s")
        assert is_same((again.token_ids, again.logprobs), new)
    finally:
        fresh.close()


@pytest.mark.parametrize("backend", ["numpy", "torch"])
async def test_weights_in_training_are_copied(checkpoint, backend: str) -> None:
    engine = EmbeddedEngine.load(checkpoint.path, backend=backend)
    try:
        weights = {name: tensor.clone() for name, tensor in checkpoint.oracle.state_dict().items()}
        await engine.swap(weights, version=1)
        before = await said(engine, session="a")
        for tensor in weights.values():
            tensor.add_(1.0)
        assert is_same(await said(engine, session="b"), before)
    finally:
        engine.close()


async def test_weights_in_half_precision_are_accepted_from_torch(make_engine: MakeEngine, checkpoint) -> None:
    engine = make_engine()
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in checkpoint.oracle.state_dict().items()}
    await engine.swap(weights, version=1)
    assert np.array_equal(engine.model.embedding, weights["model.embed_tokens.weight"].float().numpy())


@pytest.mark.parametrize("broken", ["shape", "missing", "more", "nan"])
async def test_weights_of_a_different_model_are_rejected_and_the_old_ones_stay(
    make_engine: MakeEngine, other, broken: str
) -> None:
    engine = make_engine()
    before, name = await said(engine, session="a"), "model.layers.1.mlp.up_proj.weight"
    if broken == "shape":
        other[name] = other[name][:-1]
    elif broken == "missing":
        del other[name]
    elif broken == "more":
        other["model.layers.3.mlp.up_proj.weight"] = other[name]
    else:
        other[name][0, 0] = np.nan
    with pytest.raises(CheckpointError, match="up_proj"):
        await engine.swap(other, version=9)
    assert engine.version is None
    assert is_same(await said(engine, session="b"), before)


async def test_a_checkpoint_of_other_sizes_is_rejected(make_engine: MakeEngine, make_checkpoint) -> None:
    with pytest.raises(CheckpointError, match="sizes of this model differ"):
        await make_engine().reload(make_checkpoint(num_hidden_layers=2).path, version="x")


async def test_a_closed_engine_rejects_new_weights(checkpoint, other) -> None:
    engine = EmbeddedEngine.load(checkpoint.path)
    engine.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        await engine.swap(other, version=1)


async def test_many_swaps_under_load_lose_no_request(make_engine: MakeEngine, checkpoint, other) -> None:
    engine, own = make_engine(max_batch=3), read_safetensors(checkpoint.path / "model.safetensors")
    fresh = engine_of(checkpoint, other)
    try:
        either = {(await said(engine, session="x"))[0], (await said(fresh, session="x"))[0]}
    finally:
        fresh.close()
    asked = [asyncio.create_task(said(engine, session=str(n))) for n in range(24)]
    for number in range(1, 5):
        await engine.swap(other if number % 2 else own, version=number)
    assert {ids for ids, _ in await asyncio.gather(*asked)} <= either
    assert engine.version == 4


@pytest.mark.parametrize(
    ("file", "said"),
    [("config.json", "broken"), ("model.safetensors", "broken"), ("tokenizer.json", "tokenizer")],
)
def test_a_truncated_file_is_named_in_a_one_line_error(
    checkpoint, tokenizer: Tokenizer, tmp_path: Path, file: str, said: str
) -> None:
    for path in checkpoint.path.iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(content[: len(content) // 2] if path.name == file else content)
    with pytest.raises(CheckpointError, match=rf"^[^\n]*{file}: [^\n]*{said}[^\n]*$"):
        EmbeddedEngine.load(tmp_path)
