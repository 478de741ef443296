"""Supervised training on judgments. Program outputs are masked: the loss is computed only on text that the model writes.

Two optimizations make training fast on a CPU:

- All prompts of one mode have a common prefix, so a batch computes the prefix once.
- The list of checks determines the rest of a program. So most examples are cut after the checks. The share
  `BundledRecipe.whole` of the examples also has the rest of the program, its output and the verdict.
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, islice
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import Qwen3Config, Qwen3ForCausalLM

from tirjudge.chat_template import ChatTemplate
from tirjudge.control_tokens import NONE
from tirjudge.formats.tirjudge_1 import FORMAT
from tirjudge.profile import Profile
from tirjudge.types import MODEL_MODES, AttachedStore, Mode
from tirjudge_evidence.tasks.programs import END_OF_LOOKUP
from tirjudge_training.bundled.checked import CheckedShares, drawn_example, judgment, rendered, with_errors
from tirjudge_training.bundled.qwen3 import hidden_states
from tirjudge_training.bundled.vocabulary import OTHER, TrainedVocabulary
from tirjudge_training.synthetic.examples import Mixture, SyntheticExample, draw_examples, segments
from tirjudge_training.synthetic.programs import END_OF_CHECKS
from tirjudge_training.synthetic.teacher_errors import NO_ERRORS, TeacherErrors, with_teacher_errors

END_OF_PLAN = "```python\n"
"""End of the plan of a judgment with a program."""

SHARED_STEP, SHARED_MOST, LENGTH_STEP, TARGET_STEP = 16, 144, 16, 256
"""Dimensions of matrix products are rounded to multiples of the steps. oneDNN compiles a kernel for each shape that is
not among the last thousand shapes. Without rounding, almost every batch has a different shape."""

FEW_ROWS = 32
"""Minimum number of rows of one kind that get separate batches. Rows of rarer kinds share batches with lists of other
lengths."""

CONSTANT_STAGES = 4
"""Number of stages of the second generation before the last one."""

GPU_BATCHES = 3
"""Number of batches of a processor in one batch of a GPU, which computes large batches in nearly the time of small ones."""

MAX_GENERATORS = 14
"""Maximum number of processes that generate data for a GPU. A dozen keep it busy."""

SAVE_S = 60.0
"""Minimum seconds between two saved states on a GPU, where a shard takes a second."""

MAX_TOOL_CALLS = 3
"""Limit on tool calls in every training prompt; also the default of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledRecipe:
    """All settings that determine the checkpoint. The same recipe generates the same data in the same order."""

    seed: int = 1
    num_steps: int = 1700
    examples_per_step: int = 72
    """Average number of examples per optimizer step. A step consists of whole batches."""
    examples_per_shard: int = 4096
    """Number of examples that are generated, sorted into batches and shuffled together."""
    batch_tokens: int = 3072
    """Maximum number of tokens in one forward pass, including padding, excluding the common prefix."""
    whole: float = 0.25
    """Share of the examples with the complete judgment. The other examples end after the checks."""
    plan_alone: float = 0.0
    """Share of the examples about evidence that end after the plan, because it determines the lookup. They are among those
    without the complete judgment."""
    mode_shares: tuple[float, float, float] = (0.4, 0.35, 0.25)
    """Shares of the modes: pointwise, pairwise, listwise."""
    matrix_lr: float = 0.02
    """Peak learning rate of the weight matrices (Muon)."""
    other_lr: float = 0.004
    """Peak learning rate of the embedding and the norms (AdamW)."""
    weight_decay: float = 0.02
    warmup_steps: int = 50
    decay_share: float = 0.6
    """Share of the steps, at the end of the run, in which the learning rate falls linearly to zero."""
    vocab_size: int = 2048
    hidden_size: int = 192
    intermediate_size: int = 512
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 48
    num_workers: int = 2
    """Number of processes that share a step, each on one core. With 1, a GPU is used if available, and the other cores
    generate the data."""
    mixture: Mixture = field(default_factory=Mixture)
    """Shares of the kinds of items."""
    erring: TeacherErrors = field(default_factory=TeacherErrors)
    """Error rates of the teacher. Default: no errors; a weak start sets them."""
    functions: tuple[str, ...] = ()
    """Lines of the functions that every prompt with tools presents, such as those of the tool `run`."""
    most_shared: int = SHARED_MOST
    """Maximum length of the common prefix that a batch computes once, in tokens."""
    checked: CheckedShares | None = None
    """Shares of the examples of the second generation. None: those of the first, by `mixture`."""
    parent: str | None = None
    """Checkpoint folder with the initial weights and the tokenizer. None: train from scratch."""


