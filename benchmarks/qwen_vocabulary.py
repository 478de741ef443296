"""Train a judge of the first generation on another model's vocabulary, and compare two readings of its verdicts.

    tirjudge train bundled --generation 1 --out runs/first
    python benchmarks/qwen_vocabulary.py TOKENIZER JUDGE --parent runs/first --out benchmarks/results/qwen_vocabulary.json

TOKENIZER is a folder with `tokenizer.json`, `chat_template.jinja` and `config.json` of a model, such as Qwen3. The tests of
tests/families build one in `.pytest_cache/d/families`. JUDGE is the folder for the checkpoint; if it exists, it is only
evaluated.

The training computes with the tokens that occur in its data, with the loss over the complete vocabulary (see
`tirjudge_training/bundled/vocabulary.py`). With `--parent`, it starts with the layers of a judge of the first
generation; the embedding of a token is the mean over that judge's tokens for its text.

The evaluation uses the complete vocabulary. It judges one set of pairs twice: with probabilities of labels summed over
all spellings, and with the probability of the token `A` after the token `>`, as if no token joined the two.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any

import torch
import typer
from reporting import Out, report
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from tirjudge.calibration import Confidence, calibration_of
from tirjudge.concurrency import map_concurrently
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile, load_profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Judgment
from tirjudge_sandbox import SandboxPool
from tirjudge_training.bundled.build import EVALUATION_SEED, bundled_profile, measure_checkpoint
from tirjudge_training.bundled.evaluate import CONCURRENCY, TEST_SETS, draw_items
from tirjudge_training.bundled.sft import BundledRecipe, StepReport, draw_mixed, model_config, render_example, train_sft
from tirjudge_training.bundled.tokenizer import END_OF_TURN
from tirjudge_training.bundled.vocabulary import TrainedVocabulary, frequent_ids, mean_of_pieces
from tirjudge_training.checkpoints import write_checkpoint_file
from tirjudge_training.synthetic.examples import segments

SAMPLED = 12_000
"""Training examples whose texts determine the kept tokens."""

AT_LEAST = 8
"""Occurrences in the prompts of the sample with which a token is kept. Rarer tokens stay without a row, so the model
learns to judge texts with unknown tokens, of which held-out items have many."""

SETS = (
    "pairwise, one instruction",
    "pairwise, two or three",
    "pointwise pairs, one instruction",
    "listwise of four, one instruction",
)
"""Names of the evaluated sets."""

EMBEDDING = "model.embed_tokens.weight"


class ReadsAfterOpening(EmbeddedEngine):
    """Reads labels after the opening of their tag, as if no token joined the two."""

    async def read_labels(self, prefix: Sequence[int], *, opening: str = "", closing: str = "", **read: Any) -> Any:
        opened = [*prefix, *await self.tokenizer.encode(opening)] if opening else prefix
        return await super().read_labels(opened, **read)


def main(
    tokenizer: Annotated[Path, typer.Argument(help="Folder with the tokenizer, template and config of a model.")],
    judge: Annotated[Path, typer.Argument(help="Folder for the checkpoint.")],
    out: Out = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 700,
    items: Annotated[int, typer.Option(min=1, help="Held-out items per set.")] = 300,
    parent: Annotated[
        Path | None, typer.Option(help="Checkpoint of the first generation to start from. Default: random weights.")
    ] = None,
) -> None:
    """Train and evaluate a judge on the vocabulary of another model."""
    trained: dict[str, Any] = {}
    if not judge.exists():
        recipe = replace(BundledRecipe(), num_steps=steps)
        trained = train(tokenizer, judge, recipe=recipe, parent=parent)
        (judge / "training.json").write_text(json.dumps(trained, indent=1) + "\n")
    else:
        trained = json.loads((judge / "training.json").read_text())
    started = time.perf_counter()
    scores = asyncio.run(measure_checkpoint(judge, num_items=items, only=SETS, on_item=lambda _: None))
    result = {
        "training": trained,
        "sets": [asdict(score) | {"accuracy": score.accuracy} for score in scores],
        "parent": None if parent is None else accuracies_of(parent),
        "readings": {
            name: asyncio.run(reading(engine, judge, num_items=items))
            for name, engine in (("all spellings", EmbeddedEngine), ("token after the opening", ReadsAfterOpening))
        },
        "evaluation_s": round(time.perf_counter() - started, 1),
    }
    report(result, out)


def train(folder: Path, out: Path, *, recipe: BundledRecipe, parent: Path | None) -> dict[str, Any]:
    """Train a judge, and write its checkpoint with the complete vocabulary."""
    profile = replace_name(bundled_profile())
    complete = complete_vocabulary(folder)
    vocabulary = replace(
        complete, kept=frequent_ids(texts(complete, profile), tokenizer=complete.tokenizer, at_least=AT_LEAST)
    )
    print(f"{len(vocabulary.kept or ())} of {vocabulary.num_ids} tokens kept", file=sys.stderr)
    start = None if parent is None else start_of(vocabulary, parent=parent)
    reports: list[StepReport] = []

    def on_step(report: StepReport) -> None:
        reports.append(report)
        if report.step % 25 == 0:
            shown = f"step {report.step}: loss {report.loss:.4f}, {report.elapsed_s:.0f} s"
            print(shown, file=sys.stderr, flush=True)

    model = train_sft(
        recipe=recipe, profile=profile, vocabulary=vocabulary, eos=END_OF_TURN, start=start, on_step=on_step
    )
    save(model, vocabulary, folder, out, recipe=recipe, profile=profile)
    return {
        "start": "random weights" if parent is None else "layers of the parent, embeddings averaged over its tokens",
        "recipe": asdict(recipe),
        "num_kept": len(vocabulary.kept or ()),
        "num_ids": vocabulary.num_ids,
        "num_tokens": sum(report.num_tokens for report in reports),
        "loss": reports[-1].loss,
        "elapsed_s": reports[-1].elapsed_s,
    }


def replace_name(profile: Profile) -> Profile:
    """Return the profile of the bundled judge with another name, and with the option of the template."""
    return profile.model_copy(update={"name": "tirjudge-tiny-qwen", "chat_template_kwargs": {"enable_thinking": False}})


def complete_vocabulary(folder: Path) -> TrainedVocabulary:
    """Return the vocabulary of a folder, with all tokens."""
    return TrainedVocabulary(
        tokenizer_json=(folder / "tokenizer.json").read_text(),
        template=(folder / "chat_template.jinja").read_text(),
        num_ids=json.loads((folder / "config.json").read_text())["vocab_size"],
    )


def texts(vocabulary: TrainedVocabulary, profile: Profile) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a sample of the training data, each with whether the model writes it."""
    recipe = BundledRecipe()
    drawn = draw_mixed(rng=Random("sample"), mode_shares=recipe.mode_shares, mixture=recipe.mixture)
    for example in islice(drawn, SAMPLED):
        yield render_example(example, profile=profile, chat=vocabulary.chat), False
        yield from ((part.text, part.by_model) for part in segments(example))
    yield END_OF_TURN, True
    yield from ((character, True) for character in "0123456789")


