"""Weights are replaced under load: every request is answered, and each judgment is made by one version that it names."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.vllm.checkpoint import make_less_sure
from tirjudge.engines.checkpoint import read_safetensors
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.judge import Judge
from tirjudge.model import Model, bundled_checkpoint, fingerprint
from tirjudge.opening import open_model
from tirjudge.profile import load_profile
from tirjudge.tools.python import PythonTool
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_sandbox import SandboxPool
from tirjudge_server.access import Access
from tirjudge_server.access.keys import create_key
from tirjudge_server.app import create_app
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records
from tirjudge_server.reloading import RELOAD_PATH
from tirjudge_server.service import JudgeService

NUM_JUDGMENTS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server with keys."""

    client: httpx2.AsyncClient
    admin: dict[str, str]
    """Headers with a key that permits reloading."""
    judge: dict[str, str]
    service: JudgeService
    model: Model

    async def ask(self, **changes: Any) -> Judgment:
        answer = await self.client.post(
            "/v1/judge", json=request(**changes).model_dump(mode="json"), headers=self.judge
        )
        assert answer.status_code == 200, answer.text
        return Judgment.model_validate_json(answer.content)

    async def reload(self, checkpoint: Path | str) -> httpx2.Response:
        return await self.client.post(RELOAD_PATH, json={"checkpoint": str(checkpoint)}, headers=self.admin)


