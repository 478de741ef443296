"""Builds the bundled judge from scratch: data, tokenizer, training, evaluation, checkpoint folder, model card."""

from __future__ import annotations

import asyncio
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from tirjudge.chat_template import CHATML, ChatTemplate
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.errors import CheckpointError
from tirjudge.formats import FIRST_FORMAT, format_named
from tirjudge.judge import Judge
from tirjudge.profile import Profile, load_profile, read_checkpoint_file
from tirjudge.tools.python import PythonTool
from tirjudge.types import Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.card import write_card
from tirjudge_training.bundled.checked import CheckedShares, drawn_example, empty_examples, frozen_texts, rendered
from tirjudge_training.bundled.evaluate import TEST_SETS, Score, measure
from tirjudge_training.bundled.sft import BundledRecipe, StepReport, draw_mixed, render_example, train_sft
from tirjudge_training.bundled.tokenizer import (
    BLANK,
    END_OF_TURN,
    train_copying_tokenizer,
    train_tokenizer,
    with_template,
    with_whole,
)
from tirjudge_training.bundled.vocabulary import TrainedVocabulary
from tirjudge_training.checkpoints import replacing, save_tokenizer, weights_sha256, write_checkpoint_file
from tirjudge_training.synthetic.examples import segments

SECOND_FORMAT = "tirjudge/2"
"""Format of the second generation."""

TOKENIZER_EXAMPLES = 6000
PROMPTS_OF_TOKENIZER = 40_000
"""Number of prompts that the tokenizer of the second generation is trained on. A prompt is short."""

EVALUATION_SEED = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBundle:
    """Size, cost and losses of one training stage."""

    num_parameters: int
    num_examples: int
    num_tokens: int
    """Number of tokens computed in training, padding included."""
    elapsed_s: float
    """Duration of the training in seconds."""
    losses: tuple[float, ...]
    """Mean loss of each step, in nats per token."""
    machine: str
    """Name of the GPU, or processor architecture and number of cores, and version of torch."""


def bundled_profile() -> Profile:
    """Return the profile of the bundled judge.

    In prompts, long responses are truncated to little more than their ends. Long lists are judged in groups, because they
    are rare in training.
    """
    return Profile(
        name="tirjudge-tiny",
        context_tokens=3072,
        rollout_tokens=640,
        observation_tokens=320,
        prompt_chars=1200,
        response_chars=64,
        all_responses_chars=416,
        group_size=8,
        format=FIRST_FORMAT,
        format_sha256=format_named(FIRST_FORMAT).sha256,
    )


def second_profile() -> Profile:
    """Return the profile of the second generation: prompts show nothing of a response, and no functions."""
    return bundled_profile().model_copy(
        update={
            "prompt_chars": 2000,
            "response_chars": 0,
            "shows_functions": False,
            "format": SECOND_FORMAT,
            "format_sha256": format_named(SECOND_FORMAT).sha256,
        }
    )


def second_generation(*, seed: int = 1) -> BundledRecipe:
    """Return the recipe of the first stage of the second generation. Its learning rate stays constant: the last stage has
    the decay. A stage takes about an hour on two cores."""
    return BundledRecipe(
        seed=seed,
        num_steps=2500,
        examples_per_step=96,
        whole=0.4,
        mode_shares=(0.45, 0.35, 0.2),
        decay_share=0.0,
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=704,
        num_layers=6,
        head_dim=64,
        checked=CheckedShares(),
    )


def continuing(recipe: BundledRecipe, parent: Path) -> BundledRecipe:
    """Return the recipe with the shape and the generation of a checkpoint, from whose weights it starts.

    Raises:
        CheckpointError: the folder has no valid judge.json.
        OSError, ValueError: it has no valid config.json.
    """
    config = json.loads((parent / "config.json").read_text(encoding="utf-8"))
    names = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
    }
    shape = {name: config[names.get(name, name)] for name in _SHAPE}
    is_second = load_profile(parent).format == SECOND_FORMAT
    checked = (recipe.checked or CheckedShares()) if is_second else None
    return replace(recipe, **shape, checked=checked, parent=str(parent))


_SHAPE = ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim")


