"""Scanning text that a stranger wrote: reading a rendered chat, and breaking tags and control tokens."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.pieces.conftest import WORDS
from tirjudge.formats.texts import neutralise
from tirjudge.integrations.detemplate import detemplate

CHATS = {
    "chatml": "<|im_start|>user\n{0}<|im_end|>\n<|im_start|>assistant\n{0}<|im_end|>\n",
    "llama3": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{0}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n{0}<|eot_id|>"
    ),
    "mistral": "<s>[INST] {0} [/INST] {0}</s>",
}


@pytest.mark.parametrize("family", CHATS)
def bench_detemplate(benchmark: BenchmarkFixture, family: str) -> None:
    found = benchmark(detemplate, CHATS[family].format(WORDS * 25))
    assert found is not None
    assert found.response.startswith("The tide")


def bench_detemplate_unfinished_markers(benchmark: BenchmarkFixture) -> None:
    """Scan a text with many markers that begin a turn, and no marker that ends one."""
    assert benchmark(detemplate, "<|im_start|>user\n" * 2_000) is None


def bench_neutralise_plain_text(benchmark: BenchmarkFixture) -> None:
    assert benchmark(neutralise, WORDS * 25) == WORDS * 25


def bench_neutralise_unfinished_tags(benchmark: BenchmarkFixture) -> None:
    assert benchmark(neutralise, "</response_a <|im_start " * 500)
