"""`FleetEngine` with scripted workers: distribution of turns, exclusion of workers, reloads."""

from __future__ import annotations

import asyncio
import gc
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
    """Engine behind a URL whose model, delays and failures a test can set."""

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
    """A fleet with its workers."""

    def __init__(self, *names: str) -> None:
        self.urls = list(names)
        self.engines: dict[str, ScriptedWorker] = {name: ScriptedWorker(name) for name in names}
        self.hung: list[str] = []
        self.fleet = FleetEngine(lambda: self.urls, connect=self.connect, on_hung=self.hung.append)

    def connect(self, url: str) -> ScriptedWorker:
        return self.engines.setdefault(url, ScriptedWorker(url))

    async def turn(self, session: str) -> str:
        """Generate a turn and return the name of its worker."""
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
    """Shorten the intervals of health checks."""
    monkeypatch.setattr(workers, "CHECK_S", (0.01, 0.02))
    monkeypatch.setattr(fleet_module, "WATCH_S", 0.02)


async def test_a_rollout_stays_on_its_worker_and_requests_are_distributed() -> None:
    async with started("a", "b", "c") as rig:
        wrote = [await rig.turn(f"jdg_{number}.0.1.0") for number in range(6)]
        assert wrote == ["a", "b", "c"] * 2
        for number in reversed(range(6)):
            assert await rig.turn(f"jdg_{number}.0.1.0") == wrote[number]


async def test_encoding_does_not_affect_the_distribution_of_turns() -> None:
    async with started("a", "b") as rig:
        wrote: list[str] = []
        for number in range(4):
            await rig.fleet.tokenizer.encode_prompt("p")
            wrote.append(await rig.turn(f"jdg_{number}.0.1.0"))
        assert wrote == ["a", "b", "a", "b"]


async def test_rollouts_of_a_request_share_a_worker_until_it_is_much_busier() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.holds.clear()
        turns = [asyncio.create_task(rig.turn(f"jdg_1.0.1.{number}")) for number in range(MUCH_BUSIER + 3)]
        await until(lambda: sum(len(engine.sessions) for engine in rig.engines.values()) == len(turns))
        for engine in rig.engines.values():
            engine.holds.set()
        assert [await turn for turn in turns] == ["a"] * (MUCH_BUSIER + 1) + ["b"] * 2


async def test_new_requests_go_to_the_least_busy_worker() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].holds.clear()
        slow = [asyncio.create_task(rig.turn("jdg_0.0.1.0")), asyncio.create_task(rig.turn("jdg_0.1.0.0"))]
        await until(lambda: len(rig.engines["a"].sessions) == 2)
        assert [await rig.turn(f"jdg_{number}.0.1.0") for number in range(1, 5)] == ["b"] * 4
        rig.engines["a"].holds.set()
        assert [await turn for turn in slow] == ["a", "a"]


async def test_a_failed_turn_is_retried_on_another_worker_and_the_rollout_stays_there() -> None:
    async with started("a", "b") as rig:
        assert await rig.turn("jdg_1.0.1.0") == "a"
        rig.engines["a"].down = EngineUnavailable("a: it died")
        assert await rig.turn("jdg_1.0.1.0") == "b"
        assert (rig.in_use(), rig.problem("a")) == (["b"], "a: it died")
        rig.engines["a"].down = None
        await until(lambda: rig.in_use() == ["a", "b"])
        assert await rig.turn("jdg_1.0.1.0") == "b"
        assert await rig.turn("jdg_2.0.1.0") == "a"


async def test_a_failing_turn_is_tried_on_three_workers_only() -> None:
    async with started("a", "b", "c", "d", "e") as rig:
        for engine in rig.engines.values():
            engine.refuses = EngineUnavailable("HTTP 500")
        with pytest.raises(EngineUnavailable, match="HTTP 500"):
            await rig.turn("jdg_1.0.1.0")
        assert len(rig.in_use()) == 2


@pytest.mark.parametrize("error", [PromptTooLong("too long"), TurnRefused("no such token")])
async def test_an_invalid_turn_is_not_retried(error: TirjudgeError) -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].refuses = error
        with pytest.raises(type(error)):
            await rig.turn("jdg_1.0.1.0")
        assert rig.in_use() == ["a", "b"]
        assert rig.engines["b"].sessions == []


async def test_a_worker_that_fails_only_turns_stays_excluded() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].refuses = EngineUnavailable("a: HTTP 500")
        assert await rig.turn("jdg_1.0.1.0") == "b"
        await asyncio.sleep(0.2)
        assert rig.in_use() == ["b"]
        rig.engines["a"].refuses = None
        await until(lambda: rig.in_use() == ["a", "b"])


async def test_without_workers_the_error_names_all_and_a_recovered_worker_is_found() -> None:
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


async def test_a_cancelled_caller_cancels_the_turn() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].holds.clear()
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: rig.fleet.workers[0].num_running == 1)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert [(worker.num_running, worker.asked) for worker in rig.fleet.workers] == [(0, set()), (0, set())]
        assert rig.in_use() == ["a", "b"]


async def test_the_error_of_a_turn_is_not_logged_if_its_caller_is_cancelled_at_the_same_time() -> None:
    unread: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unread.append(context["message"]))

    async def fail() -> None:
        raise EngineUnavailable("a: it died")

    async with started("a") as rig:
        worker = rig.fleet.workers[0]
        caller = asyncio.create_task(worker.ask(fail()))
        for _ in range(9):  # until the turn has failed and its caller has not seen it
            if any(asked.done() for asked in worker.asked):
                break
            await asyncio.sleep(0)
        assert worker.asked
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    del caller
    gc.collect()
    assert unread == []


