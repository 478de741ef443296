from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tirjudge.durable import StorageError
from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.errors import EngineUnavailable
from tirjudge.http.exchange import ServerNotListening
from tirjudge.judge import Judge
from tirjudge.profile import Profile
from tirjudge.types import JudgeRequest, Judgment, Mode
from tirjudge_harness.bench_run import RunContext, data_of, judge_plan
from tirjudge_harness.benchmark import Benchmark, Row
from tirjudge_harness.evaluation import evaluate
from tirjudge_harness.examples import Example, example
from tirjudge_harness.items import InputError
from tirjudge_harness.judges import OpenJudge, open_chosen_judge
from tirjudge_harness.merging import merge
from tirjudge_harness.metric_tree import Mean, cells_by
from tirjudge_harness.options import JudgeOptions
from tirjudge_harness.planning import RunSettings, plan_run
from tirjudge_harness.protocols import BOTH_ORDERS, OFFICIAL, PAPER, Protocol, find_protocol
from tirjudge_harness.row_sampling import Shard
from tirjudge_harness.run import BenchmarkRun, load_run


def examples_of(row: Row, part: str) -> Iterable[Example]:
    yield example(
        id=row["id"],
        prompt=row["prompt"],
        responses=(*row["good"], *row["bad"]),
        correct=tuple(range(len(row["good"]))),
        subset=row["kind"],
        cluster=row["prompt"],
    )


LONGER = Benchmark(
    name="longer",
    title="Longer",
    citation="none",
    sources={},
    columns=("id", "prompt", "good", "bad", "kind"),
    examples=examples_of,
    sheet=(Mean(name="longer", parts=cells_by("subset", ["easy", "hard"])),),
    modes=(Mode.PAIRWISE, Mode.POINTWISE, Mode.LISTWISE),
)
"""A benchmark that asks for the longer of two texts. The scripted judge below is wrong on the subset `hard`."""


def rows(num: int) -> list[Example]:
    """Return alternating easy examples, whose right response is the longer one, and hard examples."""
    texts = [("a long answer", "short"), ("brief", "not so brief")]
    return [
        next(
            iter(
                examples_of(
                    {
                        "id": f"e{number}",
                        "prompt": f"p{number}",
                        "good": [texts[number % 2][0]],
                        "bad": [texts[number % 2][1]],
                        "kind": ("easy", "hard")[number % 2],
                    },
                    "",
                )
            )
        )
        for number in range(num)
    ]


def longest(sequence: str) -> str:
    """Choose the longest response, or score a single response by its length."""
    shown = re.findall(r"^(a long answer|short|brief|not so brief)$", sequence, re.MULTILINE)
    if len(shown) == 1:
        return f"<score>{min(10, len(shown[0]) // 2)}</score>"
    best = "AB"[shown.index(max(shown, key=len))]
    return f"It is longer. <preference>{best}</preference>"


def opened(script: Callable[[str], str] = longest, *, asked: list[JudgeRequest] | None = None) -> OpenJudge:
    """Return a real judge with a scripted engine. `asked`: receives its requests."""
    judge = Judge(engine=ScriptedEngine(script), tools=(), profile=Profile(name="scripted"))

    async def ask(request: JudgeRequest) -> Judgment:
        if asked is not None:
            asked.append(request)
        return await judge.judge(request)

    return OpenJudge(judge=ask, kind="local", url=None, model="scripted", fingerprint="f00d")


OFF = RunSettings(tools="off")


def settings(**changes) -> RunSettings:
    return replace(OFF, **changes)


