"""Stores of evidence: their settings, and their opening.

A registered store is held by an isolated process (`inside/held.py`), which forks a process for each query. A store that comes
with a request is opened by the process of each query and belongs to that request alone.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tirjudge.errors import SandboxUnavailable, ToolUnavailable
from tirjudge.tools.functions import ToolError
from tirjudge.types import AttachedStore, Outcome, StoreCard, StoreKind, World, check_period
from tirjudge_sandbox import Limits, SandboxPool
from tirjudge_sandbox.preload import Preload

MAX_STORE_BYTES = 1 << 30
"""Maximum total size of the files of a registered store."""

OPENING_S = 120.0
"""Maximum time in seconds for opening a store."""

FORMATS: Mapping[StoreKind, Mapping[str, str]] = {
    "table": {
        ".csv": "csv",
        ".parquet": "parquet",
        ".json": "json",
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".sqlite": "sqlite",
        ".sqlite3": "sqlite",
        ".db": "sqlite",
    },
    "graph": {".ttl": "turtle", ".nt": "n-triples", ".jsonld": "json-ld"},
    "documents": {".txt": "text", ".md": "markdown", ".pdf": "pdf"},
}
"""Kind of store -> suffix of a file -> format."""

KINDS: Sequence[StoreKind] = (
    "table",
    "graph",
    "documents",
)
"""Kinds of stores, each with a module of its name in `inside`."""

MODULES: Mapping[StoreKind, Sequence[str]] = {"graph": ("graph", "shapes")}
"""Kind of store -> modules of `inside` that its process imports, if it is not only the module of its name."""

PACKAGES: Mapping[str, Sequence[str]] = {
    "table": ("duckdb",),
    "graph": ("pyoxigraph", "pyshacl", "rdflib"),
    "documents": ("pypdf",),
    "prover": ("z3-solver",),
}
"""Kind of store, or `prover` -> distributions that its process needs."""

_HELD = Path(__file__).parent / "inside" / "held.py"
_QUERY = "import tirjudge_held; tirjudge_held.answer(query, attached)"

TIMEOUT_S = 5.0
"""Default maximum CPU time of a query in seconds."""

MAX_TIMEOUT_S = 60.0
"""Maximum of the setting `timeout_s`."""


def limits_of(timeout_s: float) -> Limits:
    """Return the limits of a query with a limit of its CPU time in seconds. Its wall time is a backstop, as in `Limits`, so
    that a query is not stopped because the machine is busy."""
    return Limits(
        cpu_s=timeout_s,
        wall_s=3 * timeout_s,
        memory_mb=1024,
        output_bytes=(1 << 20) + 4096,
        source_bytes=48 << 20,
    )


class StoreFile(BaseModel):
    """A file of a registered store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    """Path, relative to the settings file."""
    name: str | None = None
    """Name of the table or document. None: the file's name."""
    format: str | None = None
    """Format. None: from the suffix."""


