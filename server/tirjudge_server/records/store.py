"""`Records`: the judgments of one server, kept and found again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from tirjudge.concurrency import background
from tirjudge.deadline import until
from tirjudge.errors import RecordsUnavailable, logged
from tirjudge.http.protocol import invalid, shown
from tirjudge.types import JudgeRequest, Judgment, StopReason
from tirjudge_server.call import Call
from tirjudge_server.coalescing import key_reused
from tirjudge_server.records.chain import Chain, ChainEntry, appending
from tirjudge_server.records.database import Database, open_database
from tirjudge_server.records.erasing import check_erasable, erase, prune_some
from tirjudge_server.records.group_commit import GroupCommitWriter
from tirjudge_server.records.record import (
    StoredJudgment,
    Versions,
    body_hash,
    content_key,
    fields_of,
    idempotency_hash,
    record_of,
)
from tirjudge_server.records.schema import records
from tirjudge_server.records.sealing import canonical, seal, sha256
from tirjudge_web.errors import Refused

logger = logging.getLogger(__name__)

# Made once: making a statement costs more than SQLite takes to run it.
_BY_IDEMPOTENCY = select(records).where(records.c.idempotency == bindparam("_key"))
_BY_CONTENT = select(records).where(records.c.cache_key == bindparam("_key")).order_by(records.c.seq.desc()).limit(1)

_ANY = select(records.c.seq).limit(1)

PROBE_S = 2.0
"""How long they may take to answer whether they are there."""

MAX_CACHED_CHARS = 1 << 20
"""A longer request is always judged: spelling and checking its record would hold up everybody else."""

PRUNING_S = 600.0
"""Between two looks for what has reached its age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPolicy:
    """What an operator wants of the records."""

    cache: bool = True
    """Whether a request that was judged before is answered from them."""
    required: bool = True
    """Whether a judgment that cannot be stored is an error. If not, it is told, and is not on record."""
    withheld: frozenset[str] = frozenset()
    """Fields that are not stored; of `ERASABLE`."""
    retention_days: float | None = None
    """Age at which the erasable fields of a judgment are erased; None: never."""

    def __post_init__(self) -> None:
        check_erasable(self.withheld)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookupKeys:
    """What a request is found again by."""

    idempotency: str | None
    """None: it came without a key."""
    body: str | None
    cache_key: str | None
    """None: it is not to be answered from the cache."""


