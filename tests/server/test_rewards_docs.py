"""docs/rewards.md matches the server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.server.speaking import Speak, dialect_app, service_of, speak
from tirjudge.http.rewards import RewardMode
from tirjudge.strategies import names_of_strategies
from tirjudge_server.dialects import DIALECTS, requests_of

__all__ = ["speak"]

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```\nPOST (\S+)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("path", "body"), EXAMPLES)
async def test_examples_return_200(speak: Speak, path: str, body: str) -> None:
    async with speak(lambda sequence: "<score>7</score> <preference>A</preference>") as client:
        response = await client.post(path, json=json.loads(body))
    assert response.status_code == 200, response.text
    assert "x-judge-failed" not in response.headers


def test_every_native_path_has_an_example() -> None:
    assert {path for path, _ in EXAMPLES} == {"/v1/reward", "/v1/rerank", "/v1/judge/batch"}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_in_the_table_of_clients(name: str) -> None:
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize("path", sorted(requests_of(list(DIALECTS))))
def test_every_path_is_documented(path: str) -> None:
    if path not in ("/seed_session", "/close_session", "/aggregate_metrics"):
        assert path in PAGE


@pytest.mark.parametrize(
    "name",
    [
        *RewardMode,
        *(name for name in names_of_strategies(fits=lambda strategy: strategy.compares) if name != "round_robin"),
    ],
)
def test_every_mode_and_strategy_is_explained(name: str) -> None:
    assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize(
    "name", sorted({name for dialect in DIALECTS.values() for name in dialect.options.model_fields} - {"model"})
)
def test_every_option_is_explained(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_native_paths_of_the_page_exist() -> None:
    paths = dialect_app(service_of([])).openapi()["paths"]
    assert {path for path, _ in EXAMPLES} <= set(paths)