class StoreSettings(BaseModel):
    """A registered store, an entry `[[store]]` of the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    kind: StoreKind
    files: list[StoreFile] = Field(min_length=1, max_length=10_000)
    authority: int = 0
    valid_from: date | None = None
    valid_until: date | None = None
    world: World = "open"
    ontology: list[StoreFile] = Field(default_factory=list)
    """Graphs: files with classes and properties (TBox). They are part of the graph."""
    shapes: list[StoreFile] = Field(default_factory=list)
    """Graphs: files with SHACL shapes. They are not part of the graph."""
    timeout_s: float = Field(default=TIMEOUT_S, gt=0, le=MAX_TIMEOUT_S)
    """Maximum CPU time of a query in seconds."""

    @model_validator(mode="before")
    @classmethod
    def _take_paths(cls, values: Any) -> Any:
        """Accept a path in place of a file."""
        if isinstance(values, dict):
            values = dict(values)
            for name in ("files", "ontology", "shapes"):
                if isinstance(values.get(name), list):
                    values[name] = [{"path": each} if isinstance(each, str) else each for each in values[name]]
        return values

    @model_validator(mode="after")
    def _check_dates(self) -> StoreSettings:
        check_period(valid_from=self.valid_from, valid_until=self.valid_until)
        return self


@dataclass(slots=True, kw_only=True)
class _HeldFile:
    """A file that was read, and how to notice that it changed."""

    path: Path
    sha256: str
    signature: tuple[int, int, int]

    def check(self) -> None:
        """Raises ToolError if the file on disk is no longer the one that was read."""
        try:
            signature = _signature(self.path)
            if signature == self.signature:
                return
            changed = hashlib.sha256(self.path.read_bytes()).hexdigest() != self.sha256
        except OSError as error:
            raise ToolError(f"{self.path.name}: the file of the store is gone: {error.strerror}") from error
        if changed:
            raise ToolError(
                f"{self.path.name}: the file of the store changed after it was opened; open the store again"
            )
        self.signature = signature


class QueryStopped(ToolError):
    """A query exceeded its limit of time or memory."""


@dataclass(slots=True, kw_only=True)
class EvidenceStore:
    """An open store."""

    card: StoreCard
    pool: SandboxPool
    """Runs the queries."""
    attached: str = ""
    """JSON of the store, if each query opens it."""
    files: Sequence[_HeldFile] = ()

    def check_files(self) -> None:
        """Raises ToolError if a file on disk is no longer the one that was read."""
        for file in self.files:
            file.check()

    async def ask(self, operation: str, **arguments: Any) -> Any:
        """Run a query in a process of its own.

        Raises:
            ToolError: the query is wrong, exceeded a limit (`QueryStopped`), or the store changed on disk.
            SandboxUnavailable: the query could not run, for a reason outside it.
        """
        if self.files:
            await asyncio.to_thread(self.check_files)
        try:
            return await run_query(self.pool, operation, arguments, attached=self.attached)
        except QueryStopped as error:
            if not self.attached:
                raise
            where = f"the store {self.card.name!r} is attached, so each query also opens it"
            raise QueryStopped(f"{error} ({where})") from None


async def run_query(pool: SandboxPool, operation: str, arguments: Mapping[str, Any], *, attached: str = "") -> Any:
    """Run an operation of the store that a pool holds, or of an attached one.

    Args:
        pool: pool with the preload `inside/held.py`.
        operation: name of the operation.
        arguments: its arguments.
        attached: JSON of the store to open for this query. Empty: the store that the pool holds.

    Raises:
        ToolError: the query is wrong, or exceeded a limit (`QueryStopped`).
        SandboxUnavailable: the query could not run, for a reason outside it.
    """
    query = json.dumps({"operation": operation, "arguments": arguments})
    result = await pool.run(_QUERY, bindings={"query": query, "attached": attached})
    if result.outcome is Outcome.OK and not result.truncated:
        answer = json.loads(result.stdout.rstrip("\n").rpartition("\n")[2])
        if "error" in answer:
            raise ToolError(answer["error"])
        return answer["result"]
    if result.outcome is Outcome.TIMEOUT:
        limit = f"the limit is {pool.limits.cpu_s:g} s of CPU time"
        raise QueryStopped(f"the query was stopped after {result.wall_s:.1f} s, {limit}; ask for less")
    if result.outcome is Outcome.OOM:
        raise QueryStopped(f"the query needs more than {pool.limits.memory_mb} MiB; ask for less")
    raise ToolError(f"the query ended with {result.outcome}: {result.error or 'no answer'}")


@asynccontextmanager
async def open_store(settings: StoreSettings, *, folder: Path = Path(), slots: int = 2) -> AsyncIterator[EvidenceStore]:
    """Open a registered store, and close it at the end of the block.

    Args:
        settings: the store.
        folder: folder that its paths are relative to.
        slots: number of concurrent queries.

    Raises:
        ValueError: a file does not exist, is too large, has an unknown format, or cannot be read.
        ToolUnavailable: the library of the kind is not installed.
        SandboxUnavailable: no isolation works here.
    """
    held: list[_HeldFile] = []
    store: dict[str, Any] = {"kind": settings.kind, "world": settings.world}
    for part in ("files", "ontology", "shapes"):
        listed = []
        for file in getattr(settings, part):
            path, named = _existing(settings.name, folder / file.path), file.name or file.path.name
            found = await asyncio.to_thread(_held_file, path)
            held.append(found)
            format = file.format or _format_of(path, kind=settings.kind, store=settings.name)
            listed.append({"name": named, "format": format, "path": str(path), "sha256": found.sha256, "part": part})
        store["files"] = [*store.get("files", ()), *listed]
    num_bytes = sum(file.path.stat().st_size for file in held)
    if num_bytes > MAX_STORE_BYTES:
        raise ValueError(f"{settings.name}: the files have {num_bytes:,} bytes, the limit is {MAX_STORE_BYTES:,}")
    digest = store_digest([(each["part"], each["name"], each["format"], each["sha256"]) for each in store["files"]])
    limits = limits_of(settings.timeout_s)
    async with open_pool(
        {"store": store}, packages=PACKAGES[settings.kind], slots=slots, name=settings.name, limits=limits
    ) as pool:
        card = StoreCard(
            name=settings.name,
            kind=settings.kind,
            sha256=digest,
            authority=settings.authority,
            valid_from=settings.valid_from,
            valid_until=settings.valid_until,
            world=settings.world,
            num_bytes=num_bytes,
        )
        opened = EvidenceStore(card=card, pool=pool, files=held)
        opened.card = card.model_copy(update=await opened.ask("describe"))
        yield opened


class LazyPools:
    """Pools that are opened at their first use and stay open. Calls that need the same pool wait for one opening, which a
    cancelled call does not stop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._opening: dict[str, asyncio.Task[SandboxPool]] = {}

    async def get(self, name: str, *, settings: Mapping[str, Any], slots: int = 2) -> SandboxPool:
        """Return the pool of a name in `PACKAGES`; the first call opens it with `settings` for `inside/held.py`.

        Raises:
            ToolError: its library is not installed.
            SandboxUnavailable: no isolation works here.
        """
        task = self._opening.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            opening = open_pool(settings, packages=PACKAGES[name], slots=slots, name=name, limits=limits_of(TIMEOUT_S))
            task = asyncio.get_running_loop().create_task(self._stack.enter_async_context(opening))
            self._opening[name] = task
        try:
            return await asyncio.shield(task)
        except ToolUnavailable as error:
            raise ToolError(str(error)) from error

    async def close(self) -> None:
        """Close the pools."""
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await self._stack.aclose()


