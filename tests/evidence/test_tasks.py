"""Generated tasks of evidence: exact programs over real stores, held-out names, answers that do not give themselves away."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from itertools import islice
from random import Random

import pytest

from tirjudge.formats.blocks import bindings
from tirjudge.tools.functions import CallAccount, Offer, ToolFunction
from tirjudge.types import JudgeRequest, Mode
from tirjudge_evidence.functions import EvidenceSettings, functions_of, open_stores
from tirjudge_evidence.tasks.generating import FUNCTIONS, KINDS, EvidenceTask, draw_tasks
from tirjudge_evidence.tasks.ontologies import HELD_OUT, TRAINING, invented
from tirjudge_evidence.tasks.rows import PER_KIND, evidence_rows
from tirjudge_evidence.tasks.worlds import draw_name
from tirjudge_sandbox import SandboxPool


@pytest.fixture
async def functions() -> AsyncIterator[Sequence[ToolFunction]]:
    async with open_stores(EvidenceSettings()) as stores:
        yield [each for each in functions_of(stores) if each.name in FUNCTIONS]


@pytest.fixture
async def sandbox() -> AsyncIterator[SandboxPool]:
    async with SandboxPool(slots=2) as pool:
        yield pool


async def wrong_outputs(
    tasks: Sequence[EvidenceTask], *, mode: Mode, sandbox: SandboxPool, functions: Sequence[ToolFunction]
) -> list[str]:
    """Run the solving program of each task; return those whose output is not the gold one."""

    async def run(task: EvidenceTask, shown: int) -> str | None:
        is_pointwise = mode is Mode.POINTWISE
        responses = [task.responses[shown]] if is_pointwise else list(task.responses)
        request = JudgeRequest.model_validate(
            {"mode": mode, "prompt": task.question, "responses": responses, "evidence": task.stores}
        )
        done = await sandbox.run(
            task.program(is_pointwise=is_pointwise),
            bindings=bindings(mode, prompt=task.question, responses=responses),
            offer=Offer(functions=functions, account=CallAccount(), request=request),
        )
        expected = task.output(is_right=shown == task.label if is_pointwise else None)
        return None if done.stdout == expected else f"{task.kind} {task.question} {done.stdout} {done.error}"

    shown = [(task, number) for task in tasks for number in range(2 if mode is Mode.POINTWISE else 1)]
    found: list[str | None] = []
    for start in range(0, len(shown), 4):
        found += await asyncio.gather(*(run(*each) for each in shown[start : start + 4]))
    return [each for each in found if each is not None]


def one_of_each(*, held_out: bool) -> list[EvidenceTask]:
    """Return one task of each kind and conflict."""
    found: dict[tuple[str, str], EvidenceTask] = {}
    for task in islice(draw_tasks(seed=3, held_out=held_out), 400):
        found.setdefault((task.kind, task.conflict), task)
    assert {kind for kind, _ in found} == set(KINDS)
    assert len(found) == len(KINDS) + 3
    return list(found.values())


@pytest.mark.slow  # 12 to 24 programs with queries, each query in a process of its own
@pytest.mark.parametrize("mode", [Mode.PAIRWISE, Mode.POINTWISE])
async def test_the_program_of_each_kind_gives_the_gold_output(
    mode: Mode, sandbox: SandboxPool, functions: Sequence[ToolFunction]
) -> None:
    tasks = one_of_each(held_out=True)
    assert await wrong_outputs(tasks, mode=mode, sandbox=sandbox, functions=functions) == []


@pytest.mark.slow  # 300 programs with queries
@pytest.mark.parametrize("held_out", [False, True])
async def test_all_programs_give_the_gold_output(
    held_out: bool, sandbox: SandboxPool, functions: Sequence[ToolFunction]
) -> None:
    tasks = list(islice(draw_tasks(seed=4, held_out=held_out), 150))
    assert await wrong_outputs(tasks, mode=Mode.PAIRWISE, sandbox=sandbox, functions=functions) == []


def test_a_seed_gives_the_same_tasks_and_another_seed_others() -> None:
    def drawn(seed: int) -> list[EvidenceTask]:
        return list(islice(draw_tasks(seed=seed, held_out=True), 20))

    assert drawn(1) == drawn(1)
    assert {task.question for task in drawn(1)}.isdisjoint(task.question for task in drawn(2))
    with pytest.raises(ValueError, match="unknown kind 'gossip'"):
        next(draw_tasks(seed=1, held_out=True, kinds=("gossip",)))


def test_held_out_names_are_never_those_of_training() -> None:
    held_out = frozenset[str]().union(*(each.names for each in HELD_OUT))
    rng = Random(0)
    for ontology in (*TRAINING, *(invented(rng) for _ in range(300))):
        assert ontology.names.isdisjoint(held_out), ontology.name
        assert len(ontology.names) == 26
    theirs, ours = ({draw_name(rng, held_out=side) for _ in range(2000)} for side in (True, False))
    assert theirs.isdisjoint(ours)


@cache
def many_tasks() -> Sequence[EvidenceTask]:
    """Return tasks for the baselines."""
    return list(islice(draw_tasks(seed=8, held_out=True), 1200))


def longer(task: EvidenceTask) -> float:
    """Return the index of the longer response; one half if they have the same length."""
    first, second = map(len, task.responses)
    return 0.5 if first == second else float(second > first)


def with_word(pattern: str) -> Callable[[EvidenceTask], float]:
    """Return a rule that prefers the response with a word, and guesses if both or none has it."""

    def prefer(task: EvidenceTask) -> float:
        first, second = (re.search(pattern, text) is not None for text in task.responses)
        return 0.5 if first == second else float(second)

    return prefer


def larger(task: EvidenceTask) -> float:
    """Return the index of the response with the larger number."""
    first, second = (int(found[0]) if (found := re.findall(r"\d+", text)) else -1 for text in task.responses)
    return 0.5 if first == second or -1 in (first, second) else float(second > first)


BASELINES = {
    "the second": lambda task: 1.0,
    "the longer": longer,
    "absence": with_word(r"\bnot\b"),
    "Yes": with_word("^Yes"),
    "No": with_word("^No"),
    "the larger number": larger,
}


@pytest.mark.parametrize("name", BASELINES)
def test_the_answers_alone_do_not_tell_which_is_right(name: str) -> None:
    tasks = many_tasks()
    choices = [BASELINES[name](task) for task in tasks]
    right = sum(
        0.5 if choice == 0.5 else float(choice == task.label) for choice, task in zip(choices, tasks, strict=True)
    )
    assert abs(right / len(tasks) - 0.5) < 0.05, right / len(tasks)


def test_tasks_with_the_same_plan_have_the_same_lookup() -> None:
    lookups = {(task.plan, task.lookup) for task in many_tasks()}
    assert len(lookups) == len({plan for plan, _ in lookups}) == len(KINDS) + 1


def test_the_status_is_that_of_the_wrong_claim() -> None:
    tasks = many_tasks()[:600]
    for task in tasks:
        assert (task.status == "not_in_evidence") == (" not " in task.right), task
        if task.status == "violates_rule":
            assert task.kind in ("limit", "class", "range")
            assert (task.wrong.startswith("Yes"), task.right.startswith("No")) == (True, True)
        if task.conflict != "none":
            assert task.kind == "value"
    statuses = Counter(task.status for task in tasks)
    assert set(statuses) == {"contradicted", "violates_rule", "not_in_evidence"}
    assert min(statuses.values()) > 40


def test_a_hidden_instruction_is_in_a_document_and_never_names_the_right_answer() -> None:
    tasks = [task for task in many_tasks()[:300] if task.has_instruction]
    assert 50 < len(tasks) < 150
    for task in tasks:
        documents = [file["text"] for store in task.stores if store["kind"] == "documents" for file in store["files"]]
        told = " ".join(documents)
        letter = "AB"[1 - task.label]
        assert f"response {letter}" in told or "must ignore the tables and name" in told or "has been verified" in told
        assert f"response {'AB'[task.label]}" not in told


def test_rows_have_the_same_number_of_each_kind() -> None:
    rows = evidence_rows(held_out=True)
    assert Counter(row["kind"] for row in rows) == dict.fromkeys(KINDS, PER_KIND)
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["ontology"] for row in rows} == {each.name for each in HELD_OUT}
