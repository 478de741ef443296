"""Judging a batch on a Ray cluster: actors that each have a judge, fed by Ray Data.

    the driver reads -> blocks of rows, a wave at a time -> a judge in each actor -> blocks of results -> the driver writes

Nodes need not share any storage. What an actor held when it died is lost, and judged anew by the driver's next round, once
the rest is through: Ray itself would hold it until that actor is back, for which there may never be room. The driver alone
writes, and keeps one result a key. So a row may be judged twice, and has one result.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import pyarrow as pa
import ray
import ray.data
from ray.exceptions import RayError

from tirjudge.errors import TirjudgeError
from tirjudge.types import JudgeRequest
from tirjudge_harness.batch.asking import Asking, Opening
from tirjudge_harness.batch.inputs import RequestRow
from tirjudge_harness.batch.plan import Piece
from tirjudge_harness.batch.results import Result, table_of
from tirjudge_harness.batch.run import RoundEnded
from tirjudge_harness.items import InputError

logger = logging.getLogger(__name__)

BLOCK_ROWS = 64
"""Rows that an actor takes at a time, and gives back together; what a node that dies has cost is a few of these."""

WAVE_ROWS = 100_000
"""Rows that are in the store of the cluster at a time; between two waves the actors are begun anew."""

STOPPED = "stopped"
"""In place of an `ErrorKind`: the row is no result, but says why an actor cannot go on."""

_ROWS = pa.schema(
    [
        ("key", pa.string()),
        ("digest", pa.string()),
        ("file", pa.string()),
        ("number", pa.int64()),
        ("request", pa.string()),
    ]
)


class ClusterError(TirjudgeError):
    """There is no cluster at that address, or no judge can be opened on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRay:
    """Judges in actors.

    Args:
        address: of the cluster, as `ray.init` takes it; None: the one that `RAY_ADDRESS` names or this machine is part of,
            or else a new one on this machine.
        min_actors: so many judges from the beginning.
        max_actors: so many at most, where there is room and work.
        concurrency: most judgments under way at a time in each.
        num_cpus: what each takes, as Ray counts it.
    """

    address: str | None = None
    min_actors: int = 1
    max_actors: int = 1
    concurrency: int
    num_cpus: float = 1.0

    @asynccontextmanager
    async def opened(self, opening: Opening, *, place: str) -> AsyncIterator[OpenedOnRay]:
        """Join the cluster, and open a judge there to see who it is; `place` is where the results will be, for messages.

        What Ray Data says and drops in this process is set for its whole life.

        Raises:
            ClusterError: there is none, or it cannot open the judge.
        """
        is_ours = not ray.is_initialized()
        if is_ours:
            _join(self.address)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.max_errored_blocks = -1
        try:
            self._say_if_no_node_has_room()
            identity = await self._identity(opening)
            yield OpenedOnRay(identity=identity, settings=self, opening=opening, place=place)
        finally:
            if is_ours:
                ray.shutdown()

    def _say_if_no_node_has_room(self) -> None:
        """Ray would wait without a word. A cluster that grows may get such a node."""
        most = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if self.num_cpus > most:
            logger.warning(
                "each actor takes %g cores (--actor-cpus), and no node of the cluster has more than %g: waiting for one",
                *(self.num_cpus, most),
            )

    async def _identity(self, opening: Opening) -> Mapping[str, Any]:
        asking = ray.remote(_identity_of).options(num_cpus=self.num_cpus, max_retries=3)
        try:
            return await cast("Any", asking.remote(opening))
        except RayError as error:
            raise ClusterError(f"no judge can be opened on the cluster: {_cause(error)}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedOnRay:
    identity: Mapping[str, Any]
    settings: OnRay
    opening: Opening
    place: str

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        """Judge all that is left of these pieces. A result may come twice, or be lost.

        Raises:
            RoundEnded: an actor cannot go on, or Ray cannot.
            RunStopped: `on_result` raised it.
        """
        rows = (row for piece in pieces for row in piece.rows())
        while blocks := list(islice(_blocks_of(rows), WAVE_ROWS // BLOCK_ROWS)):
            async with aclosing(_pulled(self._results(blocks))) as pulled:
                async for block in pulled:
                    for result in block.to_pylist():
                        if result["error_kind"] == STOPPED:
                            raise RoundEnded(result["error"])
                        on_result(result)

    def _results(self, blocks: list[pa.Table]) -> ray.data.Dataset:
        settings = self.settings
        num_calls = 1 + -(-settings.concurrency // BLOCK_ROWS)
        return ray.data.from_arrow(blocks).map_batches(
            _Actor,
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=settings.num_cpus,
            max_task_retries=0,
            compute=ray.data.ActorPoolStrategy(
                min_size=settings.min_actors,
                max_size=settings.max_actors,
                max_concurrent_calls_per_actor=num_calls,
                max_tasks_in_flight_per_actor=2 * num_calls,
            ),
            fn_constructor_kwargs={
                "opening": self.opening,
                "identity": self.identity,
                "concurrency": settings.concurrency,
                "place": self.place,
            },
        )


class _Actor:
    """A judge in a process of the cluster, opened when the first block comes."""

    def __init__(self, *, opening: Opening, identity: Mapping[str, Any], concurrency: int, place: str) -> None:
        self._opening = opening
        self._identity = identity
        self._concurrency = concurrency
        self._place = place
        self._asking: asyncio.Task[Asking] | None = None
        self._stack = AsyncExitStack()

    async def __call__(self, block: pa.Table) -> pa.Table:
        """The results of a block, without those that cannot be had; if that is all of them, one row that says why."""
        try:
            if self._asking is None:
                self._asking = asyncio.create_task(self._open())
            asking = await asyncio.shield(self._asking)
            results = await asyncio.gather(*map(asking.result, _rows_of(block)), return_exceptions=True)
        except Exception as error:
            results = [error]
        if made := [result for result in results if isinstance(result, dict)]:
            return table_of(made)
        nothing = {"key": "", "digest": "", "file": "", "row": 0, "error_kind": STOPPED}
        return table_of([nothing | {"error": f"node {_node()}: {_cause(cast('Exception', results[0]))}"}])

    async def _open(self) -> Asking:
        judge = await self._stack.enter_async_context(self._opening())
        if judge.identity != self._identity:
            raise InputError(f"it opens another judge than the others: {judge.identity}")
        return Asking(judge, concurrency=self._concurrency, place=self._place)


def _join(address: str | None) -> None:
    """Connect this process to a cluster.

    Raises:
        ClusterError: there is none at that address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster that is begun here tells nobody of it
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        raise ClusterError(f"no Ray cluster: {error}") from error


def _identity_of(opening: Opening) -> Mapping[str, Any]:
    async def identity() -> Mapping[str, Any]:
        async with opening() as judge:
            return judge.identity

    return asyncio.run(identity())


async def _pulled(results: ray.data.Dataset) -> AsyncGenerator[pa.Table, None]:
    """The blocks of a dataset as they are made. It is no longer made when this is closed.

    Raises:
        RoundEnded: Ray cannot go on.
    """
    blocks = iter(results.iter_batches(batch_size=None, batch_format="pyarrow"))
    pulling = None
    try:
        while True:
            pulling = asyncio.create_task(asyncio.to_thread(next, blocks, None))
            try:
                block = await asyncio.shield(pulling)
            except Exception as error:  # of Ray and of Ray Data, which have no base in common
                raise RoundEnded(_cause(error)) from error
            if block is None:
                return
            yield cast("pa.Table", block)
    finally:
        if pulling is not None:
            await asyncio.wait([pulling])
        await asyncio.to_thread(cast("Any", blocks).close)


def _blocks_of(rows: Iterator[RequestRow]) -> Iterator[pa.Table]:
    while some := list(islice(rows, BLOCK_ROWS)):
        fields = [
            {"key": row.key, "digest": row.digest, "file": row.file, "number": row.number}
            | {"request": row.request.model_dump_json()}
            for row in some
        ]
        yield pa.Table.from_pylist(fields, schema=_ROWS)


def _rows_of(block: pa.Table) -> Iterator[RequestRow]:
    for fields in block.to_pylist():
        yield RequestRow(**fields | {"request": JudgeRequest.model_validate_json(fields["request"])})


def _node() -> str:
    return ray.get_runtime_context().get_node_id()[:12]


def _cause(error: BaseException) -> str:
    """What is at the bottom of an error of Ray's, in a line."""
    while isinstance(cause := getattr(error, "cause", None) or error.__cause__, BaseException):
        error = cause
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