async def open_attached(item: AttachedStore, *, pools: LazyPools) -> EvidenceStore:
    """Return a store of a request. It is opened by each query; a file that cannot be read fails there.

    Raises:
        ToolError: no store of this kind can be opened, or as in `LazyPools.get`.
        SandboxUnavailable: as in `LazyPools.get`.
    """
    if item.kind not in KINDS:
        raise ToolError(f"{item.name}: a store of kind {item.kind} cannot be opened; available: {', '.join(KINDS)}")
    pool = await pools.get(item.kind, settings={"imports": MODULES.get(item.kind, (item.kind,))})
    contents = [file.content for file in item.files]
    listed = [
        {"name": file.name, "format": file.format, "part": file.part, "data": base64.b64encode(content).decode()}
        for file, content in zip(item.files, contents, strict=True)
    ]
    card = StoreCard(
        name=item.name,
        kind=item.kind,
        sha256=attached_digest(item),
        authority=item.authority,
        valid_from=item.valid_from,
        valid_until=item.valid_until,
        world=item.world,
        num_bytes=sum(map(len, contents)),
    )
    return EvidenceStore(
        card=card,
        pool=pool,
        attached=json.dumps({"kind": item.kind, "world": item.world, "files": listed, "is_limited": True}),
    )


@asynccontextmanager
async def open_pool(
    settings: Mapping[str, Any], *, packages: Sequence[str], slots: int, name: str, limits: Limits
) -> AsyncIterator[SandboxPool]:
    """Open a pool whose fork server has loaded `inside/held.py`, and close it at the end of the block.

    Args:
        settings: argument of `held.load`.
        packages: distributions that it imports.
        slots: number of concurrent queries.
        name: name of the store, for errors.
        limits: limits of a query.

    Raises:
        ValueError: the store cannot be read.
        ToolUnavailable: a library is not installed.
        SandboxUnavailable: no isolation works here.
    """
    preload = Preload(
        name="tirjudge_held", path=str(_HELD), folder=_folder_of(packages[0], store=name), settings=json.dumps(settings)
    )
    pool = SandboxPool(
        slots=slots, limits=limits, max_limits=limits, packages=packages, preload=preload, start_s=OPENING_S
    )
    try:
        await pool.start()
    except SandboxUnavailable as error:
        failures: Sequence[Any] = getattr(error, "failures", ())
        refused = next((each.problem for each in failures if "ModuleNotFoundError" in each.problem), None)
        if refused is not None:
            raise ToolUnavailable(f"{name}: {refused}; pip install 'tirjudge[evidence]'") from error
        problem = next((each.problem for each in failures if each.problem.startswith("preload: ValueError: ")), None)
        if problem is not None:
            raise ValueError(f"{name}: {problem.removeprefix('preload: ValueError: ')}") from error
        raise
    try:
        yield pool
    finally:
        await pool.close()


