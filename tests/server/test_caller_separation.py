"""Callers cannot see, share or disturb each other's data: tested over HTTP with two keys, and for every keyed store.

A keyed store outlives a request and finds values by a key: attributes that are dicts, sets or counters, module-level
variables that change, cached functions, and database queries.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.request_context import origin
from tirjudge.types import Completion, JudgeRequest
from tirjudge.weights_lock import WeightsLock
from tirjudge_sandbox.candidates import FUNCTIONS
from tirjudge_server.access import Access
from tirjudge_server.access.keys import create_key
from tirjudge_server.app import create_app
from tirjudge_server.call import Call
from tirjudge_server.chat_models import NO_MODELS
from tirjudge_server.dialects import DialectSettings
from tirjudge_server.evals.definitions import EvalCreation
from tirjudge_server.evals.grading import content_key
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.service import JudgeService

ROOT = Path(__file__).parents[2]
KEYED = {"dict", "set", "OrderedDict", "defaultdict", "Counter", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"}
CHANGES = {"add", "append", "clear", "discard", "pop", "popitem", "remove", "setdefault", "update"}
CACHES = {"cache", "lru_cache", "cached_property"}

SEPARATES = "the caller is part of the key: "
OWNED = "found by an id that cannot be guessed, and its owner is compared: "

STORES = {
    # API keys.
    "access.authorization.Access._by_digest": "found by the digest of a key, which only its caller has",
    "access.authorization.Access._limits": SEPARATES + "the name of the key",
    "access.keys.create_key": "an operator's command",
    "access.keys.load_keys": "reads all keys, for `Access`",
    "access.keys.revoke_key": "an operator's command",
    "access.sessions.session_key_name": "found by the digest of a session, which only its browser has",
    # Judgments in flight.
    "accounts.CallerAccounts._by_caller": SEPARATES + "test_function_calls_are_counted_per_caller",
    "admission.Admission._running": SEPARATES + "a counter of callers",
    "admission.Admission._waiting": SEPARATES + "a line for each caller",
    "admission.Admission._last_turn": SEPARATES + "a number for each caller",
    "coalescing.InFlightJudgments._by_key": SEPARATES + "test_judgment_in_flight_is_shared_within_one_caller_only",
    "dialects.gathering.Gathering._open": SEPARATES + "test_cohorts_with_the_same_group_id_are_separate_per_caller",
    "dialects.gathering.Gathering._finished": SEPARATES + "test_cohorts_with_the_same_group_id_are_separate_per_caller",
    "dialects.gathering._Group.members": "the members of one group, which has one caller",
    # Files and batches.
    "openai.filestore.FileStore._files": OWNED + "test_files_and_batches_are_visible_to_their_caller_only",
    "openai.filestore.FileStore._uploads": SEPARATES + "each upload with its owner; counted by owner",
    "openai.batchstore.BatchStore._batches": OWNED + "test_files_and_batches_are_visible_to_their_caller_only",
    "openai.batchstore.BatchProgress.done": "the lines of one batch",
    "jobs.Jobs._runs": "found by the id of a job that its store gave to its owner",
    "jobs.Jobs._work": "found by the id of a job that its store gave to its owner",
    # Prompts, the reference and pages.
    "openai.own_words.own_rubrics": "texts of installed formats",
    "tirjudge_web.openapi._docstrings_of": "docstrings of this program",
    "ui.playground._EXAMPLES": "examples of this program",
    "ui.harness_processes.HarnessProcesses._problems": "found by the folder of a run that its reader may read",
    "ui.harness_processes.HarnessProcesses._rest_until": "found by the folder of a run that its reader may read",
    "ui.harness_processes.HarnessProcesses._tasks": "found by the folder of a run that its reader may read",
    # Evals.
    "chat_models.ChatModels._endpoints": "endpoints of the operator",
    "chat_models.ChatModels._taken": "one run of an eval, or one request",
    "evals.running.EvalRunner._file_of": "found by the id of a run that `EvalStore` gave to its owner",
    "evals.store.EvalStore.__init__": "creates the tables, removes the oldest scores, and sums bytes by owner",
    "caller_schema.CallerSchema._patterns": "the patterns of one schema",
    "caller_schema.CallerSchema._given": "the patterns of one schema",
    "evals.store.EvalStore._clock": "the clock of the database",
    "evals.store.EvalStore._add_bytes": "the counter of the owner of a run",
    "evals.store.EvalStore._check_room": SEPARATES + "counts the runs of an owner",
    "evals.store.EvalStore._delete_run": "found by the id of a run that `get_run` gave to its owner",
    "evals.store.EvalStore.create_eval": SEPARATES + "counts the evals of an owner",
    "evals.store.EvalStore.create_run": "belongs to the owner of its eval",
    "evals.store.EvalStore.delete_eval": "found by the id of an eval that `get_eval` gave to its owner",
    "evals.store.EvalStore.eval_ids": SEPARATES + "test_evals_and_their_runs_are_visible_to_their_caller_only",
    "evals.store.EvalStore.find_score": SEPARATES + "test_results_of_graders_are_kept_for_their_caller_only",
    "evals.store.EvalStore.finish_row": "a row of one run",
    "evals.store.EvalStore.given_rows": "the rows of one run",
    "evals.store.EvalStore.graded_rows": "the rows of one run",
    "evals.store.EvalStore.known_eval": OWNED + "test_evals_and_their_runs_are_visible_to_their_caller_only",
    "evals.store.EvalStore.known_run": OWNED + "test_evals_and_their_runs_are_visible_to_their_caller_only",
    "evals.store.EvalStore.listed_evals": SEPARATES + "the reader of a page",
    "evals.store.EvalStore.listed_runs": "the runs of one eval that its reader may read",
    "evals.store.EvalStore.queued": "runs that the server itself runs",
    "evals.store.EvalStore.renew": "runs that servers run, and sums by owner",
    "evals.store.EvalStore.row": "a row of one run",
    "evals.store.EvalStore.run_ids": "the runs of one eval",
    "evals.store.EvalStore.unfinished": "runs that the server itself runs",
    "evals.store.EvalStore.update_eval": OWNED + "test_evals_and_their_runs_are_visible_to_their_caller_only",
    "evals.store.EvalStore.waiting_rows": "the rows of one run",
    "evals.store._size": "the rows of one run",
    "evals.store._sizes": SEPARATES + "sums by owner",
    "evals.tally.Tally.criteria": "one run",
    "evals.tally.Tally.models": "one run",
    "openai.chat_grading._prompt": "a prompt file",
    # Records.
    "records.store.Records.contents": SEPARATES + "test_rows_from_the_records_are_those_of_the_caller",
    "records.replayed_calls.ReplayedCalls._left": "the calls of one program of one judgment",
    "records.replayed_calls.ReplayedCalls._present": "functions that the operator enabled",
    "records.store._BY_CONTENT": SEPARATES + "test_recorded_judgment_is_reused_for_its_caller_only",
    "records.store._BY_IDEMPOTENCY": SEPARATES + "test_idempotency_keys_are_separate_per_caller",
    "records.labels.labels_of": "found by the id of a judgment that the reader may read",
    "records.labels._raters": "an operator's command",
    "records.labels.labeled_rows": "an operator's command",
    "records.store.Records.neighbours": SEPARATES + "the caller of the list",
    "records.store.Records.page": SEPARATES + "test_records_are_visible_to_their_caller_only",
    "records.account_page._template": "a template file",
    "records.store.find_record": OWNED + "test_records_are_visible_to_their_caller_only",
    "records.store._ANY": "whether there is any record at all, for `/ready`",
    "records.chain.Chain.pending": "one transaction, whose keys hold the caller",
    "records.chain._HOLD_HEAD": "the head of the chain, which holds no content",
    "records.audit._Walk.erasures": "an auditor's command",
    "records.audit.export": "an auditor's command",
    "records.audit.verify": "an auditor's command",
    "records.erasing.erase": "an operator's command",
    "records.erasing.prune_some": "erases by age, whosever it is",
    "records.migrating._revision": "the version of the schema",
    # Counters for the operator. They contain no text from callers.
    "failure.Fallbacks.counts": "counts by dialect and reason, for `/metrics`",
    # Stores that belong to one request.
    "openai.chunks._Writer._head": "one stream",
    "openai.grading.Given._lengths": "one run of a grader",
    "openai.python_grader._program": "the text of a program of ours",
    "openai.apart.grader_side.namespace": "the process of one grader, in the sandbox",
    "openai.apart.grader_side.spaces": "the process of one grader, in the sandbox",
    # Data that is the same for all callers.
    "dialects.systemone._template": "a prompt file",
    "openai.decisions._template": "a prompt file",
    # The sandbox service has no callers: every key may run programs, and nothing of a program is kept.
    "tirjudge_sandbox.pool.SandboxPool._servers": "fork-servers by preset",
    "tirjudge_sandbox.pool.SandboxPool._starting": "locks by preset",
    "tirjudge_sandbox.pool.SandboxPool._failed_at": "times by preset",
    "tirjudge_sandbox.pool.SandboxPool._num_since_start": "counts by preset",
    "tirjudge_sandbox.pool.SandboxPool._cgroups": "control groups by slot",
    "tirjudge_sandbox.pool.SandboxPool._background": "tasks that are under way",
    "tirjudge_sandbox.pool.SandboxPool._num_by_outcome": "counts by outcome",
    "tirjudge_sandbox.pool.SandboxPool._num_by_preset": "counts by preset",
    "tirjudge_sandbox.slots.ProgramSlot.processes": "processes by preset; each program has a new one",
    "tirjudge_sandbox.metrics.SandboxMetrics._programs": "counts by outcome and preset",
    "tirjudge_sandbox.metrics.SandboxMetrics._turned_away": "one count",
    # The web layer of the server and of the sandbox service.
    "tirjudge_web.body_budget.BodyBudget._reading": "bodies that come in, by their beginnings; no text of a caller",
    "tirjudge_web.connections.Connections.open": "connections, each with what it is doing; no text of a caller",
    "tirjudge_web.connections.Connections._waiting": "the same in the order of waiting",
    "tirjudge_web.http_connection._seconds": "how a time of the configuration is written",
    "tirjudge_web.draining.Draining._deadlines": "the ends of requests under way",
    "tirjudge_web.errors.Refused.headers": "one answer",
}
"""Store -> why callers are separate in it, with the name of the test in this file if there is one."""


def stores() -> set[str]:
    """Every keyed store of the server and of the sandbox service, by module and name."""
    server = ROOT / "server" / "tirjudge_server"
    sandbox = ROOT / "sandbox" / "tirjudge_sandbox"
    names = ("app", "service", "serving", "metrics", "pool", "slots", "sandbox_fusion", "verl_tool", "remote")
    files = [
        file for file in server.rglob("*.py") if "planning" not in file.parts
    ]  # a command, not a part of the server
    files += [sandbox / f"{name}.py" for name in names]
    files += (ROOT / "web" / "tirjudge_web").glob("*.py")
    found: set[str] = set()
    for file in files:
        room = next(parent for parent in file.parents if parent.parent.parent == ROOT)
        prefix = "" if room == server else f"{room.name}."
        module = prefix + ".".join(file.relative_to(room).with_suffix("").parts)
        found |= {f"{module}.{name}" for name in _stores_in(ast.parse(file.read_text(encoding="utf-8")))}
    return found


def _stores_in(tree: ast.Module) -> Iterator[str]:
    for node, owner in _with_owners(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                if _is_keyed(value, annotation=None):
                    yield f"{owner}{name}"
            case ast.AnnAssign(
                target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=kind, value=value
            ):
                if _is_keyed(value, annotation=kind):
                    yield f"{owner}{name}"
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if owner and _is_keyed(value, annotation=None):
                # `parts: Mapping = field(default_factory=dict)` is never changed.
                if not _names(node.annotation) & {"Mapping"}:
                    yield f"{owner}{name}"
            case ast.FunctionDef(name=name, decorator_list=decorators) if any(_names(d) & CACHES for d in decorators):
                yield f"{owner}{name}"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if _selects(node):
                yield f"{owner}{name}"
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if _selects(value) or (_is_keyed(value, annotation=None) and _changes(tree, name)):
                    yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value):
                if _is_keyed(value, annotation=kind) and _changes(tree, name):
                    yield name


def _with_owners(tree: ast.AST, owner: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield every node with the name of its class; nested functions belong to the outer function."""
    for node in ast.iter_child_nodes(tree):
        yield node, owner
        if isinstance(node, ast.ClassDef):
            yield from _with_owners(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # Local variables do not outlive the function; attributes of `self` do.
            assigned = (inner for inner in ast.walk(node) if isinstance(inner, ast.Assign | ast.AnnAssign))
            yield from ((inner, owner) for inner in assigned if not _is_variable(inner))


def _is_variable(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(target, ast.Name) for target in targets)


def _is_keyed(value: ast.expr | None, *, annotation: ast.expr | None) -> bool:
    if annotation is not None and _names(annotation) & (KEYED | {"Mapping", "MutableMapping"}):
        return True
    match value:
        case ast.Dict() | ast.DictComp() | ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=function, keywords=keywords):
            while isinstance(function, ast.Subscript):
                function = function.value
            if _names(function) == {"field"}:  # `field` of a dataclass; pydantic's `Field` belongs to requests
                return any(keyword.arg == "default_factory" and _names(keyword.value) & KEYED for keyword in keywords)
            return _names(function) & KEYED == _names(function) != set()
        case _:
            return False