def start_of(vocabulary: TrainedVocabulary, *, parent: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint with embeddings for another vocabulary."""
    weights = {name: tensor.float() for name, tensor in load_file(parent / "model.safetensors").items()}
    source = Tokenizer.from_file(str(parent / "tokenizer.json"))
    return weights | {EMBEDDING: mean_of_pieces(vocabulary, source=source, table=weights[EMBEDDING])}


def save(
    model: Qwen3ForCausalLM,
    vocabulary: TrainedVocabulary,
    folder: Path,
    out: Path,
    *,
    recipe: BundledRecipe,
    profile: Profile,
) -> None:
    """Write the checkpoint with the complete vocabulary."""
    complete = replace(vocabulary, kept=None)
    config: Qwen3Config = model_config(recipe, complete, context_tokens=profile.context_tokens, eos=END_OF_TURN)
    weights = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    whole = Qwen3ForCausalLM(config)
    whole.load_state_dict(weights | {EMBEDDING: vocabulary.complete(weights[EMBEDDING])}, strict=False)
    torch.nn.Module.to(whole, torch.bfloat16)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    whole.save_pretrained(partial)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(folder / name, partial)
    write_checkpoint_file(partial, profile=profile)
    os.replace(partial, out)


async def reading(engine_class: type[EmbeddedEngine], checkpoint: Path, *, num_items: int) -> dict[str, Any]:
    """Judge the first set of pairs, and return its label mass and calibration."""
    engine = engine_class.load(checkpoint)
    try:
        async with SandboxPool() as pool:
            judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(checkpoint))

            async def judged(item: tuple[JudgeRequest, int]) -> tuple[Judgment, int]:
                return await judge.judge(item[0]), item[1]

            items = draw_items(TEST_SETS[0], num_items=num_items, seed=EVALUATION_SEED)
            answers = await map_concurrently(map(judged, items), num_at_once=CONCURRENCY)
    finally:
        engine.close()
    verdicts = [(judgment.verdict, best) for judgment, best in answers]
    masses = sorted(verdict.label_mass for verdict, _ in verdicts if verdict.label_mass is not None)
    confidences = [
        Confidence(value=max(verdict.probabilities), is_right=verdict.probabilities[best] == max(verdict.probabilities))
        for verdict, best in verdicts
        if verdict.probabilities is not None
    ]
    calibration = calibration_of(confidences)
    return {
        "set": TEST_SETS[0].name,
        "num_read": len(masses),
        "label_mass": {"mean": sum(masses) / len(masses), "lowest": masses[0], "p1": masses[len(masses) // 100]},
        "accuracy_of_top_label": calibration.accuracy,
        "mean_confidence": calibration.confidence,
        "ece": calibration.expected_error,
        "brier": calibration.brier,
    }


def accuracies_of(checkpoint: Path) -> dict[str, float]:
    """Return the accuracies of a checkpoint on the evaluated sets, from its scores."""
    measured = json.loads((checkpoint / "scores.json").read_text())["sets"]
    return {each["name"]: each["num_right"] / each["num_items"] for each in measured if each["name"] in SETS}


if __name__ == "__main__":
    typer.run(main)
