from __future__ import annotations

import json
from pathlib import Path

import pytest

from tirjudge.types import Mode
from tirjudge_harness.benchmarks.rmbench import BENCHMARK
from tirjudge_harness.protocols import PAPER
from tirjudge_harness.sources import load_examples


def row(number: int, *, domain: str = "chat") -> dict[str, object]:
    styles = ("short", "long", "marked")
    return {
        "id": number,
        "prompt": f"Explain {number}.",
        "chosen": [f"right {style} {number}" for style in styles],
        "rejected": [f"wrong {style} {number}" for style in styles],
        "domain": domain,
    }


def test_every_right_answer_is_compared_with_every_wrong_one(load) -> None:
    (example,) = load(BENCHMARK, [row(8)])
    assert (example.outline.id, example.outline.correct) == ("chat/8", (0, 1, 2))
    nine = [(right, wrong) for right in (0, 1, 2) for wrong in (3, 4, 5)]
    assert BENCHMARK.asked(example.outline, mode=Mode.PAIRWISE) == nine
    assert BENCHMARK.asked(example.outline, mode=Mode.POINTWISE) == [(index,) for index in range(6)]


def test_both_safety_domains_are_one_subset(load) -> None:
    examples = load(BENCHMARK, [row(1, domain="safety-refuse"), row(1, domain="safety-response")])
    assert [example.outline.subset for example in examples] == ["safety", "safety"]
    assert [example.outline.tags["domain"] for example in examples] == ["safety-refuse", "safety-response"]


def test_hard_means_the_wrong_answer_has_the_richer_style(load, compared, figures) -> None:
    (example,) = load(BENCHMARK, [row(1)])
    # The judge always chooses the answer with the richer style, and the right answer if both have the same style.
    choices = {(right, wrong): right if right >= wrong - 3 else wrong for right in (0, 1, 2) for wrong in (3, 4, 5)}
    values = figures(BENCHMARK, [compared(example, choices)])
    assert (values["hard"], values["normal"], values["easy"]) == (0.0, 1.0, 1.0)
    assert values["chat"] == pytest.approx(2 / 3)


def test_overall_is_the_mean_of_domains_and_of_difficulties(load, rated, figures) -> None:
    domains = ["chat", "chat", "math", "code", "safety-refuse", "safety-response", "safety-response"]
    examples = load(BENCHMARK, [row(number, domain=domain) for number, domain in enumerate(domains)])
    better, richer, equal = (9, 9, 9, 1, 1, 1), (1, 5, 9, 1, 5, 9), (4, 4, 4, 4, 4, 4)
    scores = [better, richer, better, equal, richer, better, better]
    judged = [rated(example, *score) for example, score in zip(examples, scores, strict=True)]
    # By the official rule, `better` is right in all nine comparisons. `richer` is right in the easy comparisons only,
    # and `equal` in none.
    values = figures(BENCHMARK, judged)
    assert (values["chat hard"], values["chat normal"], values["chat easy"]) == (0.5, 0.5, 1.0)
    assert values["safety easy"] == 1.0
    assert values["safety hard"] == pytest.approx(2 / 3)
    assert values["hard"] == pytest.approx((1 / 2 + 1 + 0 + 2 / 3) / 4)
    by_domain = [(0.5 + 0.5 + 1) / 3, 1.0, 0.0, (2 / 3 + 2 / 3 + 1) / 3]
    assert values["overall"] == pytest.approx(sum(by_domain) / 4)
    assert values["overall"] == pytest.approx((values["hard"] + values["normal"] + values["easy"]) / 3)
    assert figures(BENCHMARK, judged, protocol=PAPER)["code"] == 0.5


def test_one_file_per_domain_sets_the_domain(tmp_path: Path) -> None:
    for domain in ("chat", "safety-refuse"):
        rows = [{key: value for key, value in row(n).items() if key != "domain"} for n in range(2)]
        (tmp_path / f"{domain}_filtered.json").write_text(json.dumps(rows))
    examples = load_examples(BENCHMARK, data=tmp_path, on_bad=lambda row: pytest.fail(str(row)))
    assert [example.outline.id for example in examples] == ["chat/0", "chat/1", "safety-refuse/0", "safety-refuse/1"]
    only = load_examples(BENCHMARK, data=tmp_path / "chat_filtered.json", on_bad=lambda row: pytest.fail(str(row)))
    assert [example.outline.subset for example in only] == ["chat", "chat"]


def test_a_row_with_two_styles_is_invalid(load, bad) -> None:
    load(BENCHMARK, [row(1), {**row(2), "rejected": ["a", "b"]}])
    assert [report.problem for report in bad] == ["rejected: expected 3 values, got 2"]
