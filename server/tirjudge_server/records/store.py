"""`Records` stores the judgments of one server, and finds earlier ones."""

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

from sqlalchemy import Connection, Row, bindparam, insert, select, union_all

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
from tirjudge_server.records.filters import RecordFilter
from tirjudge_server.records.group_commit import GroupCommitWriter
from tirjudge_server.records.labels import GivenLabel, StoredLabel, append_label, label_entry, labels_of
from tirjudge_server.records.record import (
    StoredJudgment,
    Versions,
    body_hash,
    content_key,
    fields_of,
    flags_of,
    idempotency_hash,
    record_of,
    with_calls,
)
from tirjudge_server.records.schema import LISTED, recalled_keys, records
from tirjudge_server.records.sealing import canonical, seal, sha256
from tirjudge_web.errors import Refused

logger = logging.getLogger(__name__)

# Built once: building a statement takes longer than SQLite takes to run it.
_BY_IDEMPOTENCY = union_all(
    select(records).where(records.c.idempotency == bindparam("_key")),
    select(*(recalled_keys.c.body if column is records.c.body else column for column in records.c))
    .join(recalled_keys, recalled_keys.c.seq == records.c.seq)
    .where(recalled_keys.c.idempotency == bindparam("_key")),
)
_BY_CONTENT = select(records).where(records.c.cache_key == bindparam("_key")).order_by(records.c.seq.desc()).limit(1)
_ADD_KEY = insert(recalled_keys)

_ANY = select(records.c.seq).limit(1)

PROBE_S = 2.0
"""Maximum seconds that the readiness check waits for the database."""

MAX_CACHED_CHARS = 1 << 20
"""Maximum length of a request that may be answered from the records. Serializing and verifying larger ones blocks others."""

PRUNING_S = 600.0
"""Seconds between two searches for judgments that have reached their retention age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPolicy:
    """The operator's settings for the records."""

    cache: bool = True
    """Whether a request that was judged before is answered from the records."""
    required: bool = True
    """Whether a judgment that cannot be stored fails. If False, it is returned without a record."""
    withheld: frozenset[str] = frozenset()
    """Names of fields that are not stored. A subset of `ERASABLE`."""
    retention_days: float | None = None
    """Age in days at which the erasable fields of a judgment are erased. None: never."""

    def __post_init__(self) -> None:
        check_erasable(self.withheld)