def last_stage(recipe: BundledRecipe, *, parent: Path) -> BundledRecipe:
    """Return the recipe of the last stage: new data, 0.4 times the learning rates, which decay to zero.

    It takes a fifth of the steps of a stage of the first generation, and three quarters of one of the second.
    """
    is_first = recipe.checked is None
    return replace(
        recipe,
        seed=recipe.seed + (1 if is_first else CONSTANT_STAGES),
        num_steps=max(1, recipe.num_steps // 5 if is_first else 3 * recipe.num_steps // 4),
        matrix_lr=0.4 * recipe.matrix_lr,
        other_lr=0.4 * recipe.other_lr,
        warmup_steps=20,
        decay_share=0.9,
        whole=max(0.5, recipe.whole),
        parent=str(parent),
    )


def stages_of(recipe: BundledRecipe, *, folder: Path) -> list[BundledRecipe]:
    """Return the recipes of all stages of a training from scratch.

    The first generation has one stage and the last one. The second has `CONSTANT_STAGES` with a constant learning rate, each
    with new data, and the last one.

    Args:
        recipe: The recipe of the first stage.
        folder: Folder with the checkpoint of each stage but the last, `stage_folder(folder, number) / "checkpoint"`.
    """
    stages = [recipe]
    for number in range(1, 1 if recipe.checked is None else CONSTANT_STAGES):
        parent = str(stage_folder(folder, number) / "checkpoint")
        stages.append(replace(recipe, seed=recipe.seed + number, warmup_steps=20, parent=parent))
    return [*stages, last_stage(recipe, parent=stage_folder(folder, len(stages)) / "checkpoint")]


def stage_folder(folder: Path, number: int) -> Path:
    """Return the folder of a stage in the folder of a training. The first stage has the number 1."""
    return folder / f"stage-{number}"


class PromptKind(NamedTuple):
    """The properties that determine the prefix of a prompt."""

    mode: Mode
    tools: bool
    num_responses: int
    functions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """One example as token ids."""

    ids: tuple[int, ...]
    """Token ids of the prompt and the judgment."""
    loss_from: tuple[tuple[int, int], ...]
    """Spans [start, end) of `ids` that the model writes. The loss is computed on these tokens only."""
    kind: PromptKind
    """Kind of the prompt. Rows of one kind have a common prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """Rows with a common prefix, padded on the right."""

    shared: list[int]
    """Token ids of the common prefix, at least one fewer than the shortest prompt has."""
    ids: torch.Tensor
    """(rows, length): token ids after the common prefix."""
    targets: torch.Tensor
    """(rows, length): the next id if the model writes it, otherwise -100."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens computed in one pass, padding included."""
        return self.ids.numel() + len(self.shared)

    @property
    def cost(self) -> int:
        """Estimated time of one pass, in arbitrary units. With 700 earlier positions, attention takes half of the
        time."""
        return self.num_tokens * (700 + len(self.shared) + self.ids.shape[1])


def model_config(recipe: BundledRecipe, vocabulary: TrainedVocabulary, *, context_tokens: int, eos: str) -> Qwen3Config:
    """Return the configuration of the trained model; `eos` is the text of the end-of-turn token."""
    return Qwen3Config(
        vocab_size=vocabulary.num_rows,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_kv_heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=context_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocabulary.row(eos),
    )


def render_example(
    example: SyntheticExample, *, profile: Profile, chat: ChatTemplate, functions: Sequence[str] = ()
) -> str:
    """Return the prompt as the serving loop renders it, up to the start of the answer."""
    text = FORMAT.render_prompt(
        example.mode,
        prompt=example.prompt,
        responses=example.responses,
        tools=example.tools,
        max_tool_calls=MAX_TOOL_CALLS,
        prompt_chars=profile.prompt_chars,
        response_chars=min(profile.response_chars, profile.all_responses_chars // len(example.responses)),
        functions=functions if example.presents_functions else (),
        evidence=[AttachedStore.model_validate(store) for store in example.evidence],
        control_tokens=NONE,  # control tokens of this tokenizer are escaped in every prompt
    )
    return chat.render_prompt(text)


def encode_example(
    example: SyntheticExample,
    *,
    vocabulary: TrainedVocabulary,
    profile: Profile,
    whole: bool,
    plan_alone: bool = False,
    functions: Sequence[str] = (),
) -> PackedRow:
    """Encode one example. Each segment is encoded separately, as in the serving loop.

    Args:
        example: The example. One without a program is always encoded completely.
        vocabulary: Vocabulary of the model.
        profile: Profile with the limits on the texts in a prompt.
        whole: Whether to encode the complete judgment. False: only up to the end of the checks.
        plan_alone: Whether an example about evidence ends after the plan.
        functions: Lines of the functions that the prompt presents.
    """
    prompt = render_example(example, profile=profile, chat=vocabulary.chat, functions=functions)
    ids = list(vocabulary.encode(prompt))
    spans = []
    parts = segments(example) if whole or example.code is None else segments(example)[:1]
    for part in parts:
        text = part.text
        if not whole and example.code is not None:
            end = END_OF_CHECKS if not example.evidence else END_OF_PLAN if plan_alone else END_OF_LOOKUP
            text = text[: text.index(end) + len(end)]
        encoded = vocabulary.encode(text)
        if part.by_model:
            spans.append((len(ids), len(ids) + len(encoded)))
        ids += encoded
    kind = PromptKind(
        mode=example.mode,
        tools=example.tools,
        num_responses=len(example.responses),
        functions=bool(functions) and example.presents_functions,
    )
    return PackedRow(ids=tuple(ids), loss_from=tuple(spans), kind=kind)


def draw_mixed(
    *, rng: Random, mode_shares: Sequence[float], mixture: Mixture, erring: TeacherErrors = NO_ERRORS
) -> Iterator[SyntheticExample]:
    """Yield training items of all modes with the teacher's answers, forever."""
    modes = list(MODEL_MODES)
    streams = {mode: draw_examples(mode, rng=rng, held_out=False, mixture=mixture) for mode in modes}
    kinds = mixture.drawn_kinds
    while True:
        example = next(streams[rng.choices(modes, mode_shares)[0]])
        yield example if erring == NO_ERRORS else with_teacher_errors(example, erring=erring, kinds=kinds, rng=rng)


def make_shard(recipe: BundledRecipe, profile: Profile, vocabulary: TrainedVocabulary, index: int) -> list[PackedRow]:
    """Generate the rows of one shard. The function is pure: equal arguments give equal rows."""
    rng = Random(f"{recipe.seed}/{index}")
    if recipe.checked is not None:
        return _checked_rows(recipe, recipe.checked, profile, vocabulary, rng=rng)
    mixed = draw_mixed(rng=rng, mode_shares=recipe.mode_shares, mixture=recipe.mixture, erring=recipe.erring)
    rows: list[PackedRow] = []
    for example in islice(mixed, recipe.examples_per_shard):
        share = rng.random()
        row = encode_example(
            example,
            vocabulary=vocabulary,
            profile=profile,
            whole=share < recipe.whole,
            plan_alone=1 - share < recipe.plan_alone,
            functions=recipe.functions,
        )
        rows.append(row)
    return rows


def _checked_rows(
    recipe: BundledRecipe, shares: CheckedShares, profile: Profile, vocabulary: TrainedVocabulary, *, rng: Random
) -> list[PackedRow]:
    rows: list[PackedRow] = []
    for _ in range(recipe.examples_per_shard):
        mode = rng.choices(MODEL_MODES, recipe.mode_shares)[0]
        example = drawn_example(rng, mode=mode, shares=shares)
        if recipe.erring != NO_ERRORS:
            example = with_errors(example, erring=recipe.erring, shares=shares, rng=rng)
        calls = MAX_TOOL_CALLS if rng.random() < 0.9 else rng.randint(1, 9)
        ids = vocabulary.encode(rendered(example, profile=profile, chat=vocabulary.chat, max_tool_calls=calls))
        spans = []
        for part in judgment(example, whole=rng.random() < recipe.whole):
            encoded = vocabulary.encode(part.text)
            if part.by_model:
                spans.append((len(ids), len(ids) + len(encoded)))
            ids += encoded
        kind = PromptKind(mode=example.mode, tools=True, num_responses=2)
        rows.append(PackedRow(ids=tuple(ids), loss_from=tuple(spans), kind=kind))
    return rows


def full_batches(
    rows: Sequence[PackedRow], *, batch_tokens: int, most_shared: int = SHARED_MOST
) -> tuple[list[PackedBatch], list[PackedRow]]:
    """Group rows with a common prefix and similar lengths into full batches, the longest rows first.

    Returns:
        The batches, and the rows that do not fill a batch.
    """
    batches: list[PackedBatch] = []
    left: list[PackedRow] = []
    for group in _groups_with_common_prefix(rows):
        num_shared = _num_shared(group, most=most_shared)
        group.sort(key=lambda row: -len(row.ids))
        while group:
            length = _rounded_length(len(group[0].ids) - num_shared)
            num_rows = max(1, batch_tokens // length)
            if num_rows > len(group):
                left += group
                break
            batches.append(_batch(group[:num_rows], num_shared=num_shared, length=length))
            del group[:num_rows]
    return batches, left


def one_batch(rows: Sequence[PackedRow]) -> PackedBatch:
    """Return one batch of rows, which must be of one kind."""
    num_shared = _num_shared(rows)
    length = _rounded_length(max(len(row.ids) for row in rows) - num_shared)
    return _batch(rows, num_shared=num_shared, length=length)


def _groups_with_common_prefix(rows: Sequence[PackedRow]) -> list[list[PackedRow]]:
    """Group rows by kind. Rare kinds are merged with those that have other numbers of responses."""
    num_of_kind = Counter(row.kind for row in rows)
    groups: dict[PromptKind, list[PackedRow]] = {}
    for row in rows:
        key = row.kind if num_of_kind[row.kind] >= FEW_ROWS else row.kind._replace(num_responses=0)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


def _rounded_length(length: int) -> int:
    """Round up to a step that grows with the length, because long rows are rare."""
    return _rounded(length, max(LENGTH_STEP, 2 ** (length.bit_length() - 4)))


def _num_shared(rows: Sequence[PackedRow], *, most: int = SHARED_MOST) -> int:
    """Return the length of the common prefix, rounded down and at least one token shorter than the shortest prompt."""
    num_shared = min(most, min(row.loss_from[0][0] for row in rows) - 1)
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)
    while first[:num_shared] != last[:num_shared]:
        num_shared -= 1
    return num_shared - num_shared % SHARED_STEP


def _batch(rows: Sequence[PackedRow], *, num_shared: int, length: int) -> PackedBatch:
    ids = np.zeros((len(rows), length), dtype=np.int64)
    targets = np.full((len(rows), length), -100, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids) - num_shared] = row.ids[num_shared:]
        for start, end in row.loss_from:
            targets[i, start - 1 - num_shared : end - 1 - num_shared] = row.ids[start:end]
    shared = list(rows[0].ids[:num_shared])
    return PackedBatch(shared=shared, ids=torch.from_numpy(ids), targets=torch.from_numpy(targets))


def deal(batches: Sequence[PackedBatch], *, num_steps: int) -> list[list[PackedBatch]]:
    """Distribute batches over steps of about equal cost. The most expensive step is first."""
    steps: list[tuple[int, int, list[PackedBatch]]] = [(0, i, []) for i in range(num_steps)]
    for batch in sorted(batches, key=lambda batch: -batch.cost):
        cost, i, step = heapq.heappop(steps)
        heapq.heappush(steps, (cost + batch.cost, i, [*step, batch]))
    return [step for _, _, step in sorted(steps, key=lambda step: (-step[0], step[1]))]


def batch_loss(
    model: Qwen3ForCausalLM, batch: PackedBatch, *, vocabulary: TrainedVocabulary
) -> tuple[torch.Tensor, int]:
    """Return the summed cross-entropy over the tokens that the model writes, and the number of these tokens.

    A token without a row in the vocabulary is not a target. The batch is in main memory, even if the model is on a GPU.
    So the number of targets is known without waiting for the GPU.
    """
    device = model.model.embed_tokens.weight.device
    flat = batch.targets.flatten()
    places = (flat > OTHER if vocabulary.num_others else flat != -100).nonzero()[:, 0]
    num_targets = len(places)
    filling = _rounded(num_targets, TARGET_STEP) - num_targets
    targets = F.pad(flat[places], (0, filling), value=-100).to(device)
    hidden = hidden_states(
        model,
        shared=torch.tensor(batch.shared, dtype=torch.long).to(device),
        ids=batch.ids.to(device),
        places=F.pad(places, (0, filling)).to(device),
    )
    logits = vocabulary.count_others(model.lm_head(hidden).float())
    return F.cross_entropy(logits, targets, reduction="sum"), num_targets


def learning_rate(step: int, recipe: BundledRecipe) -> float:
    """Return the learning rate as a share of its peak: linear warm-up, constant phase, linear decay to zero."""
    decay_from = recipe.num_steps * (1 - recipe.decay_share)
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    if step < decay_from:
        return 1.0
    return (recipe.num_steps - step) / (recipe.num_steps - decay_from)


class SharedMuon(torch.optim.Muon):
    """Muon whose products are computed in float32 and shared by all workers.

    torch's class computes them in bfloat16, which is slower on processors without AMX. Each worker
    orthogonalizes a part of the updates, and then all workers sum them.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update all matrices that have a gradient."""
        rank, num_workers = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
            own: dict[torch.Size, list[int]] = {}
            updates: list[torch.Tensor] = []
            for i, matrix in enumerate(matrices):
                state = self.state[matrix]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                momentum = state["momentum_buffer"].lerp_(matrix.grad, 1 - group["momentum"])
                if i % num_workers == rank:
                    own.setdefault(matrix.shape, []).append(i)
                    updates.append(matrix.grad.lerp(momentum, group["momentum"]))
                else:
                    updates.append(torch.zeros_like(matrix))
            for same_shape in own.values():
                found = orthogonalized(
                    torch.stack([updates[i] for i in same_shape]),
                    coefficients=group["ns_coefficients"],
                    num_steps=group["ns_steps"],
                )
                for i, update in zip(same_shape, found, strict=True):
                    updates[i] = update
            for matrix, update in zip(matrices, summed(updates), strict=True):
                rate = group["lr"] * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.sub_(update, alpha=rate)


def summed(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the sums of tensors over all workers. One worker has nothing to wait for."""
    if dist.get_world_size() == 1:
        return list(tensors)
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


def orthogonalized(matrices: torch.Tensor, *, coefficients: tuple[float, float, float], num_steps: int) -> torch.Tensor:
    """Return matrices with their singular values moved close to 1, by Newton-Schulz iteration.

    Args:
        matrices: (..., rows, columns).
        coefficients: Coefficients of the polynomial of one iteration.
        num_steps: Number of iterations.
    """
    a, b, c = coefficients
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(num_steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.mT if tall else x


def make_optimizers(model: Qwen3ForCausalLM, recipe: BundledRecipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the rest."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        SharedMuon(matrices, lr=recipe.matrix_lr, weight_decay=recipe.weight_decay, momentum=0.95),
        torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """Report on one optimizer step."""

    step: int
    """Number of the step, starting at 0."""
    loss: float
    """Mean cross-entropy of the tokens in the loss, in nats."""
    num_tokens: int
    """Number of tokens computed by all workers."""
    elapsed_s: float
    """Seconds since the start of the first step."""


def train_sft(
    *,
    recipe: BundledRecipe,
    profile: Profile,
    vocabulary: TrainedVocabulary,
    eos: str,
    start: Mapping[str, torch.Tensor] | None = None,
    state: Path | None = None,
    on_step: Callable[[StepReport], None],
) -> Qwen3ForCausalLM:
    """Train a model.

    On a CPU, `recipe.num_workers` processes with one thread each share the work, because the matrix products are too
    small to gain from two threads. This process is the first worker. The workers sum their gradients over loopback.

    Args:
        recipe: All settings of the training.
        profile: Profile with the limits on the texts in a prompt.
        vocabulary: Vocabulary of the model.
        eos: Text of the end-of-turn token.
        start: Initial weights; those that are missing stay random. None: those of the recipe's parent, or random ones.
        state: File in which the state of the training is saved after each shard of data, on a GPU at most once in `SAVE_S`.
            If it exists, the training goes on from it. None: no state is saved.
        on_step: Called with a report after each step.
    """
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"file://{folder}/rendezvous"
        arguments = (rendezvous, recipe, profile, vocabulary, eos, None if start is None else dict(start), state)
        context = _forkserver()
        ranks = range(1, recipe.num_workers)
        others = [context.Process(target=_train, args=(rank, *arguments, _ignore), daemon=True) for rank in ranks]
        for process in others:
            process.start()
        try:
            model = _train(0, *arguments, on_step)
            for process in others:
                process.join()
        finally:
            for process in others:
                process.kill()
        return model


def _forkserver() -> ForkServerContext:
    """Return the way to start processes: as forks of a process that imports torch once, which takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _ignore(_: StepReport) -> None:
    """The first worker reports the steps."""


def _train(
    rank: int,
    rendezvous: str,
    recipe: BundledRecipe,
    profile: Profile,
    vocabulary: TrainedVocabulary,
    eos: str,
    start: Mapping[str, torch.Tensor] | None,
    state: Path | None,
    on_step: Callable[[StepReport], None],
) -> Qwen3ForCausalLM:
    """Training loop of one worker. All workers start with the same weights and take the same steps."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() and recipe.num_workers == 1 else "cpu"
    if device == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32; bfloat16 would need a cast before each of the small products
    model = _initial_model(recipe, profile, vocabulary, eos=eos, start=start)
    torch.nn.Module.to(model, device)
    optimizers = make_optimizers(model, recipe)
    peaks = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    with _process_group(rendezvous, rank=rank, num_workers=recipe.num_workers), ExitStack() as stack:
        saved = (
            None if state is None or not state.exists() else torch.load(state, weights_only=True, map_location="cpu")
        )
        if saved is not None:
            model.load_state_dict(saved["model"])
            for optimizer, values in zip(optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(values)  # replaces the groups
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        shard, step, earlier_s = (0, 0, 0.0) if saved is None else (saved["shard"], saved["step"], saved["elapsed_s"])
        started = time.perf_counter() - earlier_s
        model.train()
        batches = batches_for_steps(
            recipe,
            rank=rank,
            profile=profile,
            vocabulary=vocabulary,
            first_shard=shard,
            batch_tokens=recipe.batch_tokens * (1 if device == "cpu" else GPU_BATCHES),
            num_generators=0 if device == "cpu" else min(MAX_GENERATORS, max(1, len(os.sched_getaffinity(0)) - 2)),
        )
        stack.callback(batches.close)
        saved_at = time.perf_counter()
        for new_shard, step_batches in islice(batches, recipe.num_steps - step):
            now = time.perf_counter()
            if new_shard > shard and state is not None and rank == 0 and now - saved_at >= (device != "cpu") * SAVE_S:
                _save_state(state, model, optimizers, shard=new_shard, step=step, elapsed_s=now - started)
                saved_at = now
            shard = new_shard
            for group, peak in zip(groups, peaks, strict=True):
                group["lr"] = peak * learning_rate(step, recipe)
            loss, num_targets, num_tokens = _add_gradients(model, step_batches, vocabulary=vocabulary, device=device)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            elapsed_s = time.perf_counter() - started
            on_step(StepReport(step=step, loss=loss / num_targets, num_tokens=num_tokens, elapsed_s=elapsed_s))
            step += 1
    return model


def _initial_model(
    recipe: BundledRecipe,
    profile: Profile,
    vocabulary: TrainedVocabulary,
    *,
    eos: str,
    start: Mapping[str, torch.Tensor] | None,
) -> Qwen3ForCausalLM:
    """Return the model that all workers start with: the same random weights, and in their place those of `start` or of the
    recipe's parent."""
    torch.manual_seed(recipe.seed)
    model = Qwen3ForCausalLM(model_config(recipe, vocabulary, context_tokens=profile.context_tokens, eos=eos))
    if start is None and recipe.parent is not None:
        start = load_file(Path(recipe.parent, "model.safetensors"))
    if start is not None:
        model.load_state_dict(start, strict=False)  # the head is tied
    if vocabulary.num_others:
        torch.nn.init.zeros_(model.model.embed_tokens.weight[OTHER])
    return model


@contextmanager
def _process_group(rendezvous: str, *, rank: int, num_workers: int) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=num_workers)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _save_state(
    path: Path,
    model: Qwen3ForCausalLM,
    optimizers: Sequence[torch.optim.Optimizer],
    *,
    shard: int,
    step: int,
    elapsed_s: float,
) -> None:
    """Write the state of the training. A reader finds the earlier state or this one."""
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "shard": shard,
        "step": step,
        "elapsed_s": elapsed_s,
    }
    written = path.with_suffix(".new")
    torch.save(state, written)
    written.replace(path)


