"""Run evals in the background: copy the rows, let a model write the samples, and grade them.

A run is a job (`jobs`) whose state is in the store: queued, in progress, ended. A row is graded once: its results and the
counts of the run are stored together, a sample is stored before it is graded, and judgments have idempotency keys.

Servers that share a Postgres database share the runs: each run is worked on by the server that holds it (`EvalStore.claim`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from tirjudge.errors import ContentFiltered, RecordsUnavailable, logged
from tirjudge.http.exchange import EngineRefused
from tirjudge.request_context import coming_from
from tirjudge_server.call import Call, Priority
from tirjudge_server.chat_models import ChatModels
from tirjudge_server.evals.definitions import (
    Criterion,
    DataSource,
    EvalCreation,
    FileSource,
    RecordsSource,
    RunCreation,
    SampledData,
    names_of,
)
from tirjudge_server.evals.grading import content_key, failed_result, named_result, result_of, sample_variable
from tirjudge_server.evals.rows import MAX_ROWS, EvalRow, RowProblem, row_of_record, rows_in, schema_of
from tirjudge_server.evals.sampling import empty_sample, write_sample
from tirjudge_server.evals.store import UNFINISHED, EvalStore, StoredEval, StoredRow, StoredRun
from tirjudge_server.evals.tally import row_status
from tirjudge_server.jobs import Jobs, persistently, work_through
from tirjudge_server.openai.filestore import FileStore, StoredFile
from tirjudge_server.openai.grading import Given, GraderContext, ModelCall, grade_sample
from tirjudge_server.openai.placeholders import UnknownVariable
from tirjudge_server.records.store import Records
from tirjudge_server.service import JudgeService
from tirjudge_web.errors import Refused, ShuttingDown, problem_from
from tirjudge_web.tracebacks import frames_of

logger = logging.getLogger(__name__)

NUM_COPIED = 200
"""Number of rows that are copied in one transaction."""


class RunFailed(Exception):
    """The run cannot go on. The arguments are the code and the message of its error."""


POLL_S = 5.0
"""Seconds between two looks at the runs of other servers. Leases are renewed as often."""


class RunEnded(Exception):
    """The run was canceled or deleted while a row was graded, or another server has taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRunPlan:
    """What all rows of a run share."""

    run: StoredRun
    data: DataSource
    criteria: Sequence[Criterion]
    names: Sequence[str]
    """Unique names of the criteria."""
    models: ChatModels
    """Models besides the judge."""

    @property
    def sampled(self) -> SampledData | None:
        """The data source, if a model writes the samples. None: the rows are graded as they are."""
        return self.data if isinstance(self.data, SampledData) and self.data.model is not None else None