def _names(node: ast.AST) -> set[str]:
    named = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return named | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _selects(node: ast.AST) -> bool:
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == "select" for function in calls)


def _changes(tree: ast.AST, name: str) -> bool:
    """Whether the module-level variable of this name is modified."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=found), ctx=ast.Store() | ast.Del()) if found == name:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr=method)) if found == name:
                if method in CHANGES:
                    return True
    return False


@pytest.mark.slow
def test_every_keyed_store_has_a_reason_why_callers_stay_separate() -> None:
    found = stores()
    new, gone = sorted(found - STORES.keys()), sorted(STORES.keys() - found)
    assert not new, (
        f"{', '.join(new)}: a new keyed store. Make the caller part of its key and add a test with two keys to this file, or "
        "say in one line why callers cannot meet there; then add it to STORES"
    )
    assert not gone, f"{', '.join(gone)}: no such store any more; take it out of STORES"


def test_tests_named_in_stores_exist() -> None:
    named = {
        word for reason in STORES.values() for word in reason.replace(":", " ").split() if word.startswith("test_")
    }
    assert named
    assert named <= globals().keys()


# Over HTTP, with two keys.


class Watched(ScriptedEngine):
    """Records the cache salt of each turn."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.salts: list[str | None] = []

    async def generate(self, token_ids: Sequence[int], **options: Any) -> Completion:
        self.salts.append(origin().cache_salt)
        return await super().generate(token_ids, **options)