async def judge_them(
    out: Path, examples: list[Example], *, judge: OpenJudge | None = None, settings: RunSettings = OFF
) -> BenchmarkRun:
    judge = judge or opened()
    plan = plan_run(LONGER, examples, opened=judge, settings=settings)
    console = Console(file=io.StringIO())
    await judge_plan(plan, benchmark=LONGER, out=out, context=RunContext(opened=judge, concurrency=4, console=console))
    return load_run(out)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def figures(run: BenchmarkRun, *, protocol: Protocol = PAPER) -> dict[str, float | None]:
    evaluation = evaluate(LONGER, run.examples, mode=run.manifest.mode, protocol=protocol)
    return {figure.name: figure.value for figure in evaluation.figures}


async def test_a_run_is_scored_from_its_folder_alone(tmp_path: Path) -> None:
    await judge_them(tmp_path, rows(10))
    run = load_run(tmp_path)
    assert [outline.id for outline in run.outlines] == [f"e{n}" for n in range(10)]
    assert (len(run.judged), run.num_missing, run.failures) == (10, 0, [])
    assert figures(run) == {"longer": 0.5, "easy": 1.0, "hard": 0.0}
    assert (run.manifest.benchmark, run.manifest.judge.model, run.manifest.orders) == ("longer", "scripted", "single")
    assert "not so brief" not in (tmp_path / "outlines.jsonl").read_text() + (tmp_path / "manifest.json").read_text()


async def test_pointwise_each_response_is_judged_once(tmp_path: Path) -> None:
    asked: list[JudgeRequest] = []
    run = await judge_them(tmp_path, rows(4), judge=opened(asked=asked), settings=settings(mode=Mode.POINTWISE))
    assert len(asked) == 8
    assert [[decision.score for decision in one.decisions] for one in run.judged][:2] == [[6.0, 2.0], [2.0, 6.0]]
    assert figures(run) == {"longer": 0.5, "easy": 1.0, "hard": 0.0}


async def test_both_orders_are_one_request_and_start_with_the_single_order(tmp_path: Path) -> None:
    single = await judge_them(tmp_path / "single", rows(6))
    both = await judge_them(tmp_path / "both", rows(6), settings=settings(protocol=BOTH_ORDERS))
    assert all(len(one.decisions) == 2 for one in both.judged)
    assert [one.decisions[0].shown for one in both.judged] == [one.decisions[0].shown for one in single.judged]
    assert all(one.decisions[0].shown == one.decisions[1].shown[::-1] for one in both.judged)
    assert figures(both, protocol=PAPER) == figures(single)


async def test_the_protocol_sets_the_number_of_votes(tmp_path: Path) -> None:
    run = await judge_them(tmp_path, rows(2), settings=settings(protocol=find_protocol("votes=3")))
    assert run.manifest.votes == 3
    assert figures(run, protocol=find_protocol("votes=3")) == {"longer": 0.5, "easy": 1.0, "hard": 0.0}


async def test_identical_requests_are_sent_once(tmp_path: Path) -> None:
    asked: list[JudgeRequest] = []
    pair = {"prompt": "p", "good": ["a long answer"], "bad": ["short"], "kind": "easy"}
    twins = [one for id in ("x", "y") for one in examples_of(pair | {"id": id}, "")]
    run = await judge_them(tmp_path, twins, judge=opened(asked=asked))
    assert (len(asked), len(run.judged)) == (1, 2)
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 1


async def test_a_stopped_run_is_resumed_without_repeated_requests(tmp_path: Path) -> None:
    asked: list[JudgeRequest] = []
    judge = opened(asked=asked)
    sixth = asyncio.Event()

    async def tells_of_the_sixth(request: JudgeRequest) -> Judgment:
        if len(asked) == 5:
            sixth.set()
        return await judge.judge(request)

    plan = plan_run(LONGER, rows(20), opened=judge, settings=settings())
    telling = replace(judge, judge=tells_of_the_sixth)
    console = Console(file=io.StringIO())
    running = asyncio.create_task(
        judge_plan(
            plan, benchmark=LONGER, out=tmp_path, context=RunContext(opened=telling, concurrency=1, console=console)
        )
    )
    await sixth.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    kept = load_run(tmp_path)
    assert 0 < len(kept.judged) < 20
    assert kept.num_missing == 20 - len(kept.judged)
    num_before = len(asked)
    run = await judge_them(tmp_path, rows(20), judge=judge)
    assert len(run.judged) == 20
    assert len(asked) - num_before == 20 - len(kept.judged)