def make_tokenizer(recipe: BundledRecipe, profile: Profile) -> Tokenizer:
    """Return the parent's tokenizer, or train one on prompts and judgments drawn with the recipe's data settings.

    Texts of the second generation that the parent's tokenizer does not have as one token each become tokens.
    """
    if recipe.parent is not None:
        tokenizer = Tokenizer.from_file(str(Path(recipe.parent, "tokenizer.json")))
        return tokenizer if recipe.checked is None else with_whole(tokenizer, frozen_texts())[0]
    if recipe.checked is not None:
        rng = Random(f"{recipe.seed}/tokenizer")
        examples = (drawn_example(rng, mode=Mode.PAIRWISE, shares=recipe.checked) for _ in range(PROMPTS_OF_TOKENIZER))
        parts = (text for each in examples for text in (each.prompt, ",\n".join(each.checks)))
        return train_copying_tokenizer(parts, vocab_size=recipe.vocab_size, whole=frozen_texts())
    drawn = draw_mixed(rng=Random(f"{recipe.seed}/tokenizer"), mode_shares=recipe.mode_shares, mixture=recipe.mixture)
    chat = ChatTemplate(CHATML)
    texts: list[str] = []
    for example in islice(drawn, TOKENIZER_EXAMPLES):
        texts.append(render_example(example, profile=profile, chat=chat))
        texts += [segment.text for segment in segments(example)]
    return train_tokenizer(texts, vocab_size=recipe.vocab_size)


def similar_embeddings(tokenizer: Tokenizer, *, num_rows: int, size: int, seed: int) -> torch.Tensor:
    """Return initial embeddings (num_rows, size) in which tokens that differ only in case and in the blank before
    them are similar.

    A program has a word of the prompt without the blank before it, so the judge copies it as another token. With similar
    embeddings it finds this token from the start.
    """
    vocabulary = tokenizer.get_vocab()
    generator = torch.Generator().manual_seed(seed)
    table = 0.02 * torch.randn(num_rows, size, generator=generator)
    same: dict[str, list[int]] = {}
    for token, token_id in sorted(vocabulary.items()):
        same.setdefault(token.removeprefix(BLANK).lower(), []).append(token_id)
    for ids in same.values():
        if len(ids) > 1:
            table[ids] = 0.8 * 0.02 * torch.randn(size, generator=generator) + 0.6 * table[ids]
    return table


def mode_tokens(tokenizer: Tokenizer, profile: Profile) -> tuple[tuple[int, int], ...]:
    """Return the ids of the tokens in which the prompts of a single response and of a pair differ, by place.

    Prompts without tools ask for no checks, so their tokens are not among them.

    Raises:
        ValueError: the two prompts do not have the same number of tokens.
    """
    chat = ChatTemplate(CHATML)
    single, pair = (
        tokenizer.encode(rendered(example, profile=profile, chat=chat), add_special_tokens=False).ids
        for example in empty_examples()
    )
    return tuple(dict.fromkeys((one, two) for one, two in zip(single, pair, strict=True) if one != two))


MODE_DISTANCE = 0.5
"""Distance between the embeddings of two tokens that say the mode. Embeddings of a trained judge have a length of about 4."""


def weights_of_parent(parent: Path, *, modes: Sequence[tuple[int, int]], seed: int) -> dict[str, torch.Tensor]:
    """Return a checkpoint's weights, with random embeddings near the mean of all tokens for its new tokens of whole texts.

    The prompts of a single response and of a pair ask for the same checks. So the tokens that say the mode get embeddings
    near each other, at most `MODE_DISTANCE` apart: the judge still sees the mode, but it seldom decides what is checked.

    Args:
        parent: the checkpoint folder.
        modes: pairs of ids, `mode_tokens`.
        seed: seed of the random embeddings.
    """
    tokenizer = Tokenizer.from_file(str(parent / "tokenizer.json"))
    ids = with_whole(tokenizer, frozen_texts())[1]
    weights = load_file(parent / "model.safetensors")
    table = weights[EMBEDDING].float()
    if ids:
        noise = 0.5 * torch.randn(len(ids), table.shape[1], generator=torch.Generator().manual_seed(seed))
        table[ids] = table.mean(dim=0) + table.std(dim=0) * noise
    for one, two in modes:
        middle, apart = (table[one] + table[two]) / 2, table[one] - table[two]
        apart *= min(1.0, MODE_DISTANCE / float(apart.norm())) / 2
        table[one], table[two] = middle + apart, middle - apart
    return weights | {EMBEDDING: table}


