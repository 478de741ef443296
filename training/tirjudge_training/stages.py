"""Run the stages of a command in sequence. Finished stages are not repeated. No stage builds on a stage that failed the gate.

    sft       start -> sft-1                                     on existing trajectories
    rl        start -> rl-1
    sample    start -> sample-1
    distill   start -> sample-1 (teacher) -> sft-1 -> rl-1
    zero      start -> rl-0 -> [ sample-k (of the current judge) -> sft-k (from the start) -> rl-k ] x rounds
    ttrl      start -> rl-1                                      labels come from votes (T3RL), no known label is used

`state.json` is written before and after each stage. So a killed run resumes with the interrupted stage: training
resumes from the trainer's newest checkpoint, sampling after its newest complete file.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, get_args

from tirjudge.errors import CheckpointError
from tirjudge.formats import FIRST_FORMAT, format_named
from tirjudge.judge import Judge
from tirjudge.model import (
    EngineOptions,
    bundled_checkpoint,
    chat_template_of,
    fingerprint,
    tokenizer_sha256_of,
)
from tirjudge.opening import address_of, open_judge
from tirjudge.profile import Lineage, resolved_profile
from tirjudge.tools.base import ToolOptions
from tirjudge.types import PYTHON
from tirjudge_training.callbacks import Callback
from tirjudge_training.config import BUNDLED, Recipe, Teacher, WeakStart
from tirjudge_training.gate import Decided, compare
from tirjudge_training.items import TrainingItem
from tirjudge_training.journal import MetricsJournal
from tirjudge_training.learning import learn
from tirjudge_training.metrics import FILE, read_metrics
from tirjudge_training.rejection import keep_best
from tirjudge_training.rollouts import open_policy, validate_held_out
from tirjudge_training.run_folder import RunFolder, StageKind, StageRecord, State, commit_of, sha256_of
from tirjudge_training.sampling import SamplingPlan, Student, sample_items
from tirjudge_training.trainers import StageJob, TrainedKind, TrainedStage, trainer_of
from tirjudge_training.training_data import TrainingData, load_data, mixture_of
from tirjudge_training.training_samples import read_trajectories, write_trajectories
from tirjudge_training.validation import Validation, read_validation, write_validation

Command = Literal["sft", "rl", "sample", "distill", "zero", "ttrl"]

START = "start"
KEPT = "kept.parquet"


def planned(command: Command, *, rounds: int) -> State:
    """Return the initial state of a command: its stages, all waiting.

    Args:
        command: Name of the command.
        rounds: Number of rounds of `zero`.
    """

    def cycle(number: int) -> list[tuple[StageKind, int]]:
        return [("sample", number), ("sft", number), ("rl", number)]

    kinds: dict[Command, list[tuple[StageKind, int]]] = {
        "sft": [("sft", 1)],
        "rl": [("rl", 1)],
        "sample": [("sample", 1)],
        "distill": cycle(1),
        "zero": [("rl", 0), *(stage for number in range(1, rounds + 1) for stage in cycle(number))],
        "ttrl": [("rl", 1)],
    }
    stages = [StageRecord(name=f"{kind}-{number}", kind=kind) for kind, number in kinds[command]]
    return State(command=command, stages=[StageRecord(name=START, kind="start"), *stages])


def run_stages(
    command: Command, recipe: Recipe, *, out: Path, callback: Callback | None = None, chat_key: str | None = None
) -> State:
    """Run all stages of a command that are not done yet.

    Args:
        command: Name of the command.
        recipe: All settings of the run.
        out: Folder of the run. An existing run is resumed.
        callback: Receives progress. None: no progress is reported.
        chat_key: API key of the teacher's chat endpoint. None: no key.

    Returns:
        State of the run at the end.

    Raises:
        ValueError: the recipe, the data or the folder is invalid, or a gradient was not finite.
        EngineUnavailable, SandboxUnavailable: rollouts failed; the same command resumes the run.
        OSError: the disk is full, or fails; the same command resumes the run.
    """
    from transformers.utils.logging import disable_progress_bar

    state = planned(command, rounds=recipe.stages.rounds)
    _check(command, recipe, state=state)
    data = load_data(recipe)
    facts = {"seed": recipe.seed, "data_sha256": data.sha256, "items": data.counts(), **_facts_of(recipe)}
    disable_progress_bar()  # progress bars of transformers would overwrite the progress bar of the run
    with RunFolder(out, config=recipe.resolved(), state=state, facts=facts) as folder:
        run = _Run(folder=folder, recipe=recipe, data=data, callback=callback or Callback(), chat_key=chat_key)
        for stage in folder.state.stages:
            run.do(stage)
        return folder.state


def _check(command: Command, recipe: Recipe, *, state: State) -> None:
    """Check that the recipe has all keys that a command needs, and that the trainers support the stages.

    Raises:
        ValueError: a key is missing, or a trainer does not support the stage.
    """
    if command == "distill" and recipe.teacher is None:
        raise ValueError("teacher: none given, but distill needs one; set teacher.checkpoint=bundled, for example")
    if command == "sft" and not recipe.data.trajectories:
        raise ValueError("data.trajectories: none given; give files written by `tirjudge train sample`")
    if command == "ttrl" and not recipe.tools and recipe.voting.min_verified_mass > 0:
        raise ValueError("voting.min_verified_mass: without tools nothing is verified; set it to 0")
    for kind in get_args(TrainedKind):
        if any(stage.kind == kind for stage in state.stages):
            trainer_of(recipe, kind).check(recipe, kind=kind, without_labels=command == "ttrl")


def _facts_of(recipe: Recipe) -> dict[str, str]:
    """Return hashes of the checkpoint and the files that a recipe refers to."""
    facts = {}
    if recipe.start.weak is None:
        start = _checkpoint_folder(recipe.start.checkpoint, key="start.checkpoint")
        facts["start"] = fingerprint(start)
        if (
            format := format_named(resolved_profile(start).format).name
        ) != FIRST_FORMAT:  # older runs have no such entry
            facts["format"] = format
    files = [Path(file) for file in recipe.data.trajectories]
    for file in files:
        if not file.is_file():
            raise ValueError(f"data.trajectories: {file} is not a file")
    if files:
        facts["trajectories_sha256"] = hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()
    return facts


def _checkpoint_folder(checkpoint: str | None, *, key: str) -> Path:
    """Return the folder that a recipe gives for a checkpoint; None or `bundled`: the folder of the bundled judge.

    Raises:
        CheckpointError: the folder does not exist; the message names the `key` of the recipe.
    """
    if checkpoint in (None, BUNDLED):
        return bundled_checkpoint()
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise CheckpointError(f"{key}: not a checkpoint folder: {folder}")
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run in progress."""

    folder: RunFolder
    recipe: Recipe
    data: TrainingData
    callback: Callback
    chat_key: str | None

    @property
    def state(self) -> State:
        return self.folder.state

    def do(self, stage: StageRecord) -> None:
        """Run one stage. If it is done already, only verify that its output is unchanged.

        Raises:
            ValueError: the output of the finished stage is missing or was changed.
        """
        if stage.status == "done":
            output = None if stage.output is None else self.folder.absolute(stage.output)
            if output is not None and (not output.exists() or sha256_of(output) != stage.sha256):
                raise ValueError(
                    f"{output}: changed since stage {stage.name} wrote it; restore it, or start again with another --out"
                )
            return
        stage.status = "running"
        stage.input = self._input_of(stage)
        self.folder.save()
        self.callback.began(stage)
        make = {"start": self._start, "sample": self._sample, "sft": self._learn, "rl": self._learn}[stage.kind]
        with _full_disk_as_oserror():
            output = make(stage)
        if output is not None:
            stage.output, stage.sha256 = self.folder.relative(output), sha256_of(output)
        stage.status = "done"
        self._choose(stage)
        self.folder.save()
        shutil.rmtree(self._folder(stage) / "trainer", ignore_errors=True)
        self.callback.ended(stage)

    def _folder(self, stage: StageRecord) -> Path:
        return self.folder.path.resolve() / stage.name

    def _output(self, name: str) -> Path:
        output = self.state.stage(name).output
        assert output is not None, f"{name} is done and has an output"
        return self.folder.absolute(output).resolve()

    def _input_of(self, stage: StageRecord) -> str | None:
        """Return the input checkpoint: the start for SFT (TIR-Judge, Sec. 4.3), the current judge for other stages."""
        if stage.kind == "start":
            return None
        name = START if stage.kind == "sft" else self.state.current
        assert name is not None, "the stage `start` runs first"
        return self.state.stage(name).output

    # Kinds of stages

    def _counter(self, doing: str, *, total: int, done: int = 0) -> Callable[[], None]:
        """Return a function that reports progress. It must be called after each item."""
        numbers = count(done + 1)
        return lambda: self.callback.moved(doing, next(numbers), total, {})

    def _start(self, stage: StageRecord) -> Path:
        wanted = self.recipe.start.weak
        if wanted is None:
            checkpoint = _checkpoint_folder(self.recipe.start.checkpoint, key="start.checkpoint").resolve()
        else:
            checkpoint = self._folder(stage) / "checkpoint"
            _train_weak_start(wanted, out=checkpoint, callback=self.callback)
        self._measure(stage, checkpoint=checkpoint)
        return checkpoint

    def _sample(self, stage: StageRecord) -> Path:
        folder, wanted = self._folder(stage), self.recipe.sampling
        items = self.data.train[: wanted.limit]
        shards = asyncio.run(self._sample_shards(stage, items, folder=folder))
        sampled = [trajectory for shard in shards for trajectory in read_trajectories(shard)]
        kept = keep_best(sampled, preset=wanted.preset, per_prompt=wanted.keep_per_prompt)
        write_trajectories(folder / KEPT, kept.trajectories)
        stage.counts = {
            "sampled": kept.num_sampled,
            "perfect": kept.num_perfect,
            "of_losing_strategy": kept.num_of_losing_strategy,
            "kept": len(kept.trajectories),
            "dropped_items": len(items) - len({trajectory.item_id for trajectory in sampled}),
        }
        counted = {f"sample/{name}": float(count) for name, count in stage.counts.items()}
        with MetricsJournal(self.folder.path, recipe=self.recipe) as journal:
            journal.write(counted, stage=stage.name, step=len(shards))
        return folder / KEPT

    async def _sample_shards(self, stage: StageRecord, items: Sequence[TrainingItem], *, folder: Path) -> list[Path]:
        """Sample all items, one file per `sampling.shard` items. Existing files of a killed run are kept."""
        wanted = self.recipe.sampling
        parts = {
            folder / "shards" / f"{start:08d}.parquet": items[start : start + wanted.shard]
            for start in range(0, len(items), wanted.shard)
        }
        missing = {path: part for path, part in parts.items() if not path.exists()}
        if not missing:
            return list(parts)
        plan = SamplingPlan(
            seed=self.recipe.seed_of(stage.name),
            num_rollouts=wanted.rollouts,
            temperature=wanted.temperature,
            tools=self.recipe.tools_switch,
            max_tool_calls=self.recipe.rl.max_tool_calls,
            both_orders=wanted.preset == "robust",
            rule=self.recipe.reward,
            concurrency=wanted.concurrency,
        )
        num_done = len(items) - sum(map(len, missing.values()))
        on_item = self._counter("sampling", total=len(items), done=num_done)
        async with self._sampler(stage) as (judge, student):
            for path, part in missing.items():
                sampled = await sample_items(judge, part, plan=plan, student=student, on_item=on_item)
                write_trajectories(path, sampled.trajectories)
        return list(parts)

    @asynccontextmanager
    async def _sampler(self, stage: StageRecord) -> AsyncIterator[tuple[Judge, Student | None]]:
        """Yield the judge to sample from, and the student. The student is None unless the judge is a teacher with another
        tokenizer or other size limits."""
        teacher = self.recipe.teacher if self.state.command in ("distill", "sample") else None
        async with AsyncExitStack() as stack:
            if teacher is None:
                assert stage.input is not None
                policy = await open_policy(self.folder.absolute(stage.input), recipe=self.recipe, stack=stack)
                yield policy.judge, None
                return
            start = self._output(START)
            judge = await stack.enter_async_context(_open_teacher(teacher, recipe=self.recipe, key=self.chat_key))
            yield (
                judge,
                None if _writes_like(teacher, judge=judge, student=start) else Student.load(start, tools=judge.tools),
            )

    def _learn(self, stage: StageRecord) -> Path | None:
        """Run SFT or RL and return the new checkpoint. None: no trajectory was kept for SFT, so the stage is skipped."""
        files: tuple[Path, ...] = ()
        if stage.kind == "sft":
            before = self.state.stages[self.state.stages.index(stage) - 1]
            given = [Path(file).resolve() for file in self.recipe.data.trajectories]
            files = tuple(given) if self.state.command == "sft" else (self._output(before.name),)
            stage.counts = {"trajectories": sum(len(read_trajectories(file)) for file in files)}
            if not stage.counts["trajectories"]:
                stage.accepted, stage.complaints = False, ["no trajectory was worth learning from"]
                return None
        assert stage.input is not None
        folder, start = self._folder(stage), self.folder.absolute(stage.input).resolve()
        job = StageJob(
            recipe=self.recipe,
            kind="sft" if stage.kind == "sft" else "rl",
            name=stage.name,
            run=self.folder.path.resolve(),
            start=start,
            folder=folder / "trainer",
            samples=files,
            without_labels=self.state.command == "ttrl",
        )

        trained = learn(job, data=self.data, on_step=partial(self.callback.moved, "training"))
        validation = self._measure(stage, checkpoint=trained.checkpoint)
        self._export(trained, stage=stage, start=start, validation=validation, out=folder / "checkpoint")
        return folder / "checkpoint"

    def _export(
        self, trained: TrainedStage, *, stage: StageRecord, start: Path, validation: Validation | None, out: Path
    ) -> None:
        from transformers import AutoModelForCausalLM

        from tirjudge_training.checkpoints import export_checkpoint, load_tokenizer, trained_profile, weights_sha256

        measured = {} if validation is None else validation.metrics()
        export_checkpoint(
            AutoModelForCausalLM.from_pretrained(trained.checkpoint, dtype="auto", local_files_only=True),
            load_tokenizer(start),
            out=out,
            profile=trained_profile(start),
            lineage=Lineage(
                parent=weights_sha256(start),
                run_id=self.folder.path.resolve().name,
                stage=stage.name,
                weights_version=trained.step,
                git_commit=commit_of(Path(__file__).parent),
                data_sha256=self.data.sha256,
            ),
            metrics={name: value for name, value in measured.items() if value is not None} or None,
        )

    # Held-out items

    def _measure(self, stage: StageRecord, *, checkpoint: Path) -> Validation | None:
        """Judge the held-out items with a checkpoint. None: no held-out items."""
        if not self.data.held_out:
            return None
        validation = asyncio.run(self._validate(checkpoint))
        stage.validation = validation.record()
        write_validation(validation, self.folder.path / "eval" / f"{stage.name}.json")
        steps = (row.step for row in read_metrics(self.folder.path / FILE) if row.stage == stage.name)
        with MetricsJournal(self.folder.path, recipe=self.recipe) as journal:
            journal.write(validation.metrics(), stage=stage.name, step=max(steps, default=0))
        return validation

    async def _validate(self, checkpoint: Path) -> Validation:
        on_item = self._counter("validating", total=len(self.data.held_out))
        async with AsyncExitStack() as stack:
            policy = await open_policy(checkpoint, recipe=self.recipe, stack=stack)
            return await validate_held_out(policy.judge, self.data, recipe=self.recipe, on_item=on_item)

    def _choose(self, stage: StageRecord) -> None:
        """Decide whether later stages build on the stage, and update the best checkpoint."""
        if stage.kind == "sample" or stage.output is None:
            return
        decided = self._decide(stage)
        stage.accepted, stage.complaints = decided.accepted, list(decided.complaints)
        if not decided.accepted:
            return
        self.state.current = stage.name
        best = None if self.state.best is None else self.state.stage(self.state.best).validation
        now = stage.validation
        # If two stages have equal accuracy, the later one is the best. Without labels, the last stage is the best.
        if self.state.command == "ttrl" or best is None or now is None or now.accuracy >= best.accuracy:
            self.state.best = stage.name
            self.folder.mark_best(self.folder.absolute(stage.output))

    def _decide(self, stage: StageRecord) -> Decided:
        """Apply the gate. Without labels, the stage is accepted, and regressions are only recorded."""
        current = self.state.current
        if current is None or stage.validation is None:
            return Decided(accepted=True, complaints=())
        before, after = (read_validation(self.folder.path / "eval" / f"{n}.json") for n in (current, stage.name))
        rule = self.recipe.gate
        if self.state.command == "ttrl" and rule.mode == "reject":
            rule = rule.model_copy(update={"mode": "warn"})
        return compare(before.score(), after.score(), rule=rule)