async def test_turns_of_an_unresponsive_worker_move_to_another() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].holds.clear()
        turn = asyncio.create_task(rig.turn("jdg_1.0.1.0"))
        await until(lambda: rig.engines["a"].sessions == ["jdg_1.0.1.0"])
        rig.engines["a"].is_silent = True
        assert await turn == "b"
        assert "no answer within" in rig.problem("a")


async def test_the_last_worker_is_not_excluded_for_timeouts() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.is_silent = True
        await until(lambda: all(worker.num_missed > 5 for worker in rig.fleet.workers if worker.problem is None))
        assert len(rig.in_use()) == 1


@pytest.mark.parametrize("names", [("a", "b"), ("a",)])
async def test_a_worker_without_progress_is_excluded(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_recovered_worker_that_generates_nothing_is_reported_as_hung(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_missing_progress_during_a_reload_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_a_slow_worker_with_progress_or_without_metrics_stays_in_use(
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


async def test_workers_with_a_different_model_or_tokenizer_are_excluded() -> None:
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


async def test_a_worker_that_changes_its_model_stays_excluded() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].served = ServedModel(name="judge", context_tokens=2048)
        await until(lambda: rig.in_use() == ["b"])
        await asyncio.sleep(0.1)
        assert "2048" in rig.problem("a")


async def test_a_start_without_healthy_workers_fails_with_the_reasons() -> None:
    rig = Rig("a", "b")
    for engine in rig.engines.values():
        engine.down = EngineUnavailable(f"{engine.url}: connection refused")
    with pytest.raises(EngineUnavailable, match="a: connection refused; b: connection refused"):
        await rig.fleet.ready()


async def test_the_start_waits_for_a_first_worker() -> None:
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


async def test_workers_are_added_and_removed_without_a_restart() -> None:
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


async def test_a_recovered_worker_loads_the_current_weights_before_its_first_turn() -> None:
    async with started("a", "b", "c") as rig:
        rig.engines["c"].down = EngineUnavailable("c: it died")
        await until(lambda: rig.in_use() == ["a", "b"])
        await rig.fleet.reload(Path("/new"), version="1")
        assert [engine.loaded for engine in rig.engines.values()] == [["1"], ["1"], []]
        rig.engines["c"].down = None
        await until(lambda: rig.in_use() == ["a", "b", "c"])
        assert rig.engines["c"].loaded == ["1"]
        rig.engines["a"].down = EngineUnavailable("a: restarted")
        await until(lambda: rig.in_use() == ["b", "c"])
        rig.engines["a"].down = None
        await until(lambda: rig.in_use() == ["a", "b", "c"])
        assert rig.engines["a"].loaded == ["1", "1"]


async def test_a_worker_that_fails_to_reload_gets_no_turns_until_it_has_the_weights() -> None:
    async with started("a", "b") as rig:
        rig.engines["a"].reload_fails = EngineUnavailable("a: HTTP 500")
        await rig.fleet.reload(Path("/new"), version="1")
        assert rig.problem("a") == "it does not have the weights 1: a: HTTP 500"
        assert [await rig.turn(f"jdg_{number}.0.1.0") for number in range(3)] == ["b"] * 3
        rig.engines["a"].reload_fails = None
        await until(lambda: rig.in_use() == ["a", "b"])
        assert rig.engines["a"].loaded == ["1"]


async def test_if_no_worker_can_reload_all_stay_in_use() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.reload_fails = CheckpointError("no /pause")
        with pytest.raises(CheckpointError, match="no /pause"):
            await rig.fleet.reload(Path("/new"), version="1")
        assert rig.in_use() == ["a", "b"]
        assert await rig.turn("jdg_1.0.1.0") == "a"


async def test_a_worker_that_recovers_during_a_reload_waits_for_its_result() -> None:
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


async def test_if_every_reload_fails_all_workers_are_excluded() -> None:
    async with started("a", "b") as rig:
        for engine in rig.engines.values():
            engine.reload_fails = EngineUnavailable("HTTP 500")
        with pytest.raises(EngineUnavailable, match="HTTP 500"):
            await rig.fleet.reload(Path("/new"), version="1")
        assert rig.in_use() == []
        rig.engines["b"].reload_fails = None
        await until(lambda: rig.in_use() == ["b"])
        assert rig.engines["b"].loaded == ["1"]


async def test_the_number_of_remembered_rollouts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "NUM_REMEMBERED", 3)
    async with started("a", "b") as rig:
        assert [await rig.turn(f"jdg_{number}.0.1.0") for number in range(10)] == ["a", "b"] * 5
        # The rollout that ran on b first is forgotten: it goes to the worker that is idle for longer.
        assert await rig.turn("jdg_1.0.1.0") == "a"
        # Remembered rollouts stay on their workers, although the other worker is idle for longer.
        assert await rig.turn("jdg_8.0.1.0") == "a"
        assert await rig.turn("jdg_9.0.1.0") == "b"


def test_a_changed_url_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
def test_an_invalid_service_url_is_rejected(given: str) -> None:
    with pytest.raises(BadUrl, match="give a URL such as"):
        service_url(given)


def test_a_url_with_a_password_is_rejected_without_showing_it() -> None:
    with pytest.raises(BadUrl) as refused:
        service_url("http://user:hunter2@gpu:8000")
    assert "hunter2" not in str(refused.value)