class Records:
    """The judgments of one server.

    Args:
        database: with all migrations run.
        versions: what makes the judgments at first; its fingerprint is followed by that of each judgment.
        policy: what is kept, and for how long.
    """

    def __init__(self, database: Database, *, versions: Versions, policy: RecordPolicy | None = None) -> None:
        self.database = database
        self.versions = versions
        self.policy = policy or RecordPolicy()
        self._hashing = asyncio.Lock()
        self._reader = GroupCommitWriter[Connection]("tirjudge-look-ups", transaction=database.reading)
        self._writer = GroupCommitWriter[Chain]("tirjudge-records", transaction=partial(appending, database))
        # A model out of sight may change under its name, and a text that is not kept cannot be compared.
        self._caches = self.policy.cache and versions.fingerprint is not None and not self.policy.withheld

    def follow(self, fingerprint: str | None) -> None:
        """Judgments are made with other weights from now on."""
        self.versions = replace(self.versions, fingerprint=fingerprint)

    def _stored_versions(self, fingerprint: str | None) -> dict[str, Any]:
        """The versions with those weights, as they are stored."""
        return asdict(replace(self.versions, fingerprint=fingerprint))

    async def recall(self, request: JudgeRequest, *, call: Call) -> Judgment | None:
        """The judgment that was made before for this idempotency key, or for the same content; None: there is none.

        Raises:
            Refused: 422, the key came with another request before; 409, its judgment was erased since.
            RecordsUnavailable: the records cannot be read.
        """
        keys = await self._lookup_keys(request, call=call, fingerprint=self.versions.fingerprint)
        if keys.idempotency is None and keys.cache_key is None:
            return None
        try:
            return await self._reader.do(lambda connection: _recalled(connection, keys=keys))
        except RecordsUnavailable as error:
            if self.policy.required:
                raise  # What is judged now could not be stored either.
            logger.error("not looked up: %s", logged(error))
            return None

    async def store(self, request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        """Keep a judgment. Returns once it is on disk, and gives the one to answer with: another than the one given when
        the same idempotency key was answered meanwhile.

        Raises:
            Refused: 422, the key came with another request meanwhile.
            RecordsUnavailable: it was not kept, and must not be told.
        """
        # Weights may have been exchanged since it was made; the next one must not be answered with this.
        fingerprint = judgment.model_version or self.versions.fingerprint
        keys = await self._lookup_keys(request, call=call, fingerprint=fingerprint)
        versions = self._stored_versions(fingerprint)

        def work(chain: Chain) -> Judgment:
            earlier = _answered_before(chain, keys=keys)
            if earlier is not None:
                return _answer_again(earlier, keys=keys)
            chain.append(self._entry(request, judgment, call=call, keys=keys, versions=versions))
            return judgment

        try:
            return await self._writer.do(work)
        except RecordsUnavailable as error:
            if self.policy.required:
                raise
            logger.error("%s is not on record: %s", judgment.id, logged(error))
            return judgment

    async def problem(self) -> str | None:
        """Why nothing can be judged as far as they are concerned; None: they can be read, or it can be judged without."""
        if not self.policy.required:
            return None
        ends_at = asyncio.get_running_loop().time() + PROBE_S
        try:
            probed = await until(ends_at, self._reader.do(lambda connection: connection.execute(_ANY).all()))
        except RecordsUnavailable as error:
            return str(error)
        return None if probed is not None else f"records: {self.database} did not answer within {PROBE_S:.0f} s"

    async def read(self, judgment_id: str) -> StoredJudgment | None:
        """A record by its id; None: there is none.

        Raises:
            RecordsUnavailable: it cannot be known.
            ValueError: it is damaged beyond reading.
        """
        wanted = select(records).where(records.c.id == judgment_id, records.c.kind == "judgment")

        def find() -> StoredJudgment | None:
            with self.database.reading() as connection:
                row = connection.execute(wanted).one_or_none()
            return None if row is None else record_of(row)

        return await asyncio.to_thread(find)

    async def page(self, *, after: str | None, limit: int, caller: str | None) -> list[Row[Any]]:
        """Rows of judgments, the newest first, without their content.

        Args:
            after: id of the last one that was seen; None: from the newest.
            limit: how many at most.
            caller: whose; None: of everybody.

        Raises:
            RecordsUnavailable: they cannot be read.
            Refused: 404, `after` is no judgment.
        """
        names = ("seq", "id", "created_ms", "caller", "dialect", "mode", "model", "status")
        wanted = select(*(records.c[name] for name in names)).where(records.c.kind == "judgment")
        if caller is not None:
            wanted = wanted.where(records.c.caller == caller)

        def find() -> list[Row[Any]]:
            with self.database.reading() as connection:
                statement = wanted
                if after is not None:
                    known = select(records.c.seq).where(records.c.id == after)
                    # Whether others have a judgment of that id is not told either.
                    known = known if caller is None else known.where(records.c.caller == caller)
                    seq = connection.execute(known).scalar()
                    if seq is None:
                        raise unknown_judgment(after, param="after")
                    statement = wanted.where(records.c.seq < seq)
                return list(connection.execute(statement.order_by(records.c.seq.desc()).limit(limit)))

        return await asyncio.to_thread(find)

    async def prune_forever(self) -> None:
        """Erase what has reached its age, now and from time to time, until cancelled."""
        assert self.policy.retention_days is not None
        while True:
            try:
                await self.prune(before_ms=(time.time() - self.policy.retention_days * 86400) * 1000)
            except RecordsUnavailable as error:
                logger.error("nothing was erased: %s", logged(error))
            await asyncio.sleep(PRUNING_S)

    async def prune(self, *, before_ms: float) -> int:
        """Erase all erasable fields of judgments that were stored before; how many judgments that were.

        Raises:
            RecordsUnavailable: it failed half-way; what was erased is on record.
        """
        total = 0
        # Some at a time, so that judgments that are to be stored need not wait for long.
        while num_erased := await self._writer.do(lambda chain: prune_some(chain, before_ms=before_ms)):
            total += num_erased
        if total:
            await asyncio.to_thread(self.database.forget_erased)
        return total

    async def erase(self, judgment_id: str, *, fields: Collection[str]) -> bool:
        """Erase fields of a judgment; whether there is one.

        Raises:
            RecordsError: one of the fields is not to be erased.
            RecordsUnavailable: nothing was erased.
        """
        check_erasable(fields)
        found = await self._writer.do(lambda chain: erase(chain, judgment_id=judgment_id, fields=fields))
        if found:
            await asyncio.to_thread(self.database.forget_erased)
        return found

    def close(self) -> None:
        """Writes what is to be written."""
        self._reader.close()
        self._writer.close()
        self.database.close()

    async def _lookup_keys(self, request: JudgeRequest, *, call: Call, fingerprint: str | None) -> _LookupKeys:
        """Hashing a large request takes a while: they take turns, and the loop goes round before each."""
        key = call.idempotency_key
        async with self._hashing:
            await asyncio.sleep(0)
            cache_key = None
            if self._caches and _num_chars(request) <= MAX_CACHED_CHARS:
                versions = sha256(canonical(self._stored_versions(fingerprint)))
                cache_key = content_key(request, caller=call.caller, versions=versions)
            return _LookupKeys(
                idempotency=None if key is None else idempotency_hash(key, caller=call.caller),
                body=None if key is None else body_hash(request, key=key),
                cache_key=cache_key,
            )

    def _entry(
        self, request: JudgeRequest, judgment: Judgment, *, call: Call, keys: _LookupKeys, versions: Mapping[str, Any]
    ) -> ChainEntry:
        fields = fields_of(request, judgment, call=call, versions=versions)
        content = seal(fields, withheld=self.policy.withheld)
        cache_key = None if _was_hurried(request, judgment, call=call) else keys.cache_key
        return ChainEntry(
            kind="judgment",
            id=judgment.id,
            content=content,
            columns={
                "caller": None if "caller" in content.withheld else call.caller,
                "dialect": call.dialect,
                "mode": judgment.mode,
                "model": judgment.model,
                "status": judgment.verdict.status,
                "cache_key": cache_key,
                "idempotency": keys.idempotency,
                "body": keys.body,
            },
        )


def _was_hurried(request: JudgeRequest, judgment: Judgment, *, call: Call) -> bool:
    """Whether a judgment may have come out otherwise with more time; then it is not for those who have more."""
    if any(rollout.stop_reason is StopReason.DEADLINE for rollout in judgment.rollouts):
        return True
    limits_s = [limit_s for limit_s in (request.deadline_s, call.deadline_s) if limit_s is not None]
    return any(judgment.timing.total_s + judgment.timing.queue_s > limit_s / 2 for limit_s in limits_s)


def _num_chars(request: JudgeRequest) -> int:
    prompt = request.prompt
    texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
    return sum(map(len, [*texts, *request.responses]))


def _recalled(connection: Connection, *, keys: _LookupKeys) -> Judgment | None:
    """
    Raises:
        Refused: as `Records.recall`.
    """
    if keys.idempotency is not None:
        row = connection.execute(_BY_IDEMPOTENCY, {"_key": keys.idempotency}).one_or_none()
        if row is not None:
            return _answer_again(row, keys=keys)
    if keys.cache_key is not None:
        row = connection.execute(_BY_CONTENT, {"_key": keys.cache_key}).one_or_none()
        if row is not None:
            return _intact_judgment(row)
    return None


def _answered_before(chain: Chain, *, keys: _LookupKeys) -> Any:
    """The row, written or about to be, of a judgment with the same idempotency key; None: there is none."""
    if keys.idempotency is None:
        return None
    for row in chain.pending.values():
        if row["idempotency"] == keys.idempotency:
            return SimpleNamespace(**row)
    return chain.connection.execute(_BY_IDEMPOTENCY, {"_key": keys.idempotency}).one_or_none()


def _answer_again(row: Any, *, keys: _LookupKeys) -> Judgment:
    """What answers a key that was answered before.

    Raises:
        Refused: 422, it came with another request; 409, what answered it is erased.
    """
    if row.body not in (None, keys.body):
        raise key_reused()
    record = record_of(row)
    if record.content.erased:
        message = f"idempotency-key: {row.id} answered it and was erased since; use a new key"
        raise Refused(invalid(message, param="idempotency-key", code="idempotency_key_erased"), status=409)
    return record.judgment


def _intact_judgment(row: Any) -> Judgment | None:
    """The judgment of a row to answer from the cache; None if the row was changed."""
    try:
        record = record_of(row)
        return record.judgment if record.is_intact else None
    except (ValueError, KeyError):
        return None


def unknown_judgment(judgment_id: str, *, param: str) -> Refused:
    message = f"{param}: {shown(judgment_id)} given, there is no such judgment on record"
    return Refused(invalid(message, param=param, code="judgment_not_found"), status=404)


@asynccontextmanager
async def open_records(
    url: str | None, *, versions: Versions, policy: RecordPolicy | None = None
) -> AsyncIterator[Records]:
    """Open the records of a server, keep them to their retention, and close them afterwards.

    Args:
        url: of the database, or the path of a SQLite file; None: the default one.
        versions: what makes the judgments at first; its fingerprint is followed by that of each judgment.
        policy: what is kept, and for how long.

    Raises:
        RecordsError: it cannot be used.
        RecordsUnavailable: it does not answer.
    """
    store = Records(await asyncio.to_thread(open_database, url), versions=versions, policy=policy)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(asyncio.to_thread, store.close)
        if store.policy.retention_days is not None:
            await opened.enter_async_context(background(store.prune_forever()))
        yield store