@contextmanager
def _full_disk_as_oserror() -> Iterator[None]:
    """Translate a full disk, which libraries report with their own exception types, to OSError.

    Raises:
        OSError: the disk is full.
    """
    try:
        yield
    except (ValueError, OSError):
        raise
    except Exception as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def _train_weak_start(wanted: WeakStart, *, out: Path, callback: Callback) -> None:
    from tirjudge_training.bundled.build import continuing, train_bundled
    from tirjudge_training.bundled.sft import BundledRecipe, StepReport
    from tirjudge_training.synthetic.teacher_errors import TeacherErrors

    names = set(WeakStart.model_fields) - {"parent", "steps", "workers", "guesses", "wrong_plans", "mixture"}
    recipe = BundledRecipe(
        **{name: getattr(wanted, name) for name in names},
        num_steps=wanted.steps,
        num_workers=wanted.workers,
        mixture=mixture_of(wanted.mixture),
        erring=TeacherErrors(guesses=wanted.guesses, wrong_plans=wanted.wrong_plans),
    )
    if wanted.parent is not None:
        recipe = continuing(recipe, _checkpoint_folder(wanted.parent, key="start.weak.parent"))

    def on_step(report: StepReport) -> None:
        callback.moved("training a weak judge", report.step + 1, wanted.steps, {"train/loss": report.loss})

    out.parent.mkdir(parents=True, exist_ok=True)
    train_bundled(recipe, out=out, on_step=on_step)


