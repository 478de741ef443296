"""Judge a batch on a Ray cluster: Ray Data feeds actors, each with its own judge.

    the driver reads -> blocks of rows, a wave at a time -> a judge in each actor -> blocks of results -> the driver writes

The nodes need no shared storage. The rows of an actor that died are lost, and the next round judges them after the other
rows are done. Ray's own retries are off, because Ray would hold the rows until the actor restarts, and the cluster may never
have room for it. Only the driver writes, and it keeps one result per key. So a row can be judged twice, but has one result.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
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
from tirjudge_harness.batch.asking import Opening, RowJudge
from tirjudge_harness.batch.inputs import RequestRow
from tirjudge_harness.batch.plan import Piece
from tirjudge_harness.batch.results import Result, table_of
from tirjudge_harness.batch.run import RoundEnded
from tirjudge_harness.items import InputError

logger = logging.getLogger(__name__)

BLOCK_ROWS = 64
"""Rows per block. An actor processes and returns a block as a whole. A dead node loses a few blocks."""

WAVE_ROWS = 100_000
"""Maximum number of rows in the object store of the cluster. The actors restart between two waves."""

THREADS_END_S = 30.0
"""Maximum seconds to wait for the threads of Ray Data before the connection to the cluster is closed."""

_THREADS_WITHOUT_WORK = ("asyncio", "Prefetcher")
"""Names of threads that never end: those of `asyncio.to_thread`, and Ray's thread for prefetching, which is not used."""

STOPPED = "stopped"
"""Value of `error_kind` in a row that is not a result, but states why an actor stopped."""

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
    """The cluster cannot be reached, or cannot open a judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRay:
    """Executor that judges rows with actors on a Ray cluster.

    Args:
        address: address of the cluster for `ray.init`. None: the cluster in `RAY_ADDRESS`, the cluster of this machine, or a
            new cluster on this machine.
        min_actors: initial number of actors.
        max_actors: maximum number of actors.
        concurrency: maximum number of concurrent judgments in each actor.
        num_cpus: CPU cores that Ray reserves for each actor.
    """

    address: str | None = None
    min_actors: int = 1
    max_actors: int = 1
    concurrency: int
    num_cpus: float = 1.0

    @asynccontextmanager
    async def opened(self, opening: Opening, *, place: str) -> AsyncIterator[OpenedOnRay]:
        """Join the cluster, and open a judge on it to get its identity.

        This changes the logging and error settings of Ray Data in this process permanently.

        Args:
            opening: opens a judge.
            place: path of the results, for messages.

        Raises:
            ClusterError: the cluster cannot be reached, or cannot open the judge.
        """
        is_ours = not ray.is_initialized()
        if is_ours:
            _join(self.address)
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.max_errored_blocks = -1
        others = set(threading.enumerate())
        try:
            self._warn_if_no_node_has_room()
            identity = await self._identity(opening)
            yield OpenedOnRay(identity=identity, settings=self, opening=opening, place=place)
        finally:
            if is_ours:
                await asyncio.to_thread(_wait_for_threads_of_ray, others)
                ray.shutdown()

    def _warn_if_no_node_has_room(self) -> None:
        """Warn if no node has enough cores, because Ray waits silently. An autoscaling cluster may add such a node."""
        most = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if self.num_cpus > most:
            logger.warning(
                "each actor needs %g cores (--actor-cpus), but no node has more than %g: waiting for a node",
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
    """A joined cluster, with the identity of its judges."""

    identity: Mapping[str, Any]
    settings: OnRay
    opening: Opening
    place: str

    async def judge(self, pieces: Sequence[Piece], *, on_result: Callable[[Result], None]) -> None:
        """Judge the remaining rows. Results can be duplicated or lost.

        Raises:
            RoundEnded: an actor stopped, or Ray failed.
            RunStopped: raised by `on_result`.
        """
        rows = (row for piece in pieces for row in piece.rows())
        while blocks := list(islice(_blocks_of(rows), WAVE_ROWS // BLOCK_ROWS)):
            async with aclosing(_blocks(self._results(blocks))) as stream:
                async for block in stream:
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
    """Ray actor that opens its judge when it receives the first block."""

    def __init__(self, *, opening: Opening, identity: Mapping[str, Any], concurrency: int, place: str) -> None:
        self._opening = opening
        self._identity = identity
        self._concurrency = concurrency
        self._place = place
        self._opened: asyncio.Task[RowJudge] | None = None
        self._stack = AsyncExitStack()

    async def __call__(self, block: pa.Table) -> pa.Table:
        """Return the results of a block, without failed rows. If all rows failed, return one row with the reason."""
        try:
            if self._opened is None:
                self._opened = asyncio.create_task(self._open())
            asking = await asyncio.shield(self._opened)
            results = await asyncio.gather(*map(asking.result, _rows_of(block)), return_exceptions=True)
        except Exception as error:
            results = [error]
        if made := [result for result in results if isinstance(result, dict)]:
            return table_of(made)
        nothing = {"key": "", "digest": "", "file": "", "row": 0, "error_kind": STOPPED}
        return table_of([nothing | {"error": f"node {_node()}: {_cause(cast('Exception', results[0]))}"}])

    async def _open(self) -> RowJudge:
        judge = await self._stack.enter_async_context(self._opening())
        if judge.identity != self._identity:
            raise InputError(f"the judge of this actor differs from the judges of the other actors: {judge.identity}")
        return RowJudge(judge, concurrency=self._concurrency, place=self._place)


def _join(address: str | None) -> None:
    """Connect this process to a cluster.

    Raises:
        ClusterError: the cluster cannot be reached.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster started here sends no usage statistics
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        raise ClusterError(f"cannot connect to a Ray cluster: {error}") from error


def _wait_for_threads_of_ray(others: Set[threading.Thread]) -> None:
    """Wait for the threads that Ray Data started, for at most `THREADS_END_S` in total.

    A run that stops early leaves them behind. Ray ends the process, with exit code 1, if one of them uses the connection
    to the cluster after it was closed.

    Args:
        others: threads that were running before.
    """
    deadline = time.monotonic() + THREADS_END_S
    for thread in set(threading.enumerate()) - others:
        if not thread.name.startswith(_THREADS_WITHOUT_WORK):
            thread.join(timeout=max(0.0, deadline - time.monotonic()))


def _identity_of(opening: Opening) -> Mapping[str, Any]:
    async def identity() -> Mapping[str, Any]:
        async with opening() as judge:
            return judge.identity

    return asyncio.run(identity())


async def _blocks(results: ray.data.Dataset) -> AsyncGenerator[pa.Table, None]:
    """Yield the blocks of a dataset as they are computed. Closing the generator stops the computation.

    Raises:
        RoundEnded: Ray failed.
    """
    # no prefetching, because Ray does not stop the thread that prefetches if the reading stops early
    blocks = iter(results.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0))
    reading = None
    try:
        while True:
            reading = asyncio.create_task(asyncio.to_thread(next, blocks, None))
            try:
                block = await asyncio.shield(reading)
            except Exception as error:  # errors of Ray and Ray Data have no common base class
                raise RoundEnded(_cause(error)) from error
            if block is None:
                return
            yield cast("pa.Table", block)
    finally:
        if reading is not None:
            await asyncio.wait([reading])
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
    """Return the root cause of a Ray error as one line."""
    while isinstance(cause := getattr(error, "cause", None) or error.__cause__, BaseException):
        error = cause
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
