"""Fixtures: databases of both kinds, and records in them. TIRJUDGE_TEST_POSTGRES is the URL of a Postgres server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.judgments import (
    build_judgment,
    build_request,
    build_rollout,
    build_rollout_verdict,
    build_turn,
    build_verdict,
)
from tirjudge.types import JudgeRequest, Judgment, Outcome
from tirjudge_server.call import Call
from tirjudge_server.records.database import Database, open_database, url_of
from tirjudge_server.records.record import Versions
from tirjudge_server.records.store import RecordPolicy, Records

POSTGRES = os.environ.get("TIRJUDGE_TEST_POSTGRES", "")

VERSIONS = Versions(
    model="scripted",
    fingerprint="0123456789abcdef",
    profile_sha256="1" * 64,
    prompts_sha256="2" * 64,
    format="tirjudge/1",
    tools=["python"],
    sandbox="namespaces",
    limits={"cpu_s": 3.0},
    package="0.1.0",
    python="3.11.0",
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "records.db")
        return
    if not POSTGRES:
        pytest.skip("TIRJUDGE_TEST_POSTGRES is not set; tests/postgres.sh sets it")
    server = create_engine(url_of(POSTGRES), isolation_level="AUTOCOMMIT")
    name = f"tirjudge_{uuid.uuid4().hex}"
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield url_of(POSTGRES).set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def open_store() -> Iterator[Callable[..., Records]]:
    """Opens the records of a server. Several can be open on one database."""
    opened: list[Records] = []

    def open_one(url: str | Path, *, versions: Versions = VERSIONS, **policy: Any) -> Records:
        opened.append(Records(open_database(str(url)), versions=versions, policy=RecordPolicy(**policy)))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(database_url: str, open_store: Callable[..., Records]) -> Records:
    return open_store(database_url)


def request_of(prompt: str = "Which is longer?", **fields: Any) -> JudgeRequest:
    return build_request(prompt, **{"responses": ["one", "three"], **fields})


def judgment_of(call: Call, **fields: Any) -> Judgment:
    """A judgment that ran a program."""
    turns = [
        build_turn(Outcome.OK, text="```python\nprint(5)\n```\n```output", code="print(5)\n", output="5"),
        build_turn(text="<preference>B</preference>"),
    ]
    voted = build_rollout_verdict("B", best=1, probabilities={"A": 0.2, "B": 0.8})
    judgment = build_judgment(
        build_verdict(best=1, label="B", probabilities=[0.2, 0.8], confidence=0.8, label_mass=1.0),
        id=call.judgment_id,
        created=1_800_000_000,
        model="scripted",
        rollouts=[build_rollout(verdict=voted, turns=turns)],
        input_tokens=10,
        output_tokens=20,
        total_s=0.5,
        engine_s=0.25,
        sandbox_s=0.125,
    )
    return judgment.model_copy(update=fields)


async def keep(store: Records, request: JudgeRequest | None = None, **call: Any) -> Judgment:
    """Store a judgment of the request."""
    asked = Call(**call)
    return await store.store(request or request_of(), judgment_of(asked), call=asked)


@pytest.fixture(name="keep")
def keep_fixture() -> Callable[..., Any]:
    return keep


@pytest.fixture(name="request_of")
def request_of_fixture() -> Callable[..., JudgeRequest]:
    return request_of


@pytest.fixture(name="judgment_of")
def judgment_of_fixture() -> Callable[..., Judgment]:
    return judgment_of