EMBEDDING = "model.embed_tokens.weight"
"""Name of the embedding among the weights."""


def train_bundled(
    recipe: BundledRecipe, *, out: Path, state: Path | None = None, on_step: Callable[[StepReport], None]
) -> TrainedBundle:
    """Train a checkpoint and write it to the folder `out`, which is replaced atomically when training has ended.

    Args:
        recipe: All settings, seed included.
        out: Checkpoint folder: model.safetensors (bfloat16), the tokenizer, config.json, judge.json and training.json.
        state: Folder for the state of the training. If it has one, the training goes on from it. None: no state is saved.
        on_step: Called with a report after each step.

    Returns:
        Size, cost and losses of the training.

    Raises:
        CheckpointError: `state` belongs to a training with other settings, or the folder cannot be written.
    """
    profile = bundled_profile() if recipe.checked is None else second_profile()
    if recipe.functions:
        profile = profile.model_copy(update={"shows_functions": True})
    tokenizer = _kept_tokenizer(recipe, profile, state=state)
    modes = () if recipe.checked is None or recipe.parent is None else mode_tokens(tokenizer, profile)
    held = tuple(sorted({token_id for pair in modes for token_id in pair}))
    vocabulary = TrainedVocabulary(tokenizer_json=tokenizer.to_str(), num_ids=recipe.vocab_size, held=held)
    reports = _saved_reports(state)

    def reported(report: StepReport) -> None:
        reports[report.step] = report
        if state is not None:
            with (state / _REPORTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(report)) + "\n")
        on_step(report)

    start = None
    if recipe.checked is not None and recipe.parent is None:
        table = similar_embeddings(tokenizer, num_rows=recipe.vocab_size, size=recipe.hidden_size, seed=recipe.seed)
        start = {EMBEDDING: table}
    elif recipe.checked is not None:
        start = weights_of_parent(Path(str(recipe.parent)), modes=modes, seed=recipe.seed)
    model = train_sft(
        recipe=recipe,
        profile=profile,
        vocabulary=vocabulary,
        eos=END_OF_TURN,
        start=start,
        state=None if state is None else state / _STATE,
        on_step=reported,
    )
    trained = TrainedBundle(
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_examples=recipe.num_steps * recipe.examples_per_step,
        num_tokens=sum(report.num_tokens for report in reports.values()),
        elapsed_s=reports[max(reports)].elapsed_s,
        losses=tuple(round(reports[step].loss, 5) for step in sorted(reports)),
        machine=f"{_machine(model, recipe)}, torch {torch.__version__}",
    )
    save_checkpoint(model, tokenizer=tokenizer, profile=profile, recipe=recipe, trained=trained, out=out)
    return trained


def _machine(model: Qwen3ForCausalLM, recipe: BundledRecipe) -> str:
    if model.model.embed_tokens.weight.is_cuda:
        return torch.cuda.get_device_name()
    return f"{platform.machine()}, {torch.get_num_threads() * recipe.num_workers} cores"


_RECIPE, _TOKENIZER, _STATE, _REPORTS = "recipe.json", "tokenizer.json", "state.pt", "steps.jsonl"
"""Files of a training that can be resumed."""


def _kept_tokenizer(recipe: BundledRecipe, profile: Profile, *, state: Path | None) -> Tokenizer:
    """Return the tokenizer of a training. If the training can be resumed, the tokenizer and the recipe are kept in the folder
    `state`.

    Raises:
        CheckpointError: the folder belongs to a training with other settings.
    """
    if state is None:
        return make_tokenizer(recipe, profile)
    settings = json.dumps(asdict(recipe), indent=1) + "\n"
    state.mkdir(parents=True, exist_ok=True)
    kept = state / _RECIPE
    if kept.exists() and kept.read_text(encoding="utf-8") != settings:
        raise CheckpointError(
            f"{state} has the state of a training with other settings, in {_RECIPE}; "
            "repeat the command with those settings, or delete the folder to start from the beginning"
        )
    if not (state / _TOKENIZER).exists():
        make_tokenizer(recipe, profile).save(str(state / _TOKENIZER))
        kept.write_text(settings, encoding="utf-8")
    return Tokenizer.from_file(str(state / _TOKENIZER))