def request(*, number: int = 0) -> JudgeRequest:
    """A request that differs by number. The bundled judge writes a program for it, so a rollout has two turns."""
    prompt = f"Write a note about rivers number {number}. Use at least 4 sentences."
    responses = ["One is here. Two is there.", "One. Two. Three. Four. Five."]
    return JudgeRequest(mode=Mode.PAIRWISE, prompt=prompt, responses=responses, temperature=1.0, seed=number)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled judge with other probabilities."""
    path = tmp_path_factory.mktemp("other")
    for file in bundled_checkpoint().iterdir():
        shutil.copy(file, path / file.name)
    make_less_sure(path)
    return path


@pytest.fixture
def serve(pool: SandboxPool, tmp_path: Path, listen: Callable[..., Any]) -> Callable[..., Any]:
    @asynccontextmanager
    async def serving(*, guarded: bool = True) -> AsyncIterator[Server]:
        async with open_model() as model:
            judge = Judge(engine=model.engine, tools=[PythonTool(pool)], profile=model.profile, weights=model.weights)
            versions = versions_of(judge, fingerprint=model.fingerprint, isolation=pool.level)
            async with open_records(str(tmp_path / "records.db"), versions=versions) as records:
                names = {"root": ["admin"], "user": ["judge", "read"]} if guarded else {}
                keys = {name: create_key(records.database, name=name, scopes=scopes) for name, scopes in names.items()}
                access = Access(records.database)
                await access.load()
                service = JudgeService(judge, records=records, isolation=pool.level)
                app = create_app(service, access=access, records=records, model=model)
                headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
                async with listen(app) as url, httpx2.AsyncClient(base_url=url, timeout=600) as client:
                    admin, user = headers.get("root", {}), headers.get("user", {})
                    yield Server(client=client, admin=admin, judge=user, service=service, model=model)

    return serving


@pytest.mark.slow
async def test_each_of_forty_judgments_is_made_by_one_version(
    serve: Callable[..., Any], other: Path, pool: SandboxPool
) -> None:
    old, new = fingerprint(bundled_checkpoint()), fingerprint(other)
    async with serve() as server:
        asking = [asyncio.create_task(server.ask(number=number)) for number in range(NUM_JUDGMENTS)]
        while server.model.weights.num_inside < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        reloaded = await server.reload(other)
        assert reloaded.json() == {
            "object": "model.reloaded",
            "model": "tirjudge-tiny",
            "model_version": new,
            "previous_version": old,
        }
        judgments = await asyncio.gather(*asking)
        records = [
            (await server.client.get(f"/v1/judgments/{judgment.id}", headers=server.judge)).json()
            for judgment in judgments
        ]
    made_by = {version: [n for n, j in enumerate(judgments) if j.model_version == version] for version in (old, new)}
    assert len(made_by[old]) >= 8
    assert made_by[new]
    assert len(made_by[old]) + len(made_by[new]) == NUM_JUDGMENTS
    assert [record["versions"]["fingerprint"] for record in records] == [j.model_version for j in judgments]
    assert max(len(rollout.turns) for judgment in judgments for rollout in judgment.rollouts) >= 2
    for folder, version, not_version in ((bundled_checkpoint(), old, new), (other, new, old)):
        own, others = made_by[version], made_by[not_version][:4]
        again = await judged_by(folder, numbers=[*own, *others], pool=pool)
        assert all(is_same(judgments[number], again[number]) for number in own)
        assert not any(is_same(judgments[number], again[number]) for number in others)


async def judged_by(folder: Path, *, numbers: Sequence[int], pool: SandboxPool) -> dict[int, Judgment]:
    engine = EmbeddedEngine.load(folder)
    try:
        judge = Judge(engine=engine, tools=[PythonTool(pool)], profile=load_profile(folder))
        made = await asyncio.gather(*(judge.judge(request(number=number)) for number in numbers))
        return dict(zip(numbers, made, strict=True))
    finally:
        engine.close()


def is_same(one: Judgment, other: Judgment) -> bool:
    """Whether all rollouts have equal texts and probabilities.

    Two versions may write equal texts, so probabilities are compared too: batching changes those of the labels by far less
    than 0.1 %, and those of the programs by far less than 0.0002. Other weights change at least one of them by more.
    """
    sure = [judgment.verdict.probabilities for judgment in (one, other)]
    turns = [[turn for rollout in judgment.rollouts for turn in rollout.turns] for judgment in (one, other)]
    programs = [sorted(turn.probability or 0 for turn in each) for each in turns]
    written = [{(tuple(r.order), *(t.text for t in r.turns)) for r in judgment.rollouts} for judgment in (one, other)]
    return (
        written[0] == written[1]
        and sure[0] == pytest.approx(sure[1], rel=1e-3)
        and programs[0] == pytest.approx(programs[1], abs=2e-4)
    )


@pytest.mark.slow
async def test_judgments_of_old_weights_are_not_reused(serve: Callable[..., Any], other: Path) -> None:
    async with serve() as server:
        first = await server.ask()
        assert (await server.ask()).id == first.id
        new = (await server.reload(other)).json()["model_version"]
        second = await server.ask()
        assert (second.id != first.id, second.model_version) == (True, new)
        assert (await server.ask()).id == second.id
        await server.reload(bundled_checkpoint())
        assert (await server.ask()).id == first.id
        card = (await server.client.get("/v1/models", headers=server.judge)).json()["data"][0]
        assert card["fingerprint"] == first.model_version


@pytest.mark.slow
async def test_reload_needs_admin_key(serve: Callable[..., Any], other: Path) -> None:
    async with serve() as server:
        body = {"checkpoint": str(other)}
        refused = await server.client.post(RELOAD_PATH, json=body, headers=server.judge)
        keyless = await server.client.post(RELOAD_PATH, json=body)
        assert (refused.status_code, keyless.status_code) == (403, 401)
        assert server.model.fingerprint == fingerprint(bundled_checkpoint())


@pytest.mark.slow
async def test_server_without_keys_refuses_reload(serve: Callable[..., Any], other: Path) -> None:
    async with serve(guarded=False) as server:
        refused = await server.reload(other)
        assert refused.status_code == 403
        assert "--scope admin" in refused.json()["error"]["message"]


def of_other_sizes(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=3)


def of_another_tokenizer(folder: Path) -> None:
    change(folder / "tokenizer.json", normalizer={"type": "Lowercase"})


def with_another_context(folder: Path) -> None:
    change(folder / "judge.json", context_tokens=100)


def with_other_sizes_shown(folder: Path) -> None:
    change(folder / "judge.json", response_chars=65)


def for_another_loop(folder: Path) -> None:
    change(folder / "judge.json", loop_version=7)


def without_numbers(folder: Path) -> None:
    weights = read_safetensors(folder / "model.safetensors")
    weights["model.norm.weight"][3] = np.nan
    save_file(weights, folder / "model.safetensors")


def truncated(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:9000])


def missing(folder: Path) -> None:
    shutil.rmtree(folder)


def one_level_too_high(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    folder.with_name("moved").rename(folder / "best")


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.slow
async def test_incompatible_checkpoint_is_refused_and_weights_stay(
    serve: Callable[..., Any], other: Path, tmp_path: Path
) -> None:
    wrong: dict[Callable[[Path], None], str] = {
        of_other_sizes: "config.json",
        of_another_tokenizer: "tokenizer.json",
        with_another_context: "context_tokens",
        with_other_sizes_shown: "response_chars",
        for_another_loop: "7",
        without_numbers: "model.norm.weight",
        truncated: "model.safetensors",
        missing: "is not a checkpoint folder",
        one_level_too_high: "one_level_too_high/best",
    }
    async with serve() as server:
        before = await server.ask(number=1)
        for break_it, message in wrong.items():
            folder = tmp_path / break_it.__name__
            shutil.copytree(other, folder)
            break_it(folder)
            answer = await server.reload(folder)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"], error["code"]) == (400, "checkpoint", "checkpoint_refused")
            assert message in error["message"]
            assert "\n" not in error["message"]
        for body in ({}, {"checkpoint": ""}, {"checkpoint": 3}, {"checkpoint": "x", "y": 1}):
            assert (await server.client.post(RELOAD_PATH, json=body, headers=server.admin)).status_code == 400
        after = await server.ask(number=2)
        assert after.model_version == before.model_version == fingerprint(bundled_checkpoint())


@pytest.mark.slow
async def test_endpoint_is_in_openapi_schema(serve: Callable[..., Any]) -> None:
    async with serve() as server:
        operation = (await server.client.get("/openapi.json")).json()["paths"][RELOAD_PATH]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert body.endswith("/ReloadRequest")
    assert {"200", "400", "401", "403", "503"} <= set(operation["responses"])
