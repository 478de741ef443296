"""Compare the bundled judge in vLLM with the embedded engine, and measure hits in vLLM's prefix cache.

    python -m benchmarks.vllm_parity --judgments 500 --out benchmarks/results/vllm_parity.json

Both engines sample greedily in fp32, with a real sandbox. Where the ids of a rollout differ, the embedded engine reports the
log-probabilities of the two tokens at the first difference. A later turn sends the tokens of earlier turns again. vLLM
reports how many of these tokens were cached: in each completion, and as a metric. vLLM runs in the environment of the tests
(see tests/vllm/environment.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from benchmarks.reporting import Out, report
from tests.vllm.judging import Asked, Recorded, common_prefix, held_out_requests, judge_all, prefix_hits
from tests.vllm.server import BLOCK_TOKENS, VLLMServer, bundled_judge_server
from tirjudge.engines.embedded import EmbeddedEngine
from tirjudge.engines.vllm import VLLMEngine
from tirjudge.model import bundled_checkpoint, fingerprint
from tirjudge.types import JudgeRequest, Judgment, Sampling
from tirjudge_sandbox import SandboxPool

CONCURRENCY = 16


async def compare(requests: list[JudgeRequest], *, server: VLLMServer) -> dict[str, Any]:
    """Judge all requests with both engines, and return the differences."""
    embedded, remote = EmbeddedEngine.load(bundled_checkpoint()), VLLMEngine(server.url)
    one, other = Recorded(engine=remote), Recorded(engine=embedded)
    counters = [f"prefix_cache_{name}_total" for name in ("hits", "queries")]
    try:
        async with SandboxPool(slots=2) as pool:
            before = [server.metric(name) for name in counters]
            began = time.perf_counter()
            found = await judge_all(requests, engine=one, sandbox=pool, concurrency=CONCURRENCY)
            vllm_s = time.perf_counter() - began
            hits, queries = (int(server.metric(name) - was) for name, was in zip(counters, before, strict=True))
            began = time.perf_counter()
            expected = await judge_all(requests, engine=other, sandbox=pool, concurrency=CONCURRENCY)
            embedded_s = time.perf_counter() - began
        differences = await differing(found, expected, one=one, other=other, embedded=embedded)
    finally:
        await remote.aclose()
        embedded.close()
    later = prefix_hits(one)
    pairs = list(zip(found, expected, strict=True))
    same_ids = [pair for n, pair in enumerate(pairs) if n not in {d["judgment"] for d in differences}]
    return {
        "judgments": len(pairs),
        "rollouts": sum(len(judgment.rollouts) for judgment in found),
        "judgments_with_other_ids": len(pairs) - len(same_ids),
        "judgments_with_other_verdicts": sum(verdict_of(a) != verdict_of(b) for a, b in pairs),
        "largest_difference_of_a_probability_where_ids_are_the_same": max(
            abs(p - q)
            for a, b in same_ids
            for p, q in zip(a.verdict.probabilities or (), b.verdict.probabilities or (), strict=True)
        ),
        "differences": differences,
        "prefix_cache": {
            "block_tokens": BLOCK_TOKENS,
            "tokens_sent_again": later.sent_again,
            "of_these_found": later.found,
            "share": round(later.share, 4),
            "hits_of_all_by_vllms_metric": hits,
            "hits_of_all_by_its_answers": sum(asked.completion.num_cached for asked in one.asked),
            "prompt_tokens_by_vllms_metric": queries,
        },
        "seconds": {"vllm": round(vllm_s, 1), "embedded": round(embedded_s, 1)},
    }


def verdict_of(judgment: Judgment) -> tuple[object, ...]:
    """Return the decision of a judgment and the labels of its rollouts, without probabilities."""
    labels = [rollout.verdict and rollout.verdict.label for rollout in judgment.rollouts]
    return (judgment.verdict.status, judgment.verdict.best, labels)


async def differing(
    found: list[Judgment], expected: list[Judgment], *, one: Recorded, other: Recorded, embedded: EmbeddedEngine
) -> list[dict[str, Any]]:
    """Return the first difference of each rollout whose ids differ."""
    differences = []
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        theirs, ours = turns_of(a, recorded=one), turns_of(b, recorded=other)
        for name in theirs:
            place = await first_difference(theirs[name], ours[name], embedded=embedded)
            if place is not None:
                differences.append({"judgment": number, "same_verdict": verdict_of(a) == verdict_of(b), **place})
    return differences


def turns_of(judgment: Judgment, *, recorded: Recorded) -> dict[str, list[Asked]]:
    """Return the turns of each rollout: name of the rollout within the judgment -> turns."""
    return {
        session.removeprefix(judgment.id): [asked for asked in requests if asked.is_turn]
        for session, requests in recorded.rollouts().items()
        if session.startswith(judgment.id)
    }


async def first_difference(
    theirs: list[Asked], ours: list[Asked], *, embedded: EmbeddedEngine
) -> dict[str, Any] | None:
    """Return the first difference of one rollout, with the gap of the log-probabilities. None: no difference."""
    for turn, (a, b) in enumerate(zip(theirs, ours, strict=False)):
        if a.prompt_ids != b.prompt_ids:
            return {"turn": turn, "why": "a program printed a different output"}
        if a.completion.token_ids != b.completion.token_ids:
            at = common_prefix(a.completion.token_ids, b.completion.token_ids)
            both = tuple(turn.completion.token_ids[at] for turn in (a, b))
            prefix = [*b.prompt_ids, *b.completion.token_ids[:at]]
            sampling = Sampling(max_tokens=1, allowed_token_ids=both, logprob_token_ids=both)
            read = (await embedded.generate(prefix, sampling=sampling, session="gap")).token_logprobs
            theirs_text, ours_text = (embedded.tokenizer.decode([i]) for i in both)
            gap = read[both[1]] - read[both[0]]
            return {"turn": turn, "token": at, "vllm": theirs_text, "embedded": ours_text, "gap": gap}
    return None


def main(
    judgments: Annotated[int, typer.Option(help="Requests to judge.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the held-out items.")] = 11,
    url: Annotated[
        str | None,
        typer.Option(help="URL of a vLLM server with the bundled judge and no other clients. Default: start one."),
    ] = None,
    out: Out = None,
) -> None:
    """Compare, and print the result as JSON."""
    with bundled_judge_server(url) as server:
        compared = asyncio.run(compare(held_out_requests(judgments, seed=seed), server=server))
    report({"judge": fingerprint(bundled_checkpoint()), **compared}, out)


if __name__ == "__main__":
    typer.run(main)