def _saved_reports(state: Path | None) -> dict[int, StepReport]:
    """Return the reports of the earlier runs of a training by step, those of repeated steps once."""
    path = None if state is None else state / _REPORTS
    if path is None or not path.exists():
        return {}
    reports = (StepReport(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
    return {report.step: report for report in reports}


def save_checkpoint(
    model: Qwen3ForCausalLM,
    *,
    tokenizer: Tokenizer,
    profile: Profile,
    recipe: BundledRecipe,
    trained: TrainedBundle,
    out: Path,
) -> None:
    """Write the checkpoint folder atomically: a reader never finds an incomplete one.

    Raises:
        CheckpointError: the disk is full, or the folder cannot be written.
    """
    with replacing(out) as folder:
        torch.nn.Module.to(model, torch.bfloat16)
        model.save_pretrained(folder)
        save_tokenizer(with_template(tokenizer), folder)
        write_checkpoint_file(folder, profile=profile)
        stages = [stage_record(recipe, trained)]
        if recipe.parent is not None:
            stages = json.loads(Path(recipe.parent, "training.json").read_text(encoding="utf-8"))["stages"] + stages
        (folder / "training.json").write_text(json.dumps({"stages": stages}, indent=1) + "\n", encoding="utf-8")


def renew_functions(checkpoint: Path) -> None:
    """Give the programs of a checkpoint the current text of their functions. Each text is one token, so the weights stay.

    Raises:
        CheckpointError: the checkpoint cannot be loaded, or it lacks a token.
    """
    file = read_checkpoint_file(checkpoint)
    tokenizer, texts = Tokenizer.from_file(str(checkpoint / "tokenizer.json")), frozen_texts()
    if not any(tokenizer.token_to_id(text) for text in texts):
        raise CheckpointError(f"{checkpoint}: its programs have no functions as tokens, as those of the bundled judge")
    tokenizer, added = with_whole(tokenizer, texts)
    if added:
        raise CheckpointError(
            f"{checkpoint}: {len(added)} texts of programs are not among its tokens; train it further, "
            f"with tirjudge train bundled --from {checkpoint}"
        )
    save_tokenizer(with_template(tokenizer), checkpoint)
    write_checkpoint_file(checkpoint, profile=file.profile, lineage=file.lineage, metrics=file.metrics)


def stage_record(recipe: BundledRecipe, trained: TrainedBundle) -> dict[str, Any]:
    """Return the entry of training.json for one stage. The parent is identified by the hash of its weights."""
    parent = None if recipe.parent is None else weights_sha256(Path(recipe.parent))
    last = replace(trained, losses=trained.losses[-1:])
    return {"recipe": asdict(replace(recipe, parent=parent)), "trained": asdict(last)}


async def measure_checkpoint(
    checkpoint: Path, *, num_items: int, on_item: Callable[[str], None], only: Sequence[str] = ()
) -> list[Score]:
    """Judge the held-out sets with the embedded engine and a real sandbox.

    Args:
        checkpoint: Checkpoint folder.
        num_items: Number of items per set.
        on_item: Called with the name of the set after each item.
        only: Substrings of set names; a set is judged if its name contains one of them. Empty: all sets.
    """
    engine = EmbeddedEngine.load(checkpoint)
    scores = []
    try:
        async with SandboxPool() as pool:
            judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(checkpoint))
            for test_set in TEST_SETS:
                if not only or any(part in test_set.name for part in only):
                    scores.append(
                        await measure(
                            judge,
                            test_set,
                            num_items=num_items,
                            seed=EVALUATION_SEED,
                            on_item=lambda name=test_set.name: on_item(name),
                        )
                    )
    finally:
        engine.close()
    return scores


def evaluate_and_write_card(checkpoint: Path, *, num_items: int, on_item: Callable[[str], None]) -> list[Score]:
    """Evaluate a checkpoint, and write `scores.json` and the model card into its folder."""
    started = time.perf_counter()
    scores = asyncio.run(measure_checkpoint(checkpoint, num_items=num_items, on_item=on_item))
    elapsed_s = round(time.perf_counter() - started, 1)
    measured = {"seed": EVALUATION_SEED, "elapsed_s": elapsed_s, "sets": [asdict(score) for score in scores]}
    (checkpoint / "scores.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    write_card(checkpoint)
    return scores
