"""`FleetEngine`: where turns go, where they never go, and who is left out. Its workers are scripted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.waiting import until
from tirjudge.engines import fleet as fleet_module
from tirjudge.engines import fleet_worker
from tirjudge.engines.fleet import MUCH_BUSIER, FleetEngine
from tirjudge.engines.fleet_urls import EngineUrls
from tirjudge.engines.scripted import ByteTokenizer, ScriptedEngine
from tirjudge.engines.vllm import ServedModel
from tirjudge.errors import CheckpointError, EngineUnavailable, PromptTooLong, TirjudgeError, TurnRefused
from tirjudge.http import workers
from tirjudge.http.workers import BadUrl, service_url
from tirjudge.types import Completion, Sampling

SAMPLING = Sampling(max_tokens=64)
SERVED = ServedModel(name="judge", context_tokens=4096)


class ShiftedTokenizer(ByteTokenizer):
    async def encode(self, text: str) -> list[int]:
        return [i + 1 for i in text.encode()]


class ScriptedWorker(ScriptedEngine):
    """An engine behind a URL that serves what it is told to, and fails when it is told to."""

    def __init__(self, url: str) -> None:
        super().__init__(lambda sequence: f"written at {url}")
        self.url = url
        self.served = SERVED
        self.down: TirjudgeError | None = None
        self.refuses: TirjudgeError | None = None
        self.reload_fails: TirjudgeError | None = None
        self.loaded: list[str] = []
        self.holds, self.reloads = asyncio.Event(), asyncio.Event()
        self.holds.set()
        self.reloads.set()
        self.is_silent = False
        self.is_closed = False
        self.steps: Callable[[], int | None] = itertools.count().__next__

    @property
    def sessions(self) -> list[str]:
        return [session for _, _, session in self.calls if session != "look"]

    async def ready(self) -> ServedModel:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.down is not None:
            raise self.down
        return self.served

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        if self.down is not None:
            raise self.down
        if self.refuses is not None:
            raise self.refuses
        completion = await super().generate(token_ids, sampling=sampling, session=session)
        await self.holds.wait()
        if self.down is not None:
            raise self.down
        return completion

    async def reload(self, checkpoint: Path, *, version: str) -> None:
        await self.reloads.wait()
        if self.reload_fails is not None:
            raise self.reload_fails
        self.loaded.append(version)

    async def progress(self) -> str | None:
        step = self.steps()
        return None if step is None else f"step {step}"

    async def aclose(self) -> None:
        self.is_closed = True


class Rig:
    """A fleet, and the workers that it was connected to."""

    def __init__(self, *names: str) -> None:
        self.urls = list(names)
        self.engines: dict[str, ScriptedWorker] = {name: ScriptedWorker(name) for name in names}
        self.hung: list[str] = []
        self.fleet = FleetEngine(lambda: self.urls, connect=self.connect, on_hung=self.hung.append)

    def connect(self, url: str) -> ScriptedWorker:
        return self.engines.setdefault(url, ScriptedWorker(url))

    async def turn(self, session: str) -> str:
        """Who wrote it."""
        completion = await self.fleet.generate([1, 2], sampling=SAMPLING, session=session)
        return completion.text.removeprefix("written at ")

    def in_use(self) -> list[str]:
        return [worker.url for worker in self.fleet.workers if worker.problem is None]

    def problem(self, name: str) -> str:
        return next(worker.problem or "" for worker in self.fleet.workers if worker.url == name)


@asynccontextmanager
async def started(*names: str, prepare: Callable[[Rig], None] = lambda rig: None) -> AsyncIterator[Rig]:
    rig = Rig(*names)
    prepare(rig)
    try:
        await rig.fleet.ready()
        yield rig
    finally:
        await rig.fleet.aclose()
    assert all(engine.is_closed for engine in rig.engines.values())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other fast."""
    monkeypatch.setattr(workers, "CHECK_S", (0.01, 0.02))
    monkeypatch.setattr(fleet_module, "WATCH_S", 0.02)


async def test_a_rollout_stays_on_its_worker_and_requests_are_spread() -> None:
    async with started("a", "b", "c") as rig:
        wrote = [await rig.turn(f"jdg_{number}.0.1.0") for number in range(6)]
        assert wrote == ["a", "b", "c"] * 2
        for number in reversed(range(6)):
            assert await rig.turn(f"jdg_{number}.0.1.0") == wrote[number]


async def test_encoding_moves_no_turn() -> None:
    async with started("a", "b") as rig:
        wrote: list[str] = []
        for number in range(4):
            await rig.fleet.tokenizer.encode_prompt("p")
            wrote.append(await rig.turn(f"jdg_{number}.0.1.0"))
        assert wrote == ["a", "b", "a", "b"]


