"""From labels on pages to figures of agreement: a real server, the export of its labels, a run, and its report."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from tests.harness.commands import run_command
from tests.servers import mint_key, scripted_service, serve_in_thread
from tirjudge.client import Client
from tirjudge.types import JudgeRequest, Mode
from tirjudge_server.access import Access
from tirjudge_server.app import create_app
from tirjudge_server.records.record import versions_of
from tirjudge_server.records.store import open_records

PROMPTS = ("Say red.", "Say blue.", "Say green.", "Say pink.")

LABELS = {
    "ann": ("agree", "agree", "agree", "other"),
    "bob": ("agree", "agree", "other", "other"),
}
"""Name of a person -> labels of the judgments of `PROMPTS`. They agree on three of four, the judge is right twice."""


def label(url: str, key: str, judged: dict[str, str], labels: dict[str, str]) -> None:
    """Label judgments in the forms of their pages.

    Args:
        url: URL of the server.
        key: key of the person.
        judged: prompt -> id of its judgment.
        labels: prompt -> label.
    """
    with httpx2.Client(base_url=url) as browser:
        assert browser.post("/ui/login", data={"key": key}).status_code == 303
        for prompt, given in labels.items():
            path = f"/ui/judgments/{judged[prompt]}"
            token = browser.get(path).text.partition('name="csrf" value="')[2].partition('"')[0]
            answer = browser.post(f"{path}/labels", data={"csrf": token, "label": given})
            assert answer.status_code == 303, answer.text


@pytest.mark.slow
def test_labels_on_pages_become_figures_of_agreement(tmp_path: Path) -> None:
    database, people, run = tmp_path / "records.db", tmp_path / "people.jsonl", tmp_path / "run"
    keys: dict[str, str] = {}

    @asynccontextmanager
    async def opened() -> AsyncIterator[FastAPI]:
        service = scripted_service(lambda sequence: "<preference>A</preference>")
        versions = versions_of(service.judge, fingerprint=None, isolation=None)
        async with open_records(str(database), versions=versions) as records:
            service.records = records
            for name, scopes in {"judge": ["judge"], **{name: ["read", "audit", "label"] for name in LABELS}}.items():
                keys[name] = mint_key(records.database, name=name, scopes=scopes)
            access = Access(records.database)
            await access.load()
            yield create_app(service, records=records, access=access)

    with serve_in_thread(opened()) as url:
        with Client(url, api_key=keys["judge"]) as client:
            requests = [
                JudgeRequest(mode=Mode.PAIRWISE, prompt=prompt, responses=["first", "second"], tools="off")
                for prompt in PROMPTS
            ]
            judged = {prompt: client.judge(request).id for prompt, request in zip(PROMPTS, requests, strict=True)}
        for name, given in LABELS.items():
            label(url, keys[name], judged, dict(zip(PROMPTS, given, strict=True)))
        exporting = ["records", "labels", "--records", str(database), "--output", str(people)]
        assert run_command(exporting).status == 0
        rows = [json.loads(line) for line in people.read_text().splitlines()]
        assert {row["prompt"]: row["winner"] == "tie" for row in rows} == dict.fromkeys(PROMPTS, False) | {
            "Say green.": True
        }
        assert run_command([*exporting, "--by-person"]).status == 0
        judging = ["bench", "run", "--data", str(people), "--out", str(run), "--url", url, "--tools", "off"]
        done = run_command([*judging, "--api-key", keys["judge"]])
        assert done.status == 0, done.stderr
    done = run_command(["bench", "report", str(run), "--format", "json"])
    assert done.status == 0, done.stderr
    found = {next(iter(row.values())): row for row in json.loads(done.stdout)["rows"]}
    assert found["accuracy"]["value"] == pytest.approx(100 * 2 / 3)  # of three: the row whose raters disagree is a tie
    assert found["raters agree: rater_1 and rater_2"]["value"] == pytest.approx(75)
