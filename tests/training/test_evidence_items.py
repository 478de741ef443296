"""Tasks of evidence in training: prompts as in serving, outputs as in the sandbox, and items with their stores."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from benchmarks.evidence_checkpoint import function_lines, recipe_of, request_of
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.formats.blocks import bindings
from tirjudge.judge import Judge
from tirjudge.model import bundled_checkpoint
from tirjudge.profile import load_profile
from tirjudge.tools.functions import CallAccount, Offer
from tirjudge.tools.python import python_tools
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.tasks.generating import FUNCTIONS, draw_tasks
from tirjudge_evidence.tasks.programs import END_OF_LOOKUP
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import bundled_profile, make_tokenizer
from tirjudge_training.bundled.sft import encode_example, make_shard, render_example
from tirjudge_training.bundled.vocabulary import TrainedVocabulary
from tirjudge_training.checkpoints import write_checkpoint_file
from tirjudge_training.items import read_items, write_items
from tirjudge_training.synthetic.examples import WITHOUT_EVIDENCE, Mixture, draw_examples, segments
from tirjudge_training.synthetic.items import EVIDENCE, generate_items

MIXTURE = Mixture(evidence=1.0, numeric=0.0, conduct=0.0, toolless=0.0, ties=0.0)

RECIPE = recipe_of(1, seed=1, functions=(), parent=bundled_checkpoint(), plan_alone=0.6, whole=0.2)


@pytest.fixture(scope="module")
def vocabulary() -> TrainedVocabulary:
    tokenizer = make_tokenizer(RECIPE, bundled_profile())
    return TrainedVocabulary(tokenizer_json=tokenizer.to_str(), num_ids=RECIPE.vocab_size)


@pytest.mark.slow
async def test_prompts_of_training_are_those_of_serving(
    pool: SandboxPool, tmp_path: Path, vocabulary: TrainedVocabulary
) -> None:
    checkpoint = tmp_path / "judge"
    shutil.copytree(bundled_checkpoint(), checkpoint)
    write_checkpoint_file(checkpoint, profile=bundled_profile().model_copy(update={"shows_functions": True}))
    lines = await function_lines()
    engine = EmbeddedEngine.load(checkpoint)
    try:
        async with open_stores(EvidenceSettings()) as stores:
            tools = python_tools(pool, functions=functions_of(stores))
            judge = Judge(engine=engine, tools=tools, profile=load_profile(checkpoint))
            compared = {True: 0, False: 0}
            for example in islice(draw_examples(Mode.PAIRWISE, rng=Random(5), held_out=True, mixture=MIXTURE), 40):
                shown = render_example(example, profile=bundled_profile(), chat=vocabulary.chat, functions=lines)
                given = example.presents_functions
                request = JudgeRequest.model_validate(
                    {
                        "mode": example.mode,
                        "prompt": example.prompt,
                        "responses": list(example.responses),
                        "functions": list(FUNCTIONS) if given else [],
                        "evidence": list(example.evidence) or None,
                    }
                )
                assert await judge.encode(request, order=(0, 1)) == vocabulary.encode(shown)
                compared[given] += 1
    finally:
        engine.close()
    assert min(compared.values()) > 0


@pytest.mark.slow  # programs with queries, each query in a process of its own
@pytest.mark.parametrize("mode", [Mode.PAIRWISE, Mode.POINTWISE])
async def test_the_recorded_output_is_that_of_the_sandbox(mode: Mode, pool: SandboxPool) -> None:
    async with open_stores(EvidenceSettings()) as stores:
        functions = functions_of(stores)
        drawn = draw_examples(mode, rng=Random(6), held_out=False, mixture=MIXTURE)
        for example in islice((one for one in drawn if one.evidence), 10):
            request = JudgeRequest.model_validate(
                {"mode": mode, "prompt": "", "responses": list(example.responses), "evidence": list(example.evidence)}
            )
            offer = Offer(functions=functions, account=CallAccount(), request=request)
            bound = bindings(mode, prompt=example.prompt, responses=example.responses)
            result = await pool.run(example.code or "", bindings=bound, offer=offer)
            assert segments(example)[1].text == f"\n{result.stdout.strip()}\n```\n", result.error


@pytest.mark.slow
def test_examples_without_evidence_have_a_random_verdict() -> None:
    drawn = draw_examples(Mode.PAIRWISE, rng=Random(7), held_out=False, mixture=MIXTURE)
    without = [one for one in islice(drawn, 1500) if not one.evidence]
    assert 90 < len(without) < 210
    right = sum(one.met[one.label] for one in without) / len(without)
    assert abs(right - 0.5) < 0.15
    assert not any(one.presents_functions or one.code for one in without)


def test_rows_end_after_the_plan_or_the_lookup(vocabulary: TrainedVocabulary) -> None:
    drawn = draw_examples(Mode.PAIRWISE, rng=Random(8), held_out=False, mixture=MIXTURE)
    example = next(one for one in drawn if one.evidence)
    short, whole = (
        encode_example(example, vocabulary=vocabulary, profile=bundled_profile(), whole=whole)
        for whole in (False, True)
    )
    assert vocabulary.tokenizer.decode(list(short.ids)).endswith(END_OF_LOOKUP)
    assert whole.ids[: len(short.ids)] == short.ids
    assert [len(short.loss_from), len(whole.loss_from)] == [1, 2]
    plan = encode_example(example, vocabulary=vocabulary, profile=bundled_profile(), whole=False, plan_alone=True)
    [(start, end)] = plan.loss_from
    assert vocabulary.tokenizer.decode(list(plan.ids[start:end])) == f"{example.plan}\n```python\n"
    assert plan.ids == short.ids[:end]


@pytest.mark.slow
def test_a_recipe_has_its_shares_of_rows(vocabulary: TrainedVocabulary) -> None:
    recipe = replace(RECIPE, mode_shares=(0.0, 1.0, 0.0), whole=0.25, plan_alone=0.5, examples_per_shard=400)
    rows = make_shard(recipe, bundled_profile(), vocabulary, 0)
    texts = [vocabulary.tokenizer.decode(list(row.ids)) for row in rows]
    ends = {"lookup": END_OF_LOOKUP, "plan": "```python\n"}
    shares = {name: sum(text.endswith(end) for text in texts) / 400 for name, end in ends.items()}
    shares["whole"] = sum(len(row.loss_from) == 2 for row in rows) / 400
    given = 1 - WITHOUT_EVIDENCE
    expected = {"lookup": 0.25 * given, "plan": 0.5 * given, "whole": 0.25 * given}
    assert {name: abs(share - expected[name]) < 0.07 for name, share in shares.items()} == dict.fromkeys(shares, True)


def test_generated_items_carry_their_stores_through_files(tmp_path: Path) -> None:
    mixture = Mixture(evidence=0.5, numeric=0.0, conduct=0.0)
    items = generate_items(Mode.POINTWISE, count=6, seed=1, mixture=mixture)
    given = [item for item in items if item.task == EVIDENCE]
    assert len(given) == 3
    for item in given:
        request = item.request(seed=0, temperature=1.0)
        assert request.evidence == list(item.evidence)
        assert request.functions == list(FUNCTIONS)
    assert all(item.request(seed=0, temperature=1.0).evidence is None for item in items if item.task != EVIDENCE)
    for name in ("items.jsonl", "items.parquet"):
        write_items(items, tmp_path / name)
        assert read_items(tmp_path / name) == items
    assert not any(item.evidence for item in generate_items(Mode.LISTWISE, count=4, seed=1, mixture=mixture))


def test_a_request_without_evidence_names_no_function() -> None:
    task = next(draw_tasks(seed=1, held_out=True))
    for given in (True, False):
        request = request_of(task, with_evidence=given)
        assert bool(request.evidence) is bool(request.functions) is given