async def test_orders_and_votes_of_a_request_go_together_until_their_worker_is_much_busier() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.holds.clear()
        turns = [asyncio.create_task(rig.turn(f"jdg_1.0.1.{number}")) for number in range(MUCH_BUSIER + 3)]
        await until(lambda: sum(len(engine.sessions) for engine in rig.engines.values()) == len(turns))
        for engine in rig.engines.values():
            engine.holds.set()
        assert [await turn for turn in turns] == ["a"] * (MUCH_BUSIER + 1) + ["b"] * 2


async def test_of_new_requests_the_least_busy_worker_gets_most() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].holds.clear()
        slow = [asyncio.create_task(rig.turn("jdg_0.0.1.0")), asyncio.create_task(rig.turn("jdg_0.1.0.0"))]
        await until(lambda: len(rig.engines["a"].sessions) == 2)
        assert [await rig.turn(f"jdg_{number}.0.1.0") for number in range(1, 5)] == ["b"] * 4
        rig.engines["a"].holds.set()
        assert [await turn for turn in slow] == ["a", "a"]


async def test_a_lost_turn_is_asked_again_elsewhere_and_the_rollout_stays_there() -> None:
    async with started("a", "b") as rig:
        assert await rig.turn("jdg_1.0.1.0") == "a"
        rig.engines["a"].down = EngineUnavailable("a: it died")
        assert await rig.turn("jdg_1.0.1.0") == "b"
        assert (rig.in_use(), rig.problem("a")) == (["b"], "a: it died")
        rig.engines["a"].down = None
        await until(lambda: rig.in_use() == ["a", "b"])
        assert await rig.turn("jdg_1.0.1.0") == "b"
        assert await rig.turn("jdg_2.0.1.0") == "a"


async def test_a_turn_that_ends_every_engine_is_asked_of_three_alone() -> None:
    async with started("a", "b", "c", "d", "e") as rig:
        for engine in rig.engines.values():
            engine.refuses = EngineUnavailable("HTTP 500")
        with pytest.raises(EngineUnavailable, match="HTTP 500"):
            await rig.turn("jdg_1.0.1.0")
        assert len(rig.in_use()) == 2


@pytest.mark.parametrize("error", [PromptTooLong("too long"), TurnRefused("no such token")])
async def test_what_is_wrong_with_the_request_is_asked_once(error: TirjudgeError) -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].refuses = error
        with pytest.raises(type(error)):
            await rig.turn("jdg_1.0.1.0")
        assert rig.in_use() == ["a", "b"]
        assert rig.engines["b"].sessions == []


async def test_a_worker_that_answers_everything_but_turns_stays_out() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].refuses = EngineUnavailable("a: HTTP 500")
        assert await rig.turn("jdg_1.0.1.0") == "b"
        await asyncio.sleep(0.2)
        assert rig.in_use() == ["b"]
        rig.engines["a"].refuses = None
        await until(lambda: rig.in_use() == ["a", "b"])


async def test_when_none_is_left_the_error_names_all_and_one_that_comes_back_is_found() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.down = EngineUnavailable(f"{engine.url}: it died")
        with pytest.raises(EngineUnavailable, match="it died"):
            await rig.turn("jdg_1.0.1.0")
        with pytest.raises(EngineUnavailable, match="a: it died; b: b: it died"):
            await rig.turn("jdg_1.0.1.0")
        rig.engines["b"].down = None
        await until(lambda: rig.in_use() == ["b"])
        assert await rig.turn("jdg_1.0.1.0") == "b"


async def test_whoever_hangs_up_cancels_the_turn() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].holds.clear()
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: rig.fleet.workers[0].num_running == 1)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert [(worker.num_running, worker.asked) for worker in rig.fleet.workers] == [(0, set()), (0, set())]
        assert rig.in_use() == ["a", "b"]


async def test_a_worker_that_falls_silent_loses_its_turns_to_others() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].holds.clear()
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: rig.engines["a"].sessions == ["jdg_1.0.1.0"])
        rig.engines["a"].is_silent = True
        assert await turn == "b"
        assert "no answer within" in rig.problem("a")


async def test_the_last_worker_may_be_silent_for_it_may_be_busy() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.is_silent = True
        await until(lambda: all(worker.num_missed > 5 for worker in rig.fleet.workers if worker.problem is None))
        assert len(rig.in_use()) == 1


@pytest.mark.parametrize("names", [("a", "b"), ("a",)])
async def test_a_worker_that_says_it_is_well_and_takes_no_step_loses_its_turns(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "STUCK_S", 0.1)
    async with started(*names) as rig:
        hung = rig.engines["a"]
        hung.holds.clear()
        hung.steps = lambda: 7
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        if "b" in names:
            assert await turn == "b"
        else:
            with pytest.raises(EngineUnavailable, match="its engine hangs: no step in"):
                await turn
        assert "its engine hangs" in rig.problem("a")
        assert rig.hung == ["a"]