async def test_failed_examples_are_missing_not_wrong(tmp_path: Path) -> None:
    def fails_on_e3(sequence: str) -> str:
        if "p3\n" in sequence:
            raise EngineUnavailable("lost")
        return longest(sequence)

    run = await judge_them(tmp_path, rows(4), judge=opened(fails_on_e3))
    assert (len(run.judged), run.num_missing) == (3, 1)
    assert [failure.error for failure in run.failures] == ["EngineUnavailable: lost"]
    evaluation = evaluate(LONGER, run.examples, mode=Mode.PAIRWISE, protocol=PAPER)
    assert (evaluation.counts.examples, evaluation.counts.marks, evaluation.counts.missing) == (4, 3, 1)
    again = await judge_them(tmp_path, rows(4))
    assert (again.num_missing, again.failures) == (0, [])


async def test_failed_requests_are_retried_last(tmp_path: Path) -> None:
    def fails_on_e0(sequence: str) -> str:
        if "p0\n" in sequence:
            raise EngineUnavailable("lost")
        return longest(sequence)

    await judge_them(tmp_path, rows(3), judge=opened(fails_on_e0))
    (tmp_path / "journal.jsonl").write_text("")
    asked: list[JudgeRequest] = []
    await judge_them(tmp_path, rows(3), judge=opened(asked=asked))
    assert [request.prompt for request in asked] == ["p1", "p2", "p0"]


async def test_an_unreadable_verdict_is_a_judgment(tmp_path: Path) -> None:
    run = await judge_them(tmp_path, rows(2), judge=opened(lambda sequence: "I like both."))
    assert (len(run.judged), run.num_missing) == (2, 0)
    assert all(decision.forced for one in run.judged for decision in one.decisions)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"protocol": BOTH_ORDERS}, 'protocol was "paper" and is now "both_orders"'),
        ({"mode": Mode.POINTWISE}, 'mode was "pairwise" and is now "pointwise"'),
        ({"shard": Shard(number=1, of=2)}, 'shard was null and is now "1/2"'),
        ({"limit": 2}, "data.limit was null and is now 2"),
    ],
)
async def test_a_different_run_is_rejected_with_the_difference(tmp_path: Path, change: dict, says: str) -> None:
    await judge_them(tmp_path, rows(4))
    before = contents(tmp_path)
    with pytest.raises(StorageError) as refused:
        await judge_them(tmp_path, rows(4), settings=settings(**change))
    assert says in str(refused.value)
    assert "give another --out" in str(refused.value)
    assert contents(tmp_path) == before


async def test_changed_texts_need_a_new_run_but_corrected_labels_do_not(tmp_path: Path) -> None:
    examples = rows(2)
    await judge_them(tmp_path, examples)
    with pytest.raises(StorageError, match=r"the rows of longer have changed \(2 examples then, 2 now\)"):
        await judge_them(tmp_path, [*rows(1), *rows(4)[3:]])
    wrong_way = {"id": "e1", "prompt": "p1", "good": ["brief"], "bad": ["not so brief"], "kind": "hard"}
    (mended,) = examples_of(wrong_way, "")
    mended = replace(mended, outline=replace(mended.outline, correct=(1,)))
    run = await judge_them(tmp_path, [examples[0], mended])
    assert figures(run) == {"longer": 1.0, "easy": 1.0, "hard": 1.0}


