"""A dialect of another package: installed in a temporary folder, and offered by `tirjudge serve`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.outside.conftest import TOY, serving

RAIN = {
    "question": "Write one sentence about rain. Use no commas.",
    "answers": ["It rains.", "Yes, it rains, it does."],
}


@pytest.fixture(scope="module")
def url(toy_environment: dict[str, str]) -> Iterator[str]:
    """A server with the bundled judge and all installed dialects."""
    with serving(env=toy_environment) as url:
        yield url


@pytest.mark.slow
def test_the_toy_dialect_returns_scores(url: str) -> None:
    answer = httpx2.post(f"{url}/toy/marks", json=RAIN, timeout=120)
    assert answer.status_code == 200, answer.text
    good, bad = answer.json()["marks"]
    assert 0 <= bad < good <= 10
    assert answer.json()["judge"] == httpx2.get(f"{url}/v1/models").json()["data"][0]["id"]
    assert 'tirjudge_judgments_total{dialect="toy"' in httpx2.get(f"{url}/metrics").text


@pytest.mark.slow
def test_query_parameters_set_judging_options(url: str) -> None:
    answer = httpx2.post(f"{url}/toy/marks?mode=cohort&scale=0,1", json=RAIN, timeout=120)
    assert sum(answer.json()["marks"]) == pytest.approx(10)
    wrong = httpx2.post(f"{url}/toy/marks?mood=cohort", json=RAIN)
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "mood"


@pytest.mark.slow
def test_a_missing_score_is_reported_and_counted(url: str) -> None:
    answer = httpx2.post(f"{url}/toy/marks", json=RAIN | {"question": ""})
    assert answer.json()["marks"] == [None, None]
    assert answer.headers["x-judge-failed"] == "2"
    metrics = httpx2.get(f"{url}/metrics").text
    assert 'tirjudge_fallbacks_total{dialect="toy",reason="unreadable"} 2.0' in metrics


@pytest.mark.slow
def test_the_toy_endpoint_is_in_the_openapi_schema(url: str) -> None:
    page = httpx2.get(f"{url}/openapi.json").json()
    operation = page["paths"]["/toy/marks"]["post"]
    assert operation["description"] == "Mark answers."
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ToyMarks")
    assert set(page["components"]["schemas"]["ToyMarks"]["properties"]) == {"question", "answers"}


@pytest.mark.slow
def test_the_toy_dialect_can_be_enabled_by_name(toy_environment: dict[str, str]) -> None:
    arguments = ("--dialects", "toy", "--records", "none", "--max-prompt-chars", "1")
    with serving(*arguments, env=toy_environment) as url:
        assert httpx2.post(f"{url}/get_reward", json={"query": ["x"]}).status_code == 404
        # In the failure table, a request that exceeds a limit is an HTTP error for this dialect.
        assert httpx2.post(f"{url}/toy/marks", json=RAIN).status_code == 413


def test_the_documentation_shows_the_toy_dialect() -> None:
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    assert (TOY / "dialect.py").read_text(encoding="utf-8").strip() in page
    assert "tirjudge_toy.dialect:DIALECT" in page