async def test_a_worker_that_came_back_well_and_writes_nothing_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "STUCK_S", 0.2)
    monkeypatch.setattr(fleet_worker, "LOOK_TIMEOUT_S", 0.05)
    async with started("a", "b") as rig:
        rig.engines["a"].down = EngineUnavailable("a moment")
        await until(lambda: rig.in_use() == ["b"])
        rig.engines["a"].holds.clear()
        rig.engines["a"].down = None
        await until(lambda: "a" in rig.hung)
        assert rig.in_use() == ["b"]
        rig.engines["a"].holds.set()
        await until(lambda: rig.in_use() == ["a", "b"])


async def test_while_weights_are_exchanged_no_step_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "STUCK_S", 0.1)
    looks: list[None] = []
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.steps = lambda: looks.append(None) or 7
            engine.holds.clear()
            engine.reloads.clear()
        exchanging = asyncio.create_task(rig.fleet.reload(Path("w"), version="2"))
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: len(looks) > 20)
        assert rig.in_use() == ["a", "b"]
        for engine in rig.engines.values():
            engine.holds.set()
            engine.reloads.set()
        await exchanging
        assert await turn in ("a", "b")
        assert rig.hung == []


@pytest.mark.parametrize("steps", [itertools.count().__next__, lambda: None])
async def test_a_worker_that_takes_steps_or_does_not_count_them_may_take_its_time(
    steps: Callable[[], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "STUCK_S", 0.1)
    asked: list[object] = []
    async with started("a", "b") as rig:
        slow = rig.engines["a"]
        slow.holds.clear()
        slow.steps = lambda: asked.append(None) or steps()
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: len(asked) > 20)
        slow.holds.set()
        assert await turn == "a"
        assert rig.in_use() == ["a", "b"]


async def test_workers_that_serve_something_else_are_named_and_left_out() -> None:
    def prepare(rig: Rig) -> None:
        rig.engines["a"].served = ServedModel(name="other", context_tokens=4096)
        rig.engines["c"].tokenizer = ShiftedTokenizer()
        rig.engines["d"].down = EngineUnavailable("d: connection refused")

    async with started("a", "b", "c", "d", "e", prepare=prepare) as rig:
        assert rig.in_use() == ["b", "e"]
        assert (
            rig.problem("a")
            == "it serves other with 4096 tokens of context, the others judge with 4096 tokens of context"
        )
        assert rig.problem("c") == "its tokenizer differs from that of the others"
        assert rig.problem("d") == "d: connection refused"
        rig.engines["a"].served = SERVED
        await until(lambda: rig.in_use() == ["a", "b", "e"])


async def test_a_worker_that_comes_back_with_another_model_stays_out() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].served = ServedModel(name="judge", context_tokens=2048)
        await until(lambda: rig.in_use() == ["b"])
        await asyncio.sleep(0.1)
        assert "2048" in rig.problem("a")


async def test_without_any_worker_the_start_fails_and_says_why() -> None:
    rig = Rig("a", "b")
    for engine in rig.engines.values():
        engine.down = EngineUnavailable(f"{engine.url}: connection refused")
    with pytest.raises(EngineUnavailable, match="a: connection refused; b: connection refused"):
        await rig.fleet.ready()


async def test_the_start_waits_as_long_as_it_is_told_to_for_a_worker_that_is_not_up_yet() -> None:
    rig = Rig("a", "b")
    for engine in rig.engines.values():
        engine.down = EngineUnavailable("not yet")
    with pytest.raises(EngineUnavailable, match="no engine worker can be used: not yet; not yet"):
        await rig.fleet.ready()
    rig.fleet = FleetEngine(lambda: rig.urls, connect=rig.connect, wait_s=60)
    starting = asyncio.create_task(rig.fleet.ready())
    await asyncio.sleep(0.05)
    rig.engines["b"].down = None
    assert await starting == SERVED
    assert rig.in_use() == ["b"]
    rig.engines["a"].down = None
    await until(lambda: rig.in_use() == ["a", "b"])
    await rig.fleet.aclose()


async def test_workers_come_and_go_without_a_restart() -> None:
    async with started("a") as rig:
        rig.engines["a"].holds.clear()
        under_way = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: rig.fleet.workers[0].num_running == 1)
        rig.urls = ["b"]
        await until(lambda: rig.in_use() == ["b"])
        assert await rig.turn("jdg_2.0.1.0") == "b"
        assert not rig.engines["a"].is_closed
        rig.engines["a"].holds.set()
        assert await under_way == "a"
        await until(lambda: rig.engines["a"].is_closed)
        assert await rig.turn("jdg_1.0.1.0") == "b"


