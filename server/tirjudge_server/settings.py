"""What an operator wants of one server; the command line makes it, with these defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tirjudge.errors import TirjudgeError
from tirjudge.types import PYTHON
from tirjudge_server.cost import CostLimits
from tirjudge_server.dialects import DIALECTS, DialectSettings
from tirjudge_server.openai.filestore import FileQuota
from tirjudge_server.records.store import RecordPolicy
from tirjudge_server.service import MAX_DEADLINE_S
from tirjudge_server.vllm_command import Workers
from tirjudge_web.limits import ConnectionLimits

NONE = "none"
"""Given for something that is stored: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    checkpoint: Path | None = None
    """None: the bundled judge. With `workers` or `vllm_arguments` it may be the name of a model on the hub."""
    judge: str | None = None
    """`KIND:ADDRESS` of the model, instead of `checkpoint`; None: `checkpoint` says."""
    format: str | None = None
    """How the model is asked; None: as its profile says."""
    tools: tuple[str, ...] = (PYTHON,)
    """Names of the tools that the model may call."""
    profile: Path | None = None
    """Folder with the profile to judge with; None: that of the checkpoint."""
    engine_urls: tuple[str, ...] = ()
    """Of the engines that run the model. None of these, no file and no workers: it runs in this process."""
    engines_file: Path | None = None
    """With more of them; None: there are no more."""
    engine_key: str | None = None
    """That they ask for; None: they ask for none."""
    engine_wait_s: float = 0.0
    """For how long to try again at the start while none of them answers."""
    workers: Workers | None = None
    """Engines that are started; None: none is."""
    vllm_arguments: tuple[str, ...] | None = None
    """vLLM runs the model in this process, with these arguments of `vllm serve`; None: it does not."""
    sandbox_urls: tuple[str, ...] = ()
    """Of the services that run programs; none: they run on this machine."""
    sandbox_key: str | None = None
    """That they ask for; None: they ask for none."""
    host: str = "127.0.0.1"
    """The address that was bound, as it was given."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that callers reach it by, besides `localhost`, IP addresses and `host`. Given: servers with keys check too."""
    insecure_open: bool = False
    """Whether others may reach it without a key."""
    slots: int | None = None
    """Programs side by side; None: one a core."""
    allow_unsafe_sandbox: bool = False
    max_concurrency: int = 16
    max_queue: int = 256
    max_deadline_s: float = MAX_DEADLINE_S
    max_body_bytes: int = 16 * 1024 * 1024
    cost_limits: CostLimits = field(default_factory=CostLimits)
    """What one request may cost."""
    grace_s: float = 30.0
    records: str | None = None
    """URL of the database; None: the default one; `NONE`: nothing is stored."""
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    files: str | None = None
    """Folder of files and batches; None: the default one; `NONE`: there are none."""
    quota: FileQuota = field(default_factory=FileQuota)
    """What one caller may keep there."""
    dialects: tuple[str, ...] = tuple(DIALECTS)
    """The dialects that are spoken."""
    dialect_settings: DialectSettings = field(default_factory=DialectSettings)
    otlp: str | None = None
    """URL of the collector that is sent traces; None: there are none."""
    trace_content: bool = False
    """Whether these hold what people and the model wrote."""
    certificate: Path | None = None
    """Of the server, for TLS; None: it speaks plain HTTP."""
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    private_key: Path | None = None
    """Of the certificate; None: it is in the same file."""


class OptionsClash(TirjudgeError, ValueError):
    """Options that exclude each other."""


class UnknownDialect(TirjudgeError, ValueError):
    """A dialect was named that nobody speaks here."""


def dialects_named(given: str) -> tuple[str, ...]:
    """`all`, `none`, or names with commas between them.

    Raises:
        UnknownDialect: there is no such dialect.
    """
    if given in ("all", NONE):
        return tuple(DIALECTS) if given == "all" else ()
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    unknown = [name for name in names if name not in DIALECTS]
    if unknown or not names:
        raise UnknownDialect(f"--dialects: {given!r} given; all, none or some of {', '.join(DIALECTS)} would do")
    return names
