"""Supervised training of the bundled judge: masks, batches, the forward pass, and learning."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
import torch.distributed as dist
from transformers import Qwen3ForCausalLM
from typer.testing import CliRunner

from tirjudge.types import Mode
from tirjudge_training.bundled.build import bundled_profile, make_tokenizer
from tirjudge_training.bundled.qwen3 import hidden_states
from tirjudge_training.bundled.sft import (
    BundledRecipe,
    PromptKind,
    SharedMuon,
    StepReport,
    batch_loss,
    batches_for_steps,
    deal,
    draw_mixed,
    encode_example,
    full_batches,
    learning_rate,
    make_shard,
    model_config,
    one_batch,
    render_example,
    train_sft,
)
from tirjudge_training.bundled.tokenizer import END_OF_TURN, TAGS
from tirjudge_training.bundled.vocabulary import TrainedVocabulary
from tirjudge_training.cli import app
from tirjudge_training.synthetic.examples import segments

SMALL = BundledRecipe(
    num_steps=12,
    examples_per_step=16,
    examples_per_shard=96,
    warmup_steps=3,
    vocab_size=1024,
    hidden_size=32,
    intermediate_size=64,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
)
PROFILE = bundled_profile()


@pytest.fixture(scope="module")
def vocabulary() -> TrainedVocabulary:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tirjudge_training.bundled.build.TOKENIZER_EXAMPLES", 300)
        tokenizer = make_tokenizer(SMALL, PROFILE)
        return TrainedVocabulary(tokenizer_json=tokenizer.to_str(), num_ids=SMALL.vocab_size)


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return vocabulary.tokenizer


@pytest.fixture(scope="module")
def model(vocabulary):
    torch.manual_seed(0)
    return Qwen3ForCausalLM(model_config(SMALL, vocabulary, context_tokens=512, eos=END_OF_TURN)).eval()


def drawn(num: int):
    return list(islice(draw_mixed(rng=Random(3), mode_shares=SMALL.mode_shares, mixture=SMALL.mixture), num))


@pytest.mark.slow
def test_fences_and_tags_are_single_tokens_and_encoding_is_lossless(tokenizer) -> None:
    for tag in (*TAGS, END_OF_TURN):
        assert len(tokenizer.encode(tag).ids) == 1, tag
    text = "Ünïcode 1234 \t\n 漢字 🎉 ```python <preference>"
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.get_vocab_size() <= SMALL.vocab_size


def test_loss_is_computed_only_on_text_of_the_model(tokenizer, vocabulary) -> None:
    for example in drawn(60):
        row = encode_example(example, vocabulary=vocabulary, profile=PROFILE, whole=True)
        written = [tokenizer.decode(list(row.ids[a:b]), skip_special_tokens=False) for a, b in row.loss_from]
        assert written == [part.text for part in segments(example) if part.by_model]
        prompt = tokenizer.decode(list(row.ids[: row.loss_from[0][0]]), skip_special_tokens=False)
        assert prompt == render_example(example, profile=PROFILE, chat=vocabulary.chat)


def test_batches_contain_every_row_once_with_shifted_targets(vocabulary) -> None:
    rows = make_shard(SMALL, PROFILE, vocabulary, 0)
    batches, left = full_batches(rows, batch_tokens=2048)
    rebuilt = [row.ids for row in left]
    assert 0 < len(left) < len(rows) / 2
    for batch in batches:
        assert len(batch.ids) == max(1, 2048 // batch.ids.shape[1])
        for ids, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
            places = [i for i, target in enumerate(targets) if target != -100]
            assert all(targets[i] == ids[i + 1] for i in places if i + 1 < len(ids))
            rebuilt.append((*batch.shared, *ids)[: len(batch.shared) + places[-1] + 2])
    assert sorted(rebuilt) == sorted(row.ids for row in rows)


@pytest.mark.slow
def test_leftover_rows_are_used_with_the_next_shard(vocabulary) -> None:
    recipe, shards = replace(SMALL, num_workers=1, batch_tokens=2048), range(4)
    num_steps, num_rows, left = 0, 0, []
    for shard in shards:
        rows = make_shard(recipe, PROFILE, vocabulary, shard)
        batches, left = full_batches(left + rows, batch_tokens=2048)
        num_steps += min(recipe.examples_per_shard // recipe.examples_per_step, len(batches))
        num_rows += len(rows)
    steps = islice(batches_for_steps(recipe, rank=0, profile=PROFILE, vocabulary=vocabulary), num_steps)
    assert sum(len(batch.ids) for _, step in steps for batch in step) == num_rows - len(left)
    assert len(left) < num_rows / 8


@pytest.mark.slow
def test_steps_contain_every_batch_once_and_have_similar_costs(vocabulary) -> None:
    rows = [row for shard in range(4) for row in make_shard(SMALL, PROFILE, vocabulary, shard)]
    batches, _ = full_batches(rows, batch_tokens=1024)
    steps = deal(batches, num_steps=len(batches) // 5)
    assert sorted(id(batch) for step in steps for batch in step) == sorted(map(id, batches))
    costs = [sum(batch.cost for batch in step) for step in steps]
    assert costs == sorted(costs, reverse=True)
    assert max(costs) - min(costs) <= max(batch.cost for batch in batches)


def test_shared_prefix_does_not_change_the_states(model, vocabulary) -> None:
    pairs = PromptKind(mode=Mode.PAIRWISE, tools=True, num_responses=2)
    rows = [row for row in make_shard(SMALL, PROFILE, vocabulary, 0) if row.kind == pairs][:4]
    batch = one_batch(rows)
    assert len(batch.shared) > 50
    places = torch.arange(batch.ids.numel())[::3]
    with torch.no_grad():
        states = hidden_states(model, shared=torch.tensor(batch.shared), ids=batch.ids, places=places)
        whole = torch.cat([torch.tensor([batch.shared] * len(rows)), batch.ids], dim=1)
        oracle = model.model(input_ids=whole).last_hidden_state
        nothing_shared = hidden_states(
            model, shared=torch.tensor([], dtype=torch.long), ids=whole, places=torch.arange(whole.numel())
        )
    torch.testing.assert_close(states, oracle[:, len(batch.shared) :].flatten(0, 1)[places], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(nothing_shared, oracle.flatten(0, 1), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_loss_is_the_cross_entropy_of_model_tokens(model, vocabulary) -> None:
    row = encode_example(drawn(1)[0], vocabulary=vocabulary, profile=PROFILE, whole=True)
    batch = one_batch([row])
    with torch.no_grad():
        loss, num_targets = batch_loss(model, batch, vocabulary=vocabulary)
        logprobs = model(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
    expected = -sum(logprobs[i - 1, row.ids[i]] for a, b in row.loss_from for i in range(a, b))
    assert num_targets == sum(b - a for a, b in row.loss_from)
    torch.testing.assert_close(loss, expected, atol=1e-2, rtol=1e-4)


def test_learning_rate_rises_stays_and_falls_to_zero() -> None:
    recipe = replace(SMALL, num_steps=100, warmup_steps=10, decay_share=0.5)
    assert [learning_rate(step, recipe) for step in (0, 9, 30, 50, 75, 100)] == pytest.approx(
        [0.1, 1.0, 1.0, 1.0, 0.5, 0.0]
    )


@pytest.mark.slow
def test_two_workers_learn_and_losses_are_reproducible(vocabulary) -> None:
    def losses() -> list[float]:
        reports: list[StepReport] = []
        train_sft(recipe=SMALL, profile=PROFILE, vocabulary=vocabulary, eos=END_OF_TURN, on_step=reports.append)
        return [report.loss for report in reports]

    first = losses()
    assert len(first) == SMALL.num_steps
    assert first[-1] < 0.9 * first[0]
    assert losses() == pytest.approx(first, rel=1e-3)


def test_a_resumed_training_has_the_learning_rate_of_each_step(
    vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(SMALL, num_workers=1)
    state, taken = tmp_path / "state.pt", SharedMuon.step
    rates: list[float] = []

    def noted(self: SharedMuon, closure: None = None) -> None:
        rates.append(self.param_groups[0]["lr"])
        taken(self, closure)

    def stopped(report: StepReport) -> None:
        if report.step == 9:
            raise KeyboardInterrupt

    def trained(on_step: Callable[[StepReport], None]) -> None:
        train_sft(recipe=recipe, profile=PROFILE, vocabulary=vocabulary, eos=END_OF_TURN, state=state, on_step=on_step)

    monkeypatch.setattr(SharedMuon, "step", noted)
    with pytest.raises(KeyboardInterrupt):
        trained(stopped)
    rates.clear()
    steps: list[int] = []
    trained(lambda report: steps.append(report.step))
    assert 0 < steps[0] <= 9
    assert rates == [recipe.matrix_lr * learning_rate(step, recipe) for step in steps]
    assert len(set(rates)) == len(rates)


def test_shared_muon_takes_the_steps_of_torch_up_to_its_rounding(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    shapes = ((48, 16), (16, 48), (16, 16))
    ours, theirs = ([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes] for _ in range(2))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        optimizers = [
            kind(matrices, lr=0.02, weight_decay=0.02, momentum=0.95)
            for kind, matrices in ((SharedMuon, ours), (torch.optim.Muon, theirs))
        ]
        for _ in range(3):
            for one, other in zip(ours, theirs, strict=True):
                one.grad = torch.randn(one.shape, generator=generator)
                other.grad = one.grad.clone()
            for optimizer in optimizers:
                optimizer.step()
    finally:
        dist.destroy_process_group()
    for one, other in zip(ours, theirs, strict=True):
        # The products of torch are in bfloat16, with three decimal digits.
        assert float((one - other).detach().norm() / other.detach().norm()) < 0.03


def test_all_stages_without_decay_are_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bundled", "--no-decay", "--out", str(tmp_path / "tiny")])
    assert result.exit_code == 2
    assert "given without --from" in result.output