class EvalRunner:
    """Runs the evals of a server.

    Args:
        service: Judges and runs programs.
        store: Holds evals and runs.
        files: Holds uploaded rows.
        models: Models besides the judge.
        records: Recorded judgments. None: the server has none.
        max_line_bytes: Maximum length of a row in a file.
        caches: Whether results of graders are kept for rows with the same content.
    """

    def __init__(
        self,
        service: JudgeService,
        *,
        store: EvalStore,
        files: FileStore,
        models: ChatModels,
        records: Records | None,
        max_line_bytes: int,
        caches: bool,
    ) -> None:
        self._service, self._store, self._files = service, store, files
        self._models, self._records = models, records
        self._max_line_bytes, self._caches = max_line_bytes, caches
        self._file_of: dict[str, str] = {}  # id of a queued run -> id of the file that it reads
        self._following: asyncio.Task[None] | None = None
        files.readers.append(self._reads)
        files.other_bytes = store.num_bytes_of
        self.jobs = Jobs(advance=self._advance, fail=self._fail_internally, unfinished=store.unfinished)

    def start(self) -> None:
        """Continue the unfinished runs. Later calls do nothing."""
        if not self.jobs.has_started:
            for run in self._store.queued():
                self._hold_file(run)
            self.jobs.start()
            if self._store.is_shared:
                self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        """Renew the leases of this server's runs, and take runs that no server holds."""
        while True:
            try:
                await self._look_at_runs()
            except RecordsUnavailable as error:
                logger.warning("the leases of runs of evals are not renewed: %s", logged(error))
            await asyncio.sleep(POLL_S)

    async def _look_at_runs(self) -> None:
        working = self.jobs.working  # before the leases are read: a run is claimed before its work starts
        held, free = await self._store.renew()
        for run_id in working - set(held):
            self.jobs.interrupt(run_id)  # canceled, deleted, or taken by another server
        for run_id in held:
            if not self.jobs.knows(run_id):
                self.jobs.run(run_id)  # its end could not be stored
        for run in free:
            if not self.jobs.knows(run.id) and self._has_rows(run):
                self._hold_file(run)
                self.jobs.run(run.id)

    def _has_rows(self, run: StoredRun) -> bool:
        """Whether this server can read the rows of a run. The file of a queued run is on the server that received it."""
        source = run.content["data_source"]["source"]
        is_elsewhere = source["type"] == "file_id" and not self._files.has(source["id"])
        return run.num_rows is not None or not (self._store.is_shared and is_elsewhere)

    def start_run(self, run: StoredRun) -> None:
        """Start a new run."""
        self._hold_file(run)
        self.jobs.run(run.id)

    async def stop(self) -> None:
        """Stop all work and close the store. Unfinished runs continue at the next start."""
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        await self.jobs.stop()
        await self._store.close()

    def _hold_file(self, run: StoredRun) -> None:
        source = run.content["data_source"]["source"]
        if source["type"] == "file_id" and run.num_rows is None:
            self._file_of[run.id] = source["id"]

    def _reads(self, file: StoredFile) -> bool:
        return file.id in self._file_of.values()

    async def _advance(self, run_id: str) -> None:
        """Run a run from its current state to its end."""
        try:
            run = await self._store.known_run(run_id)
            of = None if run is None else await self._store.known_eval(run.eval_id)
            if run is None or of is None or run.status not in UNFINISHED or not self._has_rows(run):
                return
            if not await self._store.claim(run_id):
                return
            done = await self.jobs.work(run_id, self._work(run, of))
            assert done is not None  # there is no timeout
            if not done.cancelled():  # interrupted: the run was canceled or deleted
                done.result()
        finally:
            self._file_of.pop(run_id, None)

    async def _fail_internally(self, run_id: str) -> None:
        error = {"code": "internal", "message": "the server failed; its log has the cause"}
        await self._store.move(run_id, "failed", error=error)

    async def _work(self, run: StoredRun, of: StoredEval) -> None:
        definition, body = EvalCreation.model_validate(of.content), RunCreation.model_validate(run.content)
        criteria = definition.testing_criteria
        plan = EvalRunPlan(
            run=run, data=body.data_source, criteria=criteria, names=names_of(criteria), models=self._models.fresh()
        )
        try:
            if run.status == "queued":
                num_rows = run.num_rows
                if num_rows is None:
                    num_rows = await self._copy_rows(plan, definition)
                if not await self._store.move(run.id, "in_progress", num_rows=num_rows):
                    return
                self._file_of.pop(run.id, None)

            async def do(row: StoredRow) -> None:
                with coming_from(run.owner, urgency=Priority.BATCH):
                    await self._do_row(plan, row)

            waiting = self._store.waiting_rows(run.id)
            await work_through(waiting, do, num_parallel=self._service.admission.max_running)
        except RunEnded:
            return
        except RunFailed as error:
            code, message = error.args
            await self._store.move(run.id, "failed", error={"code": code, "message": message})
        else:
            await self._store.move(run.id, "completed")

    # Rows ----------------------------------------------------------------------------------------------------------------

    async def _copy_rows(self, plan: EvalRunPlan, definition: EvalCreation) -> int:
        """Copy the rows of a file or of the records into the store. Return their number.

        Raises:
            RunFailed: A row is invalid, or the caller's quota is full.
        """
        run, source = plan.run, plan.data.source
        await self._store.clear_rows(run.id)
        try:
            if isinstance(source, RecordsSource):
                return await self._copy_records(run, source)
            assert isinstance(source, FileSource)
            path = self._files.path(source.id)
            schema = await asyncio.to_thread(schema_of, definition.data_source_config)
            reading = rows_in(path, schema=schema, max_line_bytes=self._max_line_bytes)
            num_rows = 0
            while part := await asyncio.to_thread(lambda: list(islice(reading, NUM_COPIED))):
                await self._add(run, part)
                num_rows += len(part)
            return num_rows
        except RowProblem as error:
            raise RunFailed("invalid_row", str(error)) from None
        except FileNotFoundError:
            raise RunFailed("file_not_found", "the file was deleted before its rows were read") from None
        except Refused as error:
            raise RunFailed(error.problem.code or "refused", str(error)) from None

    async def _copy_records(self, run: StoredRun, source: RecordsSource) -> int:
        if self._records is None:
            raise RunFailed("no_records", "this server has no records; the operator removes --records none")
        before, num_rows, limit = None, 0, min(source.limit or MAX_ROWS, MAX_ROWS)
        while num_rows < limit:
            found = await self._records.contents(
                owner=run.owner,
                model=source.model,
                from_s=source.created_after,
                to_s=source.created_before,
                before=before,
                limit=NUM_COPIED,
            )
            if not found:
                break
            before = found[-1].seq
            part: list[EvalRow] = []
            for record in found:
                row = row_of_record(num_rows + len(part), record)
                if row is not None and num_rows + len(part) < limit:
                    part.append(row)
            await self._add(run, part)
            num_rows += len(part)
        if not num_rows:
            raise RunFailed("no_rows", "no recorded judgment of this key matches the filters")
        return num_rows

    async def _add(self, run: StoredRun, part: Sequence[EvalRow]) -> None:
        """Add rows to a run.

        Raises:
            Refused: 413, the caller's quota is full.
        """
        self._files.check_full(run.owner, num_bytes=sum(row.num_bytes for row in part))
        await self._store.add_rows(run.id, part)

    async def _do_row(self, plan: EvalRunPlan, row: StoredRow) -> None:
        """Sample and grade a row, and store its results.

        Raises:
            RunFailed: A model refuses all rows.
            RunEnded: The run was canceled or deleted, or another server has taken it.
            ShuttingDown: The server is shutting down.
        """
        written, data = row.sample, plan.sampled
        if data is not None and written is None:
            written = await self._sample(data, row, models=plan.models)
            await persistently(partial(self._store.keep_sample, plan.run.id, row.number, written))
        results: list[dict[str, Any]] = []
        calls: list[ModelCall] = []
        if written is None or written["error"] is None:
            for place in range(len(plan.criteria)):
                result, used = await self._grade(plan, row, place=place, written=written)
                results.append(result)
                calls += used
        finish = partial(
            self._store.finish_row,
            plan.run.id,
            row.number,
            status=row_status(results) if results else "error",
            results=results,
            calls=calls,
            sampled=None if written is None else (written["model"], written["usage"]),
        )
        if not await persistently(finish):
            raise RunEnded

    async def _sample(self, data: SampledData, row: StoredRow, *, models: ChatModels) -> dict[str, Any]:
        """Let the model write the sample of a row. A permanent failure is a sample with an error."""
        values = {"item": row.item, "sample": {}}

        async def write() -> dict[str, Any]:
            given = Given(values, max_chars=self._service.cost_limits.chars)
            return await write_sample(data, given, models=models)

        try:
            return await persistently(write)
        except Exception as error:
            code, message = _problem_with_row(error)
            empty = empty_sample(model=data.model or "", params=data.sampling_params)
            return {**empty, "finish_reason": "error", "error": {"code": code, "message": message}}

    async def _grade(
        self, plan: EvalRunPlan, row: StoredRow, *, place: int, written: Any
    ) -> tuple[dict[str, Any], Sequence[ModelCall]]:
        """Return the result of one criterion, and the uses of models for it."""
        run, criterion = plan.run, plan.criteria[place]
        key: bytes | None = None
        calls: Sequence[ModelCall] = ()
        try:
            sample = await asyncio.to_thread(sample_variable, row.given_sample, written=written)
            values = {"item": row.item, "sample": sample}
            if self._caches:
                hashing = partial(content_key, criterion, values, owner=run.owner, models=plan.models)
                key = await asyncio.to_thread(hashing)
            found = None if key is None else await self._store.find_score(key)
            if found is None:
                call = Call(
                    dialect="openai.evals",
                    caller=run.owner,
                    priority=Priority.BATCH,
                    # A row is judged once, even if the server is restarted while it is judged.
                    idempotency_key=f"{run.id}/{row.number}/{place}",
                )

                async def grade():
                    given = Given(values, max_chars=self._service.cost_limits.chars)
                    context = GraderContext(service=self._service, given=given, call=call, models=plan.models)
                    return await grade_sample(criterion, context)

                score = await persistently(grade)
                found, calls = result_of(score), score.calls
                if key is not None and "error" not in found:
                    await self._store.keep_score(key, found, eval_id=run.eval_id)
        except Exception as error:
            found = failed_result(*_problem_with_row(error))
        return named_result(found, name=plan.names[place], criterion=criterion), calls


def _problem_with_row(error: Exception) -> tuple[str, str]:
    """Return the code and the message of an error that concerns one row.

    Raises:
        ShuttingDown: The server is shutting down.
        RunFailed: The error concerns all rows.
    """
    if isinstance(error, ShuttingDown):
        raise error
    if isinstance(error, UnknownVariable):
        return "invalid_variable_error", str(error)
    if isinstance(error, ContentFiltered):
        return "content_filter", str(error)
    status, problem, _ = problem_from(error)
    code = problem.code or "error"
    if isinstance(error, EngineRefused) and not error.is_about_request:
        raise RunFailed(code, problem.message) from error
    if status == 500:
        logger.error("a row of an eval failed\n%s", frames_of(error))
    return code, problem.message