def multiplies_bfloat16() -> bool:
    """Return whether this processor has instructions for products of bfloat16 numbers. On others, float32 is faster."""
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def _add_gradients(
    model: Qwen3ForCausalLM, batches: Sequence[PackedBatch], *, vocabulary: TrainedVocabulary, device: str
) -> tuple[float, int, int]:
    """Compute the gradient of the mean loss over the batches of all workers, and set it on the parameters.

    Returns:
        Summed loss, number of tokens in the loss, number of computed tokens, each over all workers.
    """
    bf16 = device == "cpu" and multiplies_bfloat16()
    total_loss = torch.zeros((), device=device)
    num_targets = num_tokens = 0
    for batch in batches:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            loss, num = batch_loss(model, batch, vocabulary=vocabulary)
        loss.backward()
        total_loss += loss.detach()
        num_targets, num_tokens = num_targets + num, num_tokens + batch.num_tokens
    table = model.model.embed_tokens.weight
    if table.grad is not None:
        table.grad[[OTHER, *vocabulary.held] if vocabulary.num_others else list(vocabulary.held)] = 0
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    totals = torch.tensor([num_targets, num_tokens], dtype=torch.float32, device=device)
    *gradients, totals, total_loss = summed([*(p.grad for p in parameters if p.grad is not None), totals, total_loss])
    all_targets, all_tokens = map(int, totals.tolist())
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient / all_targets
    return float(total_loss), all_targets, all_tokens


