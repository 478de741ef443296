"""The tool `evidence`: functions with which a judge's programs query stores.

    tirjudge serve --tool evidence:stores.toml

Each function takes the name of a store first. A program may use the registered stores and those that came with its request,
and no others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictInt

from tirjudge.tools.functions import (
    STORES,
    Budget,
    CallContext,
    FunctionKind,
    ToolError,
    ToolFunction,
    checker,
    to_json_value,
)
from tirjudge.tools.settings_file import read_settings
from tirjudge.types import AttachedStore, StoreKind, Text
from tirjudge_evidence.claims import claim_function
from tirjudge_evidence.stores import (
    EvidenceStore,
    LazyPools,
    QueryStopped,
    StoreSettings,
    missing_packages,
    open_attached,
    open_store,
    run_query,
)

logger = logging.getLogger(__name__)

BUDGET = Budget(calls=256, seconds=60.0)
"""Default limits of the queries of one judgment."""

MAX_STORES = 64
"""Maximum number of registered stores."""


MAX_CHECKS = 64
"""Maximum number of checks."""


class EvidenceSettings(BaseModel):
    """The settings file of `--tool evidence:FILE` and of `--checks FILE`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: list[StoreSettings] = Field(default_factory=list, max_length=MAX_STORES)
    check: list[dict[str, Any]] = Field(default_factory=list, max_length=MAX_CHECKS)
    """Checks of responses, each with the fields of its kind (`tirjudge_evidence.checks`)."""


@dataclass(slots=True, kw_only=True)
class Stores:
    """All stores that are open."""

    registered: Mapping[str, EvidenceStore]
    pools: LazyPools = field(default_factory=LazyPools)
    """Pools that hold no store: they open the stores of requests, and prove."""

    async def find(self, name: str, *, context: CallContext) -> EvidenceStore:
        """Return a store that the program may use, and note it for the record.

        Raises:
            ToolError: no such store, or the request attaches a store with the name of a registered one.
        """
        attached = attached_to(context)
        item = next((each for each in attached if each.name == name), None)
        if item is not None and name in self.registered:
            raise ToolError(
                f"two stores are named {name!r}: the request attaches one, and one is registered; the request must rename "
                "its own"
            )
        if item is not None:
            store = await open_attached(item, pools=self.pools)
        elif name in self.registered:
            store = self.registered[name]
        else:
            known = ", ".join([*(each.name for each in attached), *self.registered]) or "none"
            raise ToolError(f"store {name!r} does not exist; available: {known}")
        context.sources[name] = store.card
        return store


def attached_to(context: CallContext) -> Sequence[AttachedStore]:
    """Return the stores that came with the request of a call."""
    return (context.request.evidence or ()) if context.request is not None else ()


class _InStore(BaseModel):
    model_config = ConfigDict(extra="forbid")

    store: Text
    """Name of the store."""


class SqlArguments(_InStore):
    """Arguments of `sql`."""

    query: Text
    params: list[JsonValue] | dict[str, JsonValue] = Field(default_factory=list)


class SparqlArguments(_InStore):
    """Arguments of `sparql` and `ask`."""

    query: Text


class IsAArguments(_InStore):
    """Arguments of `is_a`."""

    thing: Text
    cls: Text


class ShaclArguments(_InStore):
    """Arguments of `shacl`."""

    data: Text = ""
    format: Literal["turtle", "json-ld", "n-triples"] = "turtle"


class SearchArguments(_InStore):
    """Arguments of `search`."""

    query: Text
    limit: StrictInt = 5


class QuoteArguments(_InStore):
    """Arguments of `quote`."""

    document: Text
    start: StrictInt
    end: StrictInt