def _folder_of(package: str, *, store: str) -> str:
    """Return the directory in which a package is installed. It may belong to a parent of this environment.

    Raises:
        ToolUnavailable: it is not installed.
    """
    try:
        return str(distribution(package).locate_file(""))
    except PackageNotFoundError as error:
        raise ToolUnavailable(f"{store}: {package} is not installed; pip install 'tirjudge[evidence]'") from error


def missing_packages() -> list[str]:
    """Return the distributions that queries need and that are installed neither here nor in a parent of this environment."""
    needed = sorted({package for packages in PACKAGES.values() for package in packages})
    return [package for package in needed if not list(distributions(name=package))]


def store_digest(files: Sequence[tuple[str, str, str, str]]) -> str:
    """Return the SHA-256 of a store, from the part, name, format and SHA-256 of each of its files."""
    return hashlib.sha256(json.dumps(sorted(files), separators=(",", ":")).encode()).hexdigest()


def attached_digest(item: AttachedStore) -> str:
    """Return the SHA-256 of a store that comes with a request."""
    return store_digest(
        [(each.part, each.name, each.format, hashlib.sha256(each.content).hexdigest()) for each in item.files]
    )


def _existing(store: str, path: Path) -> Path:
    resolved = path.resolve()
    if not resolved.is_file():
        raise ValueError(f"{store}: {path}: no such file")
    return resolved


def _held_file(path: Path) -> _HeldFile:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_STORE_BYTES:
            raise ValueError(f"{path}: more than {MAX_STORE_BYTES:,} bytes")
        while block := file.read(1 << 20):
            digest.update(block)
    return _HeldFile(path=path, sha256=digest.hexdigest(), signature=_signature(path))


def _signature(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _format_of(path: Path, *, kind: StoreKind, store: str) -> str:
    formats = FORMATS[kind]
    if path.suffix.lower() not in formats:
        raise ValueError(f"{store}: {path.name}: unknown suffix; a store of kind {kind} takes {', '.join(formats)}")
    return formats[path.suffix.lower()]