def batches_for_steps(
    recipe: BundledRecipe,
    *,
    rank: int,
    profile: Profile,
    vocabulary: TrainedVocabulary,
    first_shard: int = 0,
    batch_tokens: int | None = None,
    num_generators: int = 0,
) -> Generator[tuple[int, list[PackedBatch]], None, None]:
    """Yield the batches of this worker, one list per step, with its share of about `examples_per_step` rows.

    All workers shuffle their steps in the same order. So the workers have about equal work in each step and do not wait
    for each other. A training that goes on from a later shard loses the few rows that filled no batch before.

    Args:
        recipe: All settings of the training.
        rank: Number of this worker.
        profile: Profile with the limits on the texts in a prompt.
        vocabulary: Vocabulary of the model.
        first_shard: Number of the first shard.
        batch_tokens: Maximum number of tokens in a batch. None: that of the recipe.
        num_generators: Number of processes that generate shards in advance. 0: this process generates them.

    Yields:
        Number of the shard, and the batches of the step.
    """
    steps_per_shard = max(1, round(recipe.examples_per_shard * recipe.num_workers / recipe.examples_per_step))
    numbers = (index * recipe.num_workers + rank for index in count(first_shard))
    left: list[PackedRow] = []
    for index, shard in enumerate(
        _shards(numbers, recipe, profile, vocabulary, num_generators=num_generators), start=first_shard
    ):
        rows = left + shard
        batches, left = full_batches(
            rows, batch_tokens=batch_tokens or recipe.batch_tokens, most_shared=recipe.most_shared
        )
        steps = deal(batches, num_steps=min(steps_per_shard, len(batches)))
        Random(f"{recipe.seed}/order/{index}").shuffle(steps)
        for step in steps:
            yield index, step