@asynccontextmanager
async def _open_teacher(teacher: Teacher, *, recipe: Recipe, key: str | None) -> AsyncIterator[Judge]:
    """Yield the teacher's judge with a real sandbox."""
    folder = None if teacher.checkpoint is None else _checkpoint_folder(teacher.checkpoint, key="teacher.checkpoint")
    urls = () if teacher.engine_url is None else [teacher.engine_url]
    address = address_of(checkpoint=folder, engine_urls=urls, chat_url=teacher.chat_url, chat_model=teacher.chat_model)
    tool_options = ToolOptions(slots=recipe.sandbox.slots, allow_unsafe_sandbox=recipe.sandbox.allow_unsafe)
    options = EngineOptions(profile=folder, key=key if teacher.chat_url else None)
    tools = [PYTHON, *recipe.functions]
    async with open_judge(address, tools=tools, options=options, tool_options=tool_options) as judge:
        yield judge


def _writes_like(teacher: Teacher, *, judge: Judge, student: Path) -> bool:
    """Whether the token ids of the teacher are valid for the student: same tokenizer, same format, same chat template with
    the same options, and same size limits of prompts."""
    if teacher.checkpoint is None:
        return False
    folder = _checkpoint_folder(teacher.checkpoint, key="teacher.checkpoint")
    if not (folder / "tokenizer.json").exists() or tokenizer_sha256_of(folder) != tokenizer_sha256_of(student):
        return False
    own = resolved_profile(student)
    if judge.format is not format_named(own.format) or chat_template_of(folder) != chat_template_of(student):
        return False
    sizes = (
        "chat_template_kwargs",
        "context_tokens",
        "rollout_tokens",
        "prompt_chars",
        "response_chars",
        "all_responses_chars",
    )
    return all(getattr(judge.profile, name) == getattr(own, name) for name in sizes)