class ProveArguments(BaseModel):
    """Arguments of `prove`."""

    model_config = ConfigDict(extra="forbid")

    goal: Text
    given: list[Text] = Field(default_factory=list)
    variables: dict[Text, Text] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A function that queries a store of certain kinds."""

    name: str
    signature: str
    description: str
    arguments: type[_InStore]
    kinds: frozenset[StoreKind]
    version: str = "1"


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="sql",
        signature="(store, query, params=[])",
        description="runs one SELECT of SQL (DuckDB) on tables; a list of dicts, at most 1000 rows. ? marks a parameter.",
        arguments=SqlArguments,
        kinds=frozenset({"table"}),
    ),
    Operation(
        name="sparql",
        signature="(store, query)",
        description=(
            "runs one SPARQL query on a graph. SELECT: a list of dicts, variable -> value; CONSTRUCT: of {s, p, o}. "
            "At most 1000. The store's prefixes need no PREFIX line."
        ),
        arguments=SparqlArguments,
        kinds=frozenset({"graph"}),
    ),
    Operation(
        name="ask",
        signature="(store, query)",
        description="runs one SPARQL ASK query on a graph; True or False.",
        arguments=SparqlArguments,
        kinds=frozenset({"graph"}),
    ),
    Operation(
        name="is_a",
        signature="(store, thing, cls)",
        description=(
            "whether a graph entails that a thing is in a class: True, False, or None if it does not say. Names are IRIs, "
            "prefixed names, local names or labels."
        ),
        arguments=IsAArguments,
        kinds=frozenset({"graph"}),
    ),
    Operation(
        name="shacl",
        signature='(store, data="", format="turtle")',
        description=(
            "validates the nodes of data, added to a graph, against the store's shapes, or the whole graph without data: "
            "{conforms, results: [{focus, path, value, shape, severity, message}]}."
        ),
        arguments=ShaclArguments,
        kinds=frozenset({"graph"}),
    ),
    Operation(
        name="search",
        signature="(store, query, limit=5)",
        description="searches documents for words; a list of {document, start, end, text, score}, best first.",
        arguments=SearchArguments,
        kinds=frozenset({"documents"}),
    ),
    Operation(
        name="quote",
        signature="(store, document, start, end)",
        description="the exact text of a document between two offsets.",
        arguments=QuoteArguments,
        kinds=frozenset({"documents"}),
    ),
)
"""Functions that query a store. Their arguments after `store` are those of the operation of that name in `inside`."""


def _function(operation: Operation, *, stores: Stores) -> ToolFunction:
    async def handle(values: Mapping[str, Any], context: CallContext) -> Any:
        arguments = dict(values)
        store = await stores.find(arguments.pop("store"), context=context)
        if store.card.kind not in operation.kinds:
            raise ToolError(f"{store.card.name} is a store of kind {store.card.kind}, which has no {operation.name}")
        return await store.ask(operation.name, **arguments)

    return _tool(
        operation.name,
        signature=operation.signature,
        description=operation.description,
        arguments=operation.arguments,
        handle=handle,
        version=operation.version,
        stores=stores,
    )


def _tool(
    name: str,
    *,
    signature: str,
    description: str,
    arguments: type[BaseModel],
    handle: Callable[[Mapping[str, Any], CallContext], Awaitable[Any]],
    version: str = "1",
    stores: Stores | None = None,
) -> ToolFunction:
    return ToolFunction(
        name=name,
        signature=signature,
        description=description,
        parameters=tuple(arguments.model_fields),
        handle=handle,
        check=checker(arguments),
        to_json=to_json_value,
        input_schema=arguments.model_json_schema(),
        output_schema=None,
        version=version,
        budget=BUDGET,
        is_deterministic=True,
        stores={} if stores is None else {name: store.card for name, store in stores.registered.items()},
    )


class _Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _listing(stores: Stores) -> ToolFunction:
    async def handle(values: Mapping[str, Any], context: CallContext) -> Any:
        names = dict.fromkeys([*(item.name for item in attached_to(context)), *stores.registered])
        cards = []
        for name in names:
            store = await stores.find(name, context=context)
            described = {} if store.card.lines else await store.ask("describe")
            cards.append(store.card.model_copy(update=described).model_dump(mode="json"))
        return cards

    return _tool(
        STORES,
        signature="()",
        description=_described(stores),
        arguments=_Nothing,
        handle=handle,
        stores=stores,
    )


def _proving(stores: Stores) -> ToolFunction:
    async def handle(values: Mapping[str, Any], context: CallContext) -> Any:
        pool = await stores.pools.get("prover", settings={"store": {"kind": "prover", "files": []}})
        try:
            return await run_query(pool, "prove", values)
        except QueryStopped:
            return {"proved": None, "counterexample": None}

    return _tool(
        "prove",
        signature="(goal, given=[], variables={})",
        description=(
            "whether the expression goal follows from those in given, for all values of the variables, such as "
            "prove('x + y > 0', given=['x > 0', 'y >= 0'], variables={'x': 'Int', 'y': 'Real'}) (types: Int, Real, Bool); "
            "{proved: True, False or None for unknown, counterexample}."
        ),
        arguments=ProveArguments,
        handle=handle,
    )


def _described(stores: Stores) -> str:
    """Return the sentence of the prompt that presents the registered stores."""
    lines = [
        f"{store.card.name} ({store.card.kind}, {store.card.world} world): {'; '.join(store.card.lines)}"
        for store in stores.registered.values()
    ]
    return " ".join(["lists the stores of evidence with their contents.", *lines])


@asynccontextmanager
async def open_stores(settings: EvidenceSettings, *, folder: Path = Path()) -> AsyncIterator[Stores]:
    """Open registered stores, and close them at the end of the block. Libraries that are not installed are logged, because
    requests may bring stores that need them.

    Raises:
        ValueError, ToolUnavailable, SandboxUnavailable: as in `stores.open_store`; also two stores of the same name.
    """
    if missing := missing_packages():
        logger.warning(
            "the tool evidence lacks %s, so some or all queries fail; pip install 'tirjudge[evidence]'",
            ", ".join(missing),
        )
    async with AsyncExitStack() as stack:
        registered: dict[str, EvidenceStore] = {}
        for each in settings.store:
            if each.name in registered:
                raise ValueError(f"store: two stores named {each.name!r}")
            registered[each.name] = await stack.enter_async_context(open_store(each, folder=folder))
        stores = Stores(registered=registered)
        stack.push_async_callback(stores.pools.close)
        yield stores


@dataclass(slots=True)
class _Shared:
    """Stores of a file that several parts of one judge use."""

    settings: EvidenceSettings
    stores: Stores
    stack: AsyncExitStack
    num_users: int = 0


_shared: dict[tuple[int, str], _Shared] = {}
_sharing: dict[int, asyncio.Lock] = {}


@asynccontextmanager
async def shared_stores(path: str) -> AsyncIterator[tuple[EvidenceSettings, Stores]]:
    """Open the stores of a settings file, and close them when its last block ends. Blocks of one event loop share them.

    Raises:
        ValueError, ToolUnavailable, SandboxUnavailable: as in `open_stores`; also an unreadable settings file.
    """
    loop = id(asyncio.get_running_loop())
    key = (loop, str(await asyncio.to_thread(Path(path).resolve)))
    lock = _sharing.setdefault(loop, asyncio.Lock())
    async with lock:
        if key not in _shared:
            settings = read_settings(path, EvidenceSettings, tool="evidence")
            async with AsyncExitStack() as stack:
                stores = await stack.enter_async_context(open_stores(settings, folder=Path(path).parent))
                _shared[key] = _Shared(settings, stores, stack.pop_all())
        shared = _shared[key]
        shared.num_users += 1
    try:
        yield shared.settings, shared.stores
    finally:
        shared.num_users -= 1
        if shared.num_users == 0:
            del _shared[key]
            if not any(each[0] == loop for each in _shared):
                _sharing.pop(loop, None)
            await shared.stack.aclose()


def functions_of(stores: Stores) -> Sequence[ToolFunction]:
    """Return the functions of programs for open stores."""
    queries = [_function(operation, stores=stores) for operation in OPERATIONS]
    evidence = [*queries, _proving(stores)]
    return [_listing(stores), *evidence, claim_function(citable=[each.name for each in evidence])]


@asynccontextmanager
async def _open(path: str) -> AsyncIterator[Sequence[ToolFunction]]:
    if path:
        async with shared_stores(path) as (_, stores):
            yield functions_of(stores)
    else:
        async with open_stores(EvidenceSettings()) as stores:
            yield functions_of(stores)


KIND = FunctionKind(name="evidence", open=_open)
