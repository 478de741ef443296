"""Training with the tokens that occur, and the complete table afterwards."""

import pickle
from dataclasses import replace
from itertools import islice
from random import Random

import pytest
import torch
from transformers import Qwen3ForCausalLM

from tests.training.test_sft import PROFILE, SMALL
from tirjudge.chat_template import CHATML
from tirjudge_training.bundled.build import make_tokenizer
from tirjudge_training.bundled.sft import (
    StepReport,
    batch_loss,
    draw_mixed,
    encode_example,
    model_config,
    one_batch,
    render_example,
    train_sft,
)
from tirjudge_training.bundled.tokenizer import END_OF_TURN
from tirjudge_training.bundled.vocabulary import OTHER, TrainedVocabulary, frequent_ids, mean_of_pieces
from tirjudge_training.synthetic.examples import segments

NUM_IDS = SMALL.vocab_size + 500
"""Rows of the complete table. A checkpoint may have more rows than its tokenizer has tokens."""


@pytest.fixture(scope="module")
def examples():
    return list(islice(draw_mixed(rng=Random(5), mode_shares=SMALL.mode_shares, mixture=SMALL.mixture), 40))


@pytest.fixture(scope="module")
def complete() -> TrainedVocabulary:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tirjudge_training.bundled.build.TOKENIZER_EXAMPLES", 300)
        return TrainedVocabulary(tokenizer_json=make_tokenizer(SMALL, PROFILE).to_str(), num_ids=NUM_IDS)


@pytest.fixture(scope="module")
def part(complete: TrainedVocabulary, examples) -> TrainedVocabulary:
    texts = [(render_example(one, profile=PROFILE, chat=complete.chat), False) for one in examples]
    texts += [(each.text, each.by_model) for one in examples for each in segments(one)]
    kept = frequent_ids([*texts, (END_OF_TURN, True)], tokenizer=complete.tokenizer, at_least=3)
    return replace(complete, kept=kept)


def model_of(vocabulary: TrainedVocabulary) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(model_config(SMALL, vocabulary, context_tokens=2048, eos=END_OF_TURN)).eval()


@pytest.mark.slow
def test_the_loss_counts_all_tokens_of_the_complete_vocabulary(
    complete: TrainedVocabulary, part: TrainedVocabulary, examples
) -> None:
    small, large = model_of(part), model_of(complete)
    with torch.no_grad():
        small.model.embed_tokens.weight *= 20
        small.model.embed_tokens.weight[OTHER] = 0.0
        layers = {
            name: one for name, one in small.state_dict().items() if "embed" not in name and "lm_head" not in name
        }
        large.load_state_dict(layers, strict=False)
        large.model.embed_tokens.weight.copy_(part.complete(small.model.embed_tokens.weight))
        losses = []
        for model, vocabulary in ((small, part), (large, complete)):
            rows = [encode_example(one, vocabulary=vocabulary, profile=PROFILE, whole=True) for one in examples]
            losses.append([batch_loss(model, one_batch([one]), vocabulary=vocabulary)[0].item() for one in rows[:8]])
            assert any(OTHER in one.ids for one in rows[:8]) == (vocabulary is part)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_rare_tokens_have_no_row_and_tokens_that_the_model_writes_have_one(part: TrainedVocabulary, examples) -> None:
    assert part.kept is not None
    assert 0 < part.num_others == NUM_IDS - len(part.kept)
    read = [row for one in examples for row in part.encode(render_example(one, profile=PROFILE, chat=part.chat))]
    written = [row for one in examples for each in segments(one) if each.by_model for row in part.encode(each.text)]
    assert OTHER in read
    assert OTHER not in written
    assert max([*read, *written]) < part.num_rows == len(part.kept) + 1
    with pytest.raises(KeyError):
        part.row("<|endoftext|>")


@pytest.mark.slow
def test_the_row_of_other_tokens_stays_zero_in_training(part: TrainedVocabulary) -> None:
    recipe = replace(SMALL, num_steps=2, num_workers=1)
    reports: list[StepReport] = []
    model = train_sft(recipe=recipe, profile=PROFILE, vocabulary=part, eos=END_OF_TURN, on_step=reports.append)
    table = model.model.embed_tokens.weight
    assert len(reports) == recipe.num_steps
    assert table.shape[0] == part.num_rows
    assert not table[OTHER].any()
    assert table[OTHER + 1 :].abs().sum(dim=1).all()
    whole = part.complete(table)
    assert whole.shape[0] == NUM_IDS
    assert torch.equal(whole[part.kept[5]], table[OTHER + 6])


@pytest.mark.slow
def test_embeddings_start_as_the_mean_over_the_tokens_of_another_tokenizer(
    complete: TrainedVocabulary, part: TrainedVocabulary
) -> None:
    table = torch.randn(NUM_IDS, 4)
    made = mean_of_pieces(part, source=complete.tokenizer, table=table)
    assert part.kept is not None
    same = [
        torch.allclose(made[row], table[token_id])
        for row, token_id in enumerate(part.kept, start=OTHER + 1)
        if complete.tokenizer.decode([token_id], skip_special_tokens=False).isascii()
    ]
    assert sum(same) > 0.95 * len(same)
    assert not made[OTHER].any()


@pytest.mark.slow
def test_a_template_is_part_of_the_vocabulary(complete: TrainedVocabulary) -> None:
    assert complete.chat.source == CHATML
    other = replace(complete, template="{{ messages[0].content }}!")
    assert other.chat.render_prompt("?") == "?!"


def test_a_vocabulary_can_be_sent_to_another_process_after_it_was_used(part: TrainedVocabulary) -> None:
    prompt = part.chat.render_prompt("Hi")
    sent = pickle.loads(pickle.dumps(part))
    assert sent == part
    assert sent.encode(sent.chat.render_prompt("Hi")) == part.encode(prompt)