class Two:
    """A server and its two callers.

    Attributes:
        service, engine: the judge service of the server, and its engine.
        alice, bob: clients with a key each.
    """

    service: JudgeService
    engine: Watched
    alice: httpx2.AsyncClient
    bob: httpx2.AsyncClient


def says(sequence: str) -> str:
    return "<score>7</score>" if "<response>" in sequence else "<preference>A</preference>"


@pytest.fixture
async def two(tmp_path: Path, connect: Any) -> AsyncIterator[Two]:
    own = Two()
    own.engine = Watched(says, delay_s=0.02, label_probs={"A": 0.8, "B": 0.2, "7": 0.9, "3": 0.1})
    judge = Judge(engine=own.engine, tools=(), weights=WeightsLock(version="f" * 16), profile=Profile(name="judge"))
    versions = versions_of(judge, fingerprint="f" * 16, isolation=None)
    async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
        access = Access(records.database)
        keys = [
            create_key(records.database, name=name, scopes=["judge", "reward", "read"]) for name in ("alice", "bob")
        ]
        await access.load()
        own.service = JudgeService(judge, records=records)
        settings = DialectSettings(patience_s=0.0, cohort_size=2, cohort_wait_s=60.0)
        files = tmp_path / "files"
        app = create_app(own.service, access=access, records=records, files=files, settings=settings)
        async with app.router.lifespan_context(app), connect(app) as own.alice, connect(app) as own.bob:
            for client, key in zip((own.alice, own.bob), keys, strict=True):
                client.headers["authorization"] = f"Bearer {key}"
            await own.service.readiness.wait()
            own.engine.salts.clear()  # remove the salts of the trial judgment
            yield own