async def test_a_fingerprint_identifies_a_judge_at_any_url(tmp_path: Path) -> None:
    local = opened()
    await judge_them(tmp_path / "a", rows(2), judge=local)
    served = replace(local, kind="server", url="http://127.0.0.1:9")
    await judge_them(tmp_path / "a", rows(2), judge=served)
    unknown = replace(local, fingerprint=None)
    await judge_them(tmp_path / "b", rows(2), judge=unknown)
    with pytest.raises(StorageError, match=r'judge\.url was null and is now "http://127.0.0.1:9"'):
        await judge_them(tmp_path / "b", rows(2), judge=replace(served, fingerprint=None))


async def test_a_run_is_not_continued_with_another_format(tmp_path: Path) -> None:
    """A judge without a format in its description has `tirjudge/1`, as in older runs."""
    older = opened()
    assert "format" not in older.identity
    await judge_them(tmp_path / "run", rows(2), judge=older)
    newer = replace(older, format="tirjudge/2")
    assert newer.identity == {**older.identity, "format": "tirjudge/2"}
    with pytest.raises(StorageError, match=r'judge\.format was null and is now "tirjudge/2"'):
        await judge_them(tmp_path / "run", rows(2), judge=newer)
    run = await judge_them(tmp_path / "fresh", rows(2), judge=newer)
    assert run.manifest.judge.format == "tirjudge/2"


async def test_merged_shards_equal_a_run_without_shards(tmp_path: Path) -> None:
    whole = await judge_them(tmp_path / "whole", rows(30))
    shards = []
    for number in (1, 2, 3):
        shards.append(tmp_path / f"shard{number}")
        part = await judge_them(shards[-1], rows(30), settings=settings(shard=Shard(number=number, of=3)))
        assert 0 < len(part.judged) < 30
    assert merge(tmp_path / "merged", shards=shards[::-1]) == 30
    merged = load_run(tmp_path / "merged")
    assert merged.outlines == whole.outlines
    assert [one.decisions for one in merged.judged] == [one.decisions for one in whole.judged]
    assert figures(merged) == figures(whole)
    assert merged.manifest.shard is None


async def test_merge_rejects_incomplete_and_foreign_shards(tmp_path: Path) -> None:
    one, two, other, alone = (tmp_path / name for name in ("one", "two", "other", "alone"))
    await judge_them(one, rows(20), settings=settings(shard=Shard(number=1, of=2)))
    await judge_them(other, rows(20), settings=settings(shard=Shard(number=2, of=2), seed=1))
    await judge_them(alone, rows(20))
    out = tmp_path / "out"
    with pytest.raises(InputError, match="shards are missing: 2/2"):
        merge(out, shards=[one])
    with pytest.raises(InputError, match="are the same shard, 1/2"):
        merge(out, shards=[one, one])
    with pytest.raises(InputError, match=r"are shards of different runs: seed was 0 and is now 1"):
        merge(out, shards=[one, other])
    with pytest.raises(InputError, match="is not a shard"):
        merge(out, shards=[one, alone])
    with pytest.raises(InputError, match="is not a run folder"):
        merge(out, shards=[one, two])
    run = await judge_them(two, rows(20), settings=settings(shard=Shard(number=2, of=2)))
    journal = two / "journal.jsonl"
    *lines, last = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines))
    key = json.loads(last)["key"]
    (lost,) = (plan.outline.id for plan in run.planned if plan.asked[0].key == key)
    with pytest.raises(InputError, match=rf"1 judgments are missing, of {lost} \(keys {key[:16]}\)"):
        merge(out, shards=[one, two])
    assert not out.exists()


def test_an_unsupported_mode_is_rejected() -> None:
    pairs_only = replace(LONGER, modes=(Mode.PAIRWISE,))
    with pytest.raises(InputError, match="--mode: 'listwise' is not a mode of longer; choose pairwise"):
        plan_run(pairs_only, rows(2), opened=opened(), settings=settings(mode=Mode.LISTWISE))