def find_record(database: Database, *, judgment_id: str) -> StoredJudgment | None:
    """Return a record by its id; None: no such record. Raises as `Records.read`."""
    wanted = select(records).where(records.c.id == judgment_id, records.c.kind == "judgment")
    with database.reading() as connection:
        row = connection.execute(wanted).one_or_none()
    return None if row is None else record_of(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookupKeys:
    """Hashes by which the judgment of an equal request is found."""

    idempotency: str | None
    """Hash of the idempotency key. None: the request has no key."""
    body: str | None
    """Hash of the request with its idempotency key. None: the request has no key."""
    cache_key: str | None
    """Hash of the request's content. None: the request must not be answered from the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recalled:
    """An earlier judgment for a request."""

    judgment: Judgment
    seq: int
    """Position of the judgment in the chain."""
    by_content: bool
    """Whether it was found by the content of the request, and not by the idempotency key."""


class Records:
    """The recorded judgments of one server.

    Args:
        database: The database, with all migrations run.
        versions: Versions at the start of the server. `follow` changes their fingerprint when the weights change.
        policy: Settings. None: the defaults of `RecordPolicy`.
    """

    def __init__(self, database: Database, *, versions: Versions, policy: RecordPolicy | None = None) -> None:
        self.database = database
        self.versions = versions
        self.policy = policy or RecordPolicy()
        self._hashing = asyncio.Lock()
        self._reader = GroupCommitWriter[Connection]("tirjudge-look-ups", transaction=database.reading)
        self._writer = GroupCommitWriter[Chain]("tirjudge-records", transaction=partial(appending, database))
        # Without a fingerprint the model may change unnoticed. With withheld fields a record cannot be compared.
        self._caches = self.policy.cache and versions.fingerprint is not None and not self.policy.withheld

    def follow(self, fingerprint: str | None) -> None:
        """Set the fingerprint of the weights that make the following judgments. None: unknown."""
        self.versions = replace(self.versions, fingerprint=fingerprint)

    def _stored_versions(self, fingerprint: str | None) -> dict[str, Any]:
        """Return the versions with this fingerprint, as JSON values."""
        versions = asdict(replace(self.versions, fingerprint=fingerprint))
        if versions["checks"] is None:  # as in records from before the checks
            del versions["checks"]
        return versions

    async def recall(self, request: JudgeRequest, *, call: Call) -> Judgment | None:
        """Return the earlier judgment for this idempotency key, or for the same content; None: no such judgment.

        An idempotency key that is answered by content is on disk when this returns.

        Raises:
            Refused: 422, the key was used with a different request; 409, the judgment of the key was erased.
            RecordsUnavailable: The records cannot be read, or the key cannot be stored.
        """
        keys = await self._lookup_keys(request, call=call, fingerprint=self.versions.fingerprint)
        if keys.idempotency is None and keys.cache_key is None:
            return None
        try:
            found = await self._reader.do(lambda connection: _recalled(connection, keys=keys))
        except RecordsUnavailable as error:
            if self.policy.required:
                raise  # A new judgment could not be stored either.
            logger.error("cannot look for an earlier judgment: %s", logged(error))
            return None
        if found is None or not found.by_content or keys.idempotency is None:
            return None if found is None else found.judgment
        try:
            return await self._writer.do(lambda chain: _recalled_for_key(chain, keys=keys))
        except RecordsUnavailable as error:
            if self.policy.required:
                raise
            logger.error("an idempotency key of %s was not recorded: %s", found.judgment.id, logged(error))
            return found.judgment

    async def store(self, request: JudgeRequest, judgment: Judgment, *, call: Call) -> Judgment:
        """Store a judgment, and return once it is on disk.

        Returns:
            The judgment to answer with. This is an earlier one if another request with the same idempotency key was
            answered in the meantime.

        Raises:
            Refused: 422, the key was used with a different request in the meantime.
            RecordsUnavailable: The judgment was not stored, and must not be returned to the caller.
        """
        # The weights may have changed since the judgment, so its own fingerprint is stored, not the present one.
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
            logger.error("%s was not recorded: %s", judgment.id, logged(error))
            return judgment

    async def problem(self) -> str | None:
        """Return why the records prevent judgments; None: the records can be read, or are not required."""
        if not self.policy.required:
            return None
        ends_at = asyncio.get_running_loop().time() + PROBE_S
        try:
            probed = await until(ends_at, self._reader.do(lambda connection: connection.execute(_ANY).all()))
        except RecordsUnavailable as error:
            return str(error)
        return None if probed is not None else f"records: {self.database} did not answer within {PROBE_S:.0f} s"

    async def read(self, judgment_id: str) -> StoredJudgment | None:
        """Return a record by its id; None: no such record.

        Raises:
            RecordsUnavailable: The records cannot be read.
            ValueError: The record is damaged and cannot be read.
        """

        def find() -> StoredJudgment | None:
            return find_record(self.database, judgment_id=judgment_id)

        return await asyncio.to_thread(find)

    async def page(
        self,
        *,
        after: str | None,
        limit: int,
        caller: str | None,
        where: RecordFilter = RecordFilter(),  # noqa: B008 (it is frozen)
    ) -> list[Row[Any]]:
        """Return rows of judgments, newest first, without their content.

        Args:
            after: Id of the last judgment of the previous page. None: the first page.
            limit: Maximum number of rows.
            caller: Only judgments of this caller. None: of all callers.
            where: Further conditions.

        Raises:
            RecordsUnavailable: The records cannot be read.
            Refused: 404, `after` is not the id of a judgment of this caller.
        """
        wanted = select(*(records.c[name] for name in LISTED)).where(*where.conditions(caller=caller))

        def find() -> list[Row[Any]]:
            with self.database.reading() as connection:
                statement = wanted
                if after is not None:
                    known = select(records.c.seq).where(records.c.id == after)
                    # The error for another caller's judgment is the same as for an unknown id.
                    known = known if caller is None else known.where(records.c.caller == caller)
                    seq = connection.execute(known).scalar()
                    if seq is None:
                        raise unknown_judgment(after, param="after")
                    statement = wanted.where(records.c.seq < seq)
                rows: list[Any] = list(connection.execute(statement.order_by(records.c.seq.desc()).limit(limit)))
                return rows

        return await asyncio.to_thread(find)

    async def contents(
        self,
        *,
        owner: str | None,
        model: str | None = None,
        from_s: int | None = None,
        to_s: int | None = None,
        before: int | None = None,
        limit: int,
    ) -> list[StoredJudgment]:
        """Return judgments of one caller, newest first.

        Args:
            owner: The caller. None: judgments without a caller.
            model: Only judgments of this model. None: all.
            from_s, to_s: Unix times in seconds between which they were stored, both included. None: no bound.
            before: Only judgments before this position in the chain. None: all.
            limit: Maximum number of judgments.

        Raises:
            RecordsUnavailable: The records cannot be read.
            ValueError: A record is damaged and cannot be read.
        """
        wanted = select(records).where(records.c.kind == "judgment")
        wanted = wanted.where(records.c.caller.is_(None) if owner is None else records.c.caller == owner)
        wanted = wanted if model is None else wanted.where(records.c.model == model)
        wanted = wanted if from_s is None else wanted.where(records.c.created_ms >= from_s * 1000)
        wanted = wanted if to_s is None else wanted.where(records.c.created_ms < (to_s + 1) * 1000)
        wanted = wanted if before is None else wanted.where(records.c.seq < before)

        def find() -> list[StoredJudgment]:
            with self.database.reading() as connection:
                found = connection.execute(wanted.order_by(records.c.seq.desc()).limit(limit))
                return [record_of(row) for row in found]

        return await asyncio.to_thread(find)

    async def neighbours(
        self,
        seq: int,
        *,
        caller: str | None,
        where: RecordFilter = RecordFilter(),  # noqa: B008 (it is frozen)
    ) -> tuple[str | None, str | None]:
        """Return the ids of the next newer and the next older judgment of a list. None: there is none.

        Args:
            seq: Position of the judgment between them.
            caller, where: As for `page`.

        Raises:
            RecordsUnavailable: The records cannot be read.
        """
        wanted = select(records.c.id).where(*where.conditions(caller=caller)).limit(1)

        def find() -> tuple[str | None, str | None]:
            with self.database.reading() as connection:
                newer = wanted.where(records.c.seq > seq).order_by(records.c.seq)
                older = wanted.where(records.c.seq < seq).order_by(records.c.seq.desc())
                return connection.execute(newer).scalar(), connection.execute(older).scalar()

        return await asyncio.to_thread(find)

    async def label(self, given: GivenLabel) -> str:
        """Store a label of a person. Return its id.

        Raises:
            RecordsUnavailable: The label was not stored.
        """
        entry = label_entry(given, withheld=self.policy.withheld)

        def work(chain: Chain) -> str:
            append_label(chain, entry)
            return entry.id

        return await self._writer.do(work)

    async def labels(self, judgment_id: str) -> list[StoredLabel]:
        """Return the labels of a judgment, newest first.

        Raises:
            RecordsUnavailable: The records cannot be read.
        """
        return await asyncio.to_thread(labels_of, self.database, judgment_id=judgment_id)

    async def prune_forever(self) -> None:
        """Erase judgments that have reached their retention age, every `PRUNING_S` seconds, until cancelled."""
        assert self.policy.retention_days is not None
        while True:
            try:
                await self.prune(before_ms=(time.time() - self.policy.retention_days * 86400) * 1000)
            except RecordsUnavailable as error:
                logger.error("cannot erase old judgments: %s", logged(error))
            await asyncio.sleep(PRUNING_S)

    async def prune(self, *, before_ms: float) -> int:
        """Erase all erasable fields of old judgments.

        Args:
            before_ms: Judgments that were stored before this Unix time in milliseconds are erased.

        Returns:
            Number of judgments that were erased.

        Raises:
            RecordsUnavailable: The database failed. Erasures that were committed before are recorded.
        """
        total = 0
        # In small transactions, so that new judgments do not wait long to be stored.
        while num_erased := await self._writer.do(lambda chain: prune_some(chain, before_ms=before_ms)):
            total += num_erased
        if total:
            await asyncio.to_thread(self.database.forget_erased)
        return total

    async def erase(self, judgment_id: str, *, fields: Collection[str]) -> bool:
        """Erase fields of a judgment. Return False if no such judgment exists.

        Raises:
            RecordsError: A field may not be erased.
            RecordsUnavailable: The database failed and nothing was erased.
        """
        check_erasable(fields)
        found = await self._writer.do(lambda chain: erase(chain, judgment_id=judgment_id, fields=fields))
        if found:
            await asyncio.to_thread(self.database.forget_erased)
        return found

    def close(self) -> None:
        """Finish pending work, and close the database."""
        self._reader.close()
        self._writer.close()
        self.database.close()

    async def _lookup_keys(self, request: JudgeRequest, *, call: Call, fingerprint: str | None) -> _LookupKeys:
        """Compute the hashes of a request.

        Hashing a large request blocks the event loop for a while. The lock and the sleep let other tasks run between two
        requests.
        """
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
        content = seal(fields, withheld=with_calls(self.policy.withheld))
        is_final = not _was_hurried(request, judgment, call=call) and _is_repeatable(judgment, versions=versions)
        cache_key = keys.cache_key if is_final else None
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
                **flags_of(judgment),
                "cache_key": cache_key,
                "idempotency": keys.idempotency,
                "body": keys.body,
            },
        )


def _was_hurried(request: JudgeRequest, judgment: Judgment, *, call: Call) -> bool:
    """Whether a deadline may have influenced a judgment. Such a judgment does not answer later requests."""
    if any(rollout.stop_reason is StopReason.DEADLINE for rollout in judgment.rollouts):
        return True
    limits_s = [limit_s for limit_s in (request.deadline_s, call.deadline_s) if limit_s is not None]
    return any(judgment.timing.total_s + judgment.timing.queue_s > limit_s / 2 for limit_s in limits_s)


def _is_repeatable(judgment: Judgment, *, versions: Mapping[str, Any]) -> bool:
    """Whether all functions that the programs called give equal results for equal arguments."""
    turns = (turn for rollout in judgment.rollouts for turn in rollout.turns)
    called = {call.function for turn in turns for call in turn.calls}
    return all(name in versions["functions"] and versions["functions"][name]["is_deterministic"] for name in called)


def _num_chars(request: JudgeRequest) -> int:
    prompt = request.prompt
    texts = [prompt] if isinstance(prompt, str) else [message.content for message in prompt]
    files = [file for store in request.evidence or () for file in store.files]
    return sum(map(len, [*texts, *request.responses])) + sum(len(file.text or file.base64 or "") for file in files)


def _recalled(connection: Connection, *, keys: _LookupKeys) -> _Recalled | None:
    """Look up the judgment for `Records.recall`, and raise its errors."""
    if keys.idempotency is not None:
        row = connection.execute(_BY_IDEMPOTENCY, {"_key": keys.idempotency}).one_or_none()
        if row is not None:
            return _Recalled(judgment=_answer_again(row, keys=keys), seq=row.seq, by_content=False)
    if keys.cache_key is not None:
        row = connection.execute(_BY_CONTENT, {"_key": keys.cache_key}).one_or_none()
        judgment = None if row is None else _intact_judgment(row)
        if row is not None and judgment is not None:
            return _Recalled(judgment=judgment, seq=row.seq, by_content=True)
    return None


def _recalled_for_key(chain: Chain, *, keys: _LookupKeys) -> Judgment | None:
    """Look up a judgment as `_recalled`, in a write transaction, and store a new key of it."""
    earlier = _answered_before(chain, keys=keys)
    if earlier is not None:
        return _answer_again(earlier, keys=keys)
    found = _recalled(chain.connection, keys=keys)
    if found is None:
        return None
    row = {"idempotency": keys.idempotency, "seq": found.seq, "body": keys.body}
    chain.connection.execute(_ADD_KEY, row)
    return found.judgment


def _answered_before(chain: Chain, *, keys: _LookupKeys) -> Any:
    """Return the row, written or pending, of a judgment with the same idempotency key; None: no such row."""
    if keys.idempotency is None:
        return None
    for row in chain.pending.values():
        if row["idempotency"] == keys.idempotency:
            return SimpleNamespace(**row)
    return chain.connection.execute(_BY_IDEMPOTENCY, {"_key": keys.idempotency}).one_or_none()


def _answer_again(row: Any, *, keys: _LookupKeys) -> Judgment:
    """Return the judgment of a row with the same idempotency key.

    Raises:
        Refused: 422, the key was used with a different request; 409, the judgment of the key was erased.
    """
    if row.body not in (None, keys.body):
        raise key_reused()
    record = record_of(row)
    if record.content.erased:
        message = f"idempotency-key: already used for {row.id}, which was erased; use a new key"
        raise Refused(invalid(message, param="idempotency-key", code="idempotency_key_erased"), status=409)
    return record.judgment


def _intact_judgment(row: Any) -> Judgment | None:
    """Return the judgment of a row; None if the row was changed after it was stored."""
    try:
        record = record_of(row)
        return record.judgment if record.is_intact else None
    except (ValueError, KeyError):
        return None


def unknown_judgment(judgment_id: str, *, param: str) -> Refused:
    """Return the refusal of an unknown judgment id."""
    message = f"{param}: {shown(judgment_id)} is not on record"
    return Refused(invalid(message, param=param, code="judgment_not_found"), status=404)


@asynccontextmanager
async def open_records(
    url: str | None, *, versions: Versions, policy: RecordPolicy | None = None
) -> AsyncIterator[Records]:
    """Open the records of a server, erase old judgments in the background, and close the records at the end of the block.

    Args:
        url: URL of a database, or the path of a SQLite file. None: the default database.
        versions: Versions at the start of the server.
        policy: Settings. None: the defaults of `RecordPolicy`.

    Raises:
        RecordsError: The database cannot be used.
        RecordsUnavailable: The database does not answer.
    """
    store = Records(await asyncio.to_thread(open_database, url), versions=versions, policy=policy)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(asyncio.to_thread, store.close)
        if store.policy.retention_days is not None:
            await opened.enter_async_context(background(store.prune_forever()))
        yield store