async def test_new_weights_go_to_all_and_one_that_was_away_gets_them_before_a_turn() -> None:
    async with started("a", "b", "c") as rig:
        rig.engines["c"].down = EngineUnavailable("c: it died")
        await until(lambda: rig.in_use() == ["a", "b"])
        await rig.fleet.reload(Path("/new"), version="1")
        assert [engine.loaded for engine in rig.engines.values()] == [["1"], ["1"], []]
        rig.engines["c"].down = None
        await until(lambda: rig.in_use() == ["a", "b", "c"])
        assert rig.engines["c"].loaded == ["1"]
        rig.engines["a"].down = EngineUnavailable("a: it was started anew")
        await until(lambda: rig.in_use() == ["b", "c"])
        rig.engines["a"].down = None
        await until(lambda: rig.in_use() == ["a", "b", "c"])
        assert rig.engines["a"].loaded == ["1", "1"]


async def test_a_worker_that_fails_to_take_new_weights_gets_no_turn_until_it_has_them() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].reload_fails = EngineUnavailable("a: HTTP 500")
        await rig.fleet.reload(Path("/new"), version="1")
        assert rig.problem("a") == "it does not have the weights 1: a: HTTP 500"
        assert [await rig.turn(f"jdg_{number}.0.1.0") for number in range(3)] == ["b"] * 3
        rig.engines["a"].reload_fails = None
        await until(lambda: rig.in_use() == ["a", "b"])
        assert rig.engines["a"].loaded == ["1"]


async def test_where_no_worker_can_exchange_weights_nothing_has_changed() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.reload_fails = CheckpointError("no /pause")
        with pytest.raises(CheckpointError, match="no /pause"):
            await rig.fleet.reload(Path("/new"), version="1")
        assert rig.in_use() == ["a", "b"]
        assert await rig.turn("jdg_1.0.1.0") == "a"


async def test_a_worker_that_comes_back_amid_an_exchange_takes_no_weights_that_the_others_may_refuse() -> None:
    async with started("a", "b") as rig:
        rig.engines["b"].down = EngineUnavailable("b: it died")
        await until(lambda: rig.in_use() == ["a"])
        rig.engines["a"].reload_fails = CheckpointError("no /pause")
        rig.engines["a"].reloads.clear()
        exchange = asyncio.create_task(rig.fleet.reload(Path("/new"), version="1"))
        rig.engines["b"].down = None
        await until(lambda: rig.problem("b") == "a reload of the weights is in progress")
        rig.engines["a"].reloads.set()
        with pytest.raises(CheckpointError, match="no /pause"):
            await exchange
        await until(lambda: rig.in_use() == ["a", "b"])
        assert rig.engines["b"].loaded == []


async def test_where_all_fail_to_take_new_weights_none_is_trusted() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.reload_fails = EngineUnavailable("HTTP 500")
        with pytest.raises(EngineUnavailable, match="HTTP 500"):
            await rig.fleet.reload(Path("/new"), version="1")
        assert rig.in_use() == []
        rig.engines["b"].reload_fails = None
        await until(lambda: rig.in_use() == ["b"])
        assert rig.engines["b"].loaded == ["1"]


async def test_what_is_remembered_of_rollouts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "NUM_REMEMBERED", 3)
    async with started("a", "b") as rig:
        for number in range(10):
            await rig.turn(f"jdg_{number}.0.1.0")
        assert list(rig.fleet._at_session) == [f"jdg_{number}.0.1.0" for number in (7, 8, 9)]
        assert list(rig.fleet._at_request) == ["jdg_7", "jdg_8", "jdg_9"]


def test_urls_of_a_file_are_read_again_when_it_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "engines"
    file.write_text("# the first rack\nhttp://a:8000/\n\nhttp://b:8000  # slow\n")
    urls = EngineUrls(["http://z:1"], file=file)
    assert urls() == ["http://z:1", "http://a:8000", "http://b:8000"]
    file.write_text("http://c:8000\n")
    assert urls() == ["http://z:1", "http://c:8000"]
    for broken in ("nonsense\n", "# none\n", ""):
        file.write_text(broken)
        assert urls() == ["http://z:1", "http://c:8000"]
    file.unlink()
    for _ in range(3):
        assert urls() == ["http://z:1", "http://c:8000"]
    assert "line 1: 'nonsense' given" in caplog.text
    assert caplog.text.count("No such file") == 1
    file.write_text("http://d:8000\n")
    assert urls() == ["http://z:1", "http://d:8000"]


@pytest.mark.parametrize(
    "given",
    ["", "gpu:8000", "ftp://gpu", "http://", "http://gpu:x", "http://gpu?key=1", "http://a http://b", "http://a\tb"],
)
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(BadUrl, match="a URL such as"):
        service_url(given)


def test_a_password_in_a_url_is_refused_and_not_told() -> None:
    with pytest.raises(BadUrl) as refused:
        service_url("http://user:hunter2@gpu:8000")
    assert "hunter2" not in str(refused.value)