def test_an_example_with_an_invalid_request_is_reported() -> None:
    (three,) = examples_of({"id": "x", "prompt": "p", "good": ["a"], "bad": [], "kind": "easy"}, "")
    with pytest.raises(InputError, match="x: responses: listwise compares at least 2 responses, 1 given"):
        plan_run(LONGER, [three], opened=opened(), settings=settings(mode=Mode.LISTWISE))


def test_duplicate_ids_are_rejected() -> None:
    with pytest.raises(InputError, match="longer: two examples have the same id, 'e0'"):
        plan_run(LONGER, [*rows(1), *rows(1)], opened=opened(), settings=settings())


def test_the_official_protocol_uses_the_orders_of_the_benchmark() -> None:
    plan = plan_run(LONGER, rows(2), opened=opened(), settings=settings(protocol=OFFICIAL))
    assert (plan.manifest.protocol, plan.manifest.orders) == ("official", "single")


def test_several_benchmarks_find_their_rows_by_name(tmp_path: Path) -> None:
    (tmp_path / "llmbar.jsonl.gz").write_bytes(b"")
    (tmp_path / "ppe").mkdir()
    assert data_of("llmbar", data=tmp_path, names=["llmbar", "ppe"]) == tmp_path / "llmbar.jsonl.gz"
    assert data_of("ppe", data=tmp_path, names=["llmbar", "ppe"]) == tmp_path / "ppe"
    assert data_of("ppe", data=tmp_path, names=["ppe"]) == tmp_path
    assert data_of("ppe", data=None, names=["llmbar", "ppe"]) is None
    assert data_of("selfcheck", data=tmp_path, names=["llmbar", "selfcheck"]) is None
    with pytest.raises(InputError, match=r"has no folder rmbench and no file such as rmbench\.jsonl"):
        data_of("rmbench", data=tmp_path, names=["rmbench", "ppe"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "http://127.0.0.1:9", "engine": ["http://127.0.0.1:8"]}, "--engine cannot be combined with --url"),
        (
            {"url": "http://127.0.0.1:9", "chat_url": "x", "chat_model": "y"},
            "--chat-url, --chat-model cannot be combined",
        ),
        ({"chat_url": "http://127.0.0.1:9"}, "--chat-url needs --chat-model"),
        ({"chat_model": "m"}, "--chat-model needs --chat-url"),
        ({"chat_url": "x", "chat_model": "m", "model": Path("c")}, "--model cannot be combined with --chat-url"),
        ({"url": "localhost:8400"}, "--url: the URL must start with http:// or https://, got 'localhost:8400'"),
        ({"chat_url": "ftp://x", "chat_model": "m"}, "--chat-url: the URL must start with .*, got 'ftp://x'"),
        ({"engine": ["http://a:1", "x:1"]}, "--engine: the URL must start with .*, got 'x:1'"),
        (
            {"url": "http://127.0.0.1:9", "tool": ["python"], "format": "tirjudge/1"},
            "--tool, --format cannot be combined with --url",
        ),
        ({"judge": "embedded", "model": Path("c")}, "--model cannot be combined with --judge"),
    ],
)
def test_conflicting_options_are_rejected(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        open_chosen_judge(JudgeOptions(**options), tools=())


async def test_an_unreadable_journal_is_reported_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    await judge_them(folder, rows(2))
    (folder / "journal.jsonl").unlink()
    (folder / "journal.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"journal\.jsonl: cannot be read: Is a directory"):
        load_run(folder)


def test_a_damaged_folder_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a run folder: manifest\.json: No such file"):
        load_run(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"manifest\.json: damaged, or written by a different command"):
        load_run(tmp_path)


async def test_retries_of_the_first_request_are_announced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ServerNotListening, match="cannot be reached: connection refused"):
        async with open_chosen_judge(JudgeOptions(url="http://127.0.0.1:9", connect_retry_s=0.05), tools=()):
            pass
    assert capsys.readouterr().err == "http://127.0.0.1:9 does not answer yet; retrying\n"