def _shards(
    numbers: Iterator[int],
    recipe: BundledRecipe,
    profile: Profile,
    vocabulary: TrainedVocabulary,
    *,
    num_generators: int,
) -> Iterator[list[PackedRow]]:
    """Yield the shards with these numbers, in order. The processes that generate them stay two shards each ahead."""
    if not num_generators:
        yield from (make_shard(recipe, profile, vocabulary, number) for number in numbers)
        return
    generators = ProcessPoolExecutor(
        num_generators, mp_context=_forkserver(), initializer=_generator_began, initargs=(recipe, profile, vocabulary)
    )
    try:
        made = deque(generators.submit(_generated, number) for number in islice(numbers, 2 * num_generators))
        for number in numbers:
            yield made.popleft().result()
            made.append(generators.submit(_generated, number))
    finally:
        generators.shutdown(cancel_futures=True)


_generates: list[tuple[BundledRecipe, Profile, TrainedVocabulary]] = []
"""What this process generates shards with. Sent once: a vocabulary takes longer to send than a shard to generate."""


def _generator_began(recipe: BundledRecipe, profile: Profile, vocabulary: TrainedVocabulary) -> None:
    torch.set_num_threads(1)
    _generates.append((recipe, profile, vocabulary))


def _generated(number: int) -> list[PackedRow]:
    return make_shard(*_generates[0], number)