BODY = {"mode": "pairwise", "prompt": "Which is longer?", "responses": ["one", "three"], "tools": "off"}


async def judged(client: httpx2.AsyncClient, **options: Any) -> str:
    """Post a request; return the id of its judgment."""
    answer = await client.post("/v1/judge", json=BODY, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


async def test_cohorts_with_the_same_group_id_are_separate_per_caller(two: Two) -> None:
    def rollout(text: str, number: int) -> dict[str, Any]:
        message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        return {
            "responses_create_params": {"input": "Say hello."},
            "response": {"id": f"resp_{number}", "output": [message]},
            "_ng_group_id": "g",
            "_ng_rollout_index": number,
        }

    path = "/verify?tools=off"
    async with asyncio.timeout(20):
        answers = await asyncio.gather(
            two.alice.post(path, json=rollout("first of alice", 0)),
            two.bob.post(path, json=rollout("second of bob", 1)),
            two.bob.post(path, json=rollout("first of bob", 0)),
            two.alice.post(path, json=rollout("second of alice", 1)),
        )
    assert [answer.json()["mask_sample"] for answer in answers] == [False] * 4
    for client, own, others in ((two.alice, "alice", "bob"), (two.bob, "bob", "alice")):
        records = (await client.get("/v1/judgments")).json()["data"]
        assert {record["caller"] for record in records} == {own}
        for record in records:
            shown = (await client.get(f"/v1/judgments/{record['id']}")).text
            assert f"of {own}" in shown
            assert f"of {others}" not in shown


async def test_judgment_in_flight_is_shared_within_one_caller_only(two: Two) -> None:
    num_before = two.service.in_flight.num_joined
    first, again, foreign = await asyncio.gather(judged(two.alice), judged(two.alice), judged(two.bob))
    assert first == again != foreign
    assert two.service.in_flight.num_joined + two.service.num_recalled == num_before + 1


async def test_recorded_judgment_is_reused_for_its_caller_only(two: Two) -> None:
    first = await judged(two.alice)
    foreign = await judged(two.bob)
    assert await judged(two.alice) == first != foreign
    assert await judged(two.bob) == foreign
    assert two.service.num_recalled == 2


async def test_idempotency_keys_are_separate_per_caller(two: Two) -> None:
    name = {"idempotency-key": "mine"}
    first = await judged(two.alice, headers=name)
    # Another request with the same key is refused with 422 for the same caller only.
    other = BODY | {"prompt": "Which is shorter?"}
    assert (await two.alice.post("/v1/judge", json=other, headers=name)).status_code == 422
    assert (await two.bob.post("/v1/judge", json=other, headers=name)).status_code == 200
    assert await judged(two.alice, headers=name) == first


async def test_function_calls_are_counted_per_caller(make_service: Any) -> None:
    """Each judgment makes two calls, and each caller may make three."""
    program = """```python
import itertools
for number in itertools.count():
    try:
        run("print(1)")
    except ToolError as error:
        print(number, error)
        break
    if number == 1:
        break
```
```output"""
    service = make_service(
        lambda sequence: "<preference>A</preference>" if program in sequence else program,
        functions=FUNCTIONS,
        calls_per_minute=3,
    )
    request = JudgeRequest.model_validate(BODY | {"tools": "auto"})
    outputs = {}
    for name, caller in (("first", "alice"), ("second", "alice"), ("foreign", "bob")):
        judgment = await service.answer(request, call=Call(caller=caller))
        outputs[name] = judgment.rollouts[0].turns[0].output
    assert outputs["first"] == outputs["foreign"] == ""
    assert outputs["second"] == "1 run: the budget of this caller per minute is used up: 3 calls"


async def test_records_are_visible_to_their_caller_only(two: Two) -> None:
    mine, theirs = await judged(two.alice), await judged(two.bob)
    unknown = "jdg_" + "0" * 32
    for path in ("/v1/judgments/{}", "/v1/judgments?after={}"):
        assert (await two.alice.get(path.format(mine))).status_code == 200
        foreign, missing = await two.alice.get(path.format(theirs)), await two.alice.get(path.format(unknown))
        assert foreign.status_code == missing.status_code == 404
        assert foreign.text.replace(theirs, "") == missing.text.replace(unknown, "")
    assert (await two.alice.post(f"/v1/judgments/{mine}/replay")).status_code == 200
    assert (await two.alice.post(f"/v1/judgments/{theirs}/replay")).status_code == 404


async def test_files_and_batches_are_visible_to_their_caller_only(two: Two) -> None:
    line = json.dumps({"custom_id": "1", "method": "POST", "url": "/v1/judge", "body": BODY}).encode()
    upload = {"files": {"file": ("items.jsonl", line)}, "data": {"purpose": "batch"}}
    file_id = (await two.alice.post("/v1/files", **upload)).json()["id"]
    asked = {"input_file_id": file_id, "endpoint": "/v1/judge", "completion_window": "24h"}
    assert (await two.bob.post("/v1/batches", json=asked)).status_code == 404
    batch_id = (await two.alice.post("/v1/batches", json=asked)).json()["id"]
    for path in (f"/v1/files/{file_id}", f"/v1/files/{file_id}/content", f"/v1/batches/{batch_id}"):
        assert (await two.alice.get(path)).status_code == 200
        assert (await two.bob.get(path)).status_code == 404
    assert (await two.bob.delete(f"/v1/files/{file_id}")).status_code == 404
    assert (await two.bob.post(f"/v1/batches/{batch_id}/cancel")).status_code == 404
    for path in ("/v1/files", "/v1/batches"):
        assert (await two.bob.get(path)).json()["data"] == []


CRITERION = {
    "type": "string_check",
    "name": "same",
    "input": "{{ item.text }}",
    "reference": "hello",
    "operation": "eq",
}
CUSTOM = {"type": "custom", "item_schema": {"type": "object"}}


async def new_eval(client: httpx2.AsyncClient, **fields: Any) -> str:
    """Create an eval; return its id."""
    body = {"data_source_config": CUSTOM, "testing_criteria": [CRITERION], **fields}
    answer = await client.post("/v1/evals", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


async def ended_run(client: httpx2.AsyncClient, eval_id: str, source: dict[str, Any]) -> dict[str, Any]:
    """Run an eval; return the ended run."""
    answer = await client.post(f"/v1/evals/{eval_id}/runs", json={"data_source": source})
    assert answer.status_code == 200, answer.text
    path = f"/v1/evals/{eval_id}/runs/{answer.json()['id']}"
    async with asyncio.timeout(60):
        while (run := (await client.get(path)).json())["status"] in ("queued", "in_progress"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return run


def rows_of(*texts: str) -> dict[str, Any]:
    content = [{"item": {"text": text}} for text in texts]
    return {"type": "jsonl", "source": {"type": "file_content", "content": content}}


async def test_evals_and_their_runs_are_visible_to_their_caller_only(two: Two) -> None:
    eval_id = await new_eval(two.alice)
    run = await ended_run(two.alice, eval_id, rows_of("hello"))
    paths = [f"/v1/evals/{eval_id}", f"/v1/evals/{eval_id}/runs", f"/v1/evals/{eval_id}/runs/{run['id']}"]
    paths.append(f"{paths[2]}/output_items")
    items = (await two.alice.get(paths[3])).json()["data"]
    paths.append(f"{paths[3]}/{items[0]['id']}")
    for path in paths:
        assert (await two.alice.get(path)).status_code == 200
        assert (await two.bob.get(path)).status_code == 404, path
    assert (await two.bob.post(paths[0], json={"name": "mine"})).status_code == 404
    assert (await two.bob.post(paths[1], json={"data_source": rows_of("hello")})).status_code == 404
    assert (await two.bob.post(f"{paths[2]}/cancel")).status_code == 404
    assert (await two.bob.delete(paths[2])).status_code == 404
    assert (await two.bob.delete(paths[0])).status_code == 404
    assert (await two.bob.get("/v1/evals")).json()["data"] == []
    # A run of one eval is not found under another eval, not even under the caller's own.
    own = await new_eval(two.bob)
    assert (await two.bob.get(f"/v1/evals/{own}/runs/{run['id']}")).status_code == 404
    upload = {"files": {"file": ("rows.jsonl", b'{"item": {}}')}, "data": {"purpose": "evals"}}
    file_id = (await two.alice.post("/v1/files", **upload)).json()["id"]
    source = {"type": "jsonl", "source": {"type": "file_id", "id": file_id}}
    assert (await two.bob.post(f"/v1/evals/{own}/runs", json={"data_source": source})).status_code == 404


def test_results_of_graders_are_kept_for_their_caller_only() -> None:
    (criterion,) = EvalCreation.model_validate(
        {
            "data_source_config": CUSTOM,
            "testing_criteria": [{"type": "python", "name": "p", "source": "def grade(sample, item): return 1.0"}],
        }
    ).testing_criteria
    values = {"item": {"text": "hello"}, "sample": {}}
    keys = {content_key(criterion, values, owner=owner, models=NO_MODELS) for owner in ("alice", "bob", None)}
    assert len(keys - {None}) == 3


async def test_rows_from_the_records_are_those_of_the_caller(two: Two) -> None:
    mine, _ = await judged(two.alice), await judged(two.bob)
    criterion = {**CRITERION, "input": "{{ item.id }}", "reference": mine}
    eval_id = await new_eval(two.alice, data_source_config={"type": "logs"}, testing_criteria=[criterion])
    source = {"type": "responses", "source": {"type": "responses"}}
    run = await ended_run(two.alice, eval_id, source)
    assert run["result_counts"] == {"total": 1, "passed": 1, "failed": 0, "errored": 0}


async def test_the_engine_shares_no_prefix_cache_between_callers(two: Two) -> None:
    """Judgments and plain chats both report the number of cached tokens to the caller."""
    chat = {"model": "judge", "messages": [{"role": "user", "content": "Hello."}], "judge": {"tools": "off"}}
    for client in (two.alice, two.bob):
        await judged(client)
        answer = await client.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 200, answer.text
    half = len(two.engine.salts) // 2
    mine, theirs = set(two.engine.salts[:half]), set(two.engine.salts[half:])
    assert None not in mine | theirs
    assert len(mine) == len(theirs) == 1
    assert mine != theirs
