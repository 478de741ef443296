"""How notebooks show judgments, and what `tirjudge` offers in Python."""

from __future__ import annotations

import inspect
from html.parser import HTMLParser

import pytest

import tirjudge
from tests.judgments import build_judgment, build_rollout, build_rollout_verdict, build_turn, build_verdict
from tirjudge import AsyncClient, Client
from tirjudge.types import Outcome

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>"


class Shown(HTMLParser):
    """The elements and the text of an HTML fragment."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_names_of_the_package_are_shown() -> None:
    assert set(tirjudge.__all__) <= set(dir(tirjudge))
    for name in tirjudge.__all__:
        assert inspect.getdoc(getattr(tirjudge, name)), name


def test_both_clients_have_the_same_documented_and_typed_methods() -> None:
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert {"judge", "stream", "judge_batch", "reward", "rerank", "judgment", "models", "call", "close"} == methods
    for client in (Client, AsyncClient):
        for name in methods:
            method = getattr(client, name)
            assert inspect.getdoc(method)
            assert inspect.signature(method).return_annotation is not inspect.Signature.empty
    for name in methods - {"close"}:
        ours, theirs = (list(inspect.signature(getattr(each, name)).parameters) for each in (Client, AsyncClient))
        assert ours == theirs


def test_a_notebook_shows_the_verdict_the_program_and_its_output() -> None:
    program = build_turn(Outcome.OK, text="To check: words.", code="print(1)", output="A 2\nB 1")
    rollout = build_rollout((1, 0), turns=[program], verdict=build_rollout_verdict("B", best=0))
    judgment = build_judgment(build_verdict(best=0, probabilities=[0.9, 0.1]), rollouts=[rollout])
    shown = Shown(judgment._repr_html_())
    assert shown.text.startswith("Response A is best")
    for text in ("0.900", "0.100", "shown B, A", "wrote B", "To check: words.", "Output (ok)", "A 2\nB 1", judgment.id):
        assert text in shown.text, text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"status": "abstained", "reason": "not_checked"}, "No verdict (not_checked)"),
        ({"status": "tie", "reason": "flipped"}, "A tie (flipped)"),
        ({"best": 1, "forced": True}, "Response B is best"),
    ],
)
def test_a_notebook_names_every_kind_of_verdict(fields: dict[str, object], text: str) -> None:
    verdict = build_verdict(**{"best": None, **fields})  # type: ignore
    assert Shown(build_judgment(verdict)._repr_html_()).text.startswith(text)


def test_texts_in_a_notebook_are_escaped_and_cut() -> None:
    turn = build_turn(Outcome.OK, text=HOSTILE, output=HOSTILE + "x" * 100_000)
    html = build_judgment(rollouts=[build_rollout(turns=[turn])])._repr_html_()
    assert not {"script", "img"} & Shown(html).elements
    assert "more characters]" in html
    assert len(html) < 50_000
