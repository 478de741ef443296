"""`tirjudge sandbox`: run a file in the sandbox, serve it over HTTP, and see what the machine can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.errors import SandboxUnavailable
from tirjudge.options import AllowedHost, HeaderTimeout, LogLevel, MaxConnections, Slots
from tirjudge.types import ExecResult
from tirjudge_sandbox.doctor import Diagnosis, Finding, diagnose
from tirjudge_sandbox.levels import IsolationLevel
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import SandboxPool
from tirjudge_sandbox.wire import body_of

app = typer.Typer(name="sandbox", help="Run untrusted Python.", no_args_is_help=True)

_UNAVAILABLE = 70
"""Exit code when the sandbox, not the program, failed (EX_SOFTWARE)."""

_DEFAULTS = Limits()

CpuS = Annotated[float, typer.Option(help="Processor time of a program, seconds.")]
WallS = Annotated[float, typer.Option(help="Time on the clock, seconds.")]
MemoryMb = Annotated[int, typer.Option(help="Memory, MiB.")]
ChosenLevel = Annotated[IsolationLevel | None, typer.Option(help="Isolation; the best that works by default.")]
MinLevel = Annotated[IsolationLevel, typer.Option(help="Refuse to start below this.")]
Image = Annotated[str | None, typer.Option(help="Docker image to run in, for the levels gvisor and docker.")]
AllowUnsafe = Annotated[
    bool, typer.Option(help="Where nothing isolates programs, run them behind the system call filter alone.")
]


@app.command()
def run(
    program: Annotated[Path, typer.Argument(help="Python program.", exists=True, dir_okay=False, metavar="PROGRAM.py")],
    bind: Annotated[list[str] | None, typer.Option(help="A variable of the program, as name=text. Repeatable.")] = None,
    stdin: Annotated[typer.FileText | None, typer.Option(help="What it reads; - for our own standard input.")] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="A file put into its working directory, as path or name=path. Repeatable."),
    ] = None,
    fetch: Annotated[
        list[str] | None, typer.Option(help="A file that it leaves there, copied to --out. Repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where fetched files go.", exists=True, file_okay=False)] = Path(),
    attach: Annotated[
        list[str] | None,
        typer.Option(help="A file or directory that it may read, as name=path; it finds it in `attachments[name]`."),
    ] = None,
    cpu_s: CpuS = _DEFAULTS.cpu_s,
    wall_s: WallS = _DEFAULTS.wall_s,
    memory_mb: MemoryMb = _DEFAULTS.memory_mb,
    level: ChosenLevel = None,
    min_level: MinLevel = IsolationLevel.LANDLOCK,
    image: Image = None,
    allow_unsafe: AllowUnsafe = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """Run one program; exits as the program did (1 if it did not end by itself, 70 if the sandbox failed)."""
    with _mistakes_explained():
        limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
        arguments = {
            "bindings": _pairs(bind, option="--bind"),
            "stdin": "" if stdin is None else stdin.read(),
            "files": {name: Path(path).read_bytes() for name, path in map(_name_and_path, file or [])},
            "fetch": fetch or [],
            "attachments": {name: Path(path).absolute() for name, path in _pairs(attach, option="--attach").items()},
        }
        pool = SandboxPool(
            slots=1, limits=limits, level=level, min_level=min_level, allow_unsafe=allow_unsafe, image=image
        )
        result = asyncio.run(_run_once(pool, code=program.read_text(), arguments=arguments))
    for path, content in result.files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(content)
    if as_json:
        typer.echo(json.dumps(body_of(result), indent=2))
    else:
        typer.echo(result.stdout, nl=False)
        if result.error is not None:
            typer.echo(f"{result.outcome}: {result.error}", err=True)
    raise typer.Exit(0 if result.outcome.is_ok else result.exit_code or 1)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8090,
    allowed_host: AllowedHost = None,
    max_connections: MaxConnections = None,
    header_timeout_s: HeaderTimeout = 20.0,
    key: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TIRJUDGE_SANDBOX_KEYS",
            help="Needed to run a program; repeatable, or several in the variable with spaces between. None: open to all.",
        ),
    ] = None,
    insecure_open: Annotated[
        bool,
        typer.Option(
            "--insecure-open",
            envvar="TIRJUDGE_INSECURE_OPEN",
            help="Serve everybody who reaches --host, without a key.",
        ),
    ] = False,
    slots: Slots = None,
    max_waiting: Annotated[
        int | None, typer.Option(min=0, help="Programs that may wait; one more gets a 429. Default: 64 a slot.")
    ] = None,
    cpu_s: CpuS = _DEFAULTS.cpu_s,
    wall_s: WallS = _DEFAULTS.wall_s,
    memory_mb: MemoryMb = _DEFAULTS.memory_mb,
    headroom: Annotated[int, typer.Option(min=1, help="How many times each limit a request may ask for.")] = 4,
    level: ChosenLevel = None,
    min_level: MinLevel = IsolationLevel.LANDLOCK,
    image: Image = None,
    allow_unsafe: AllowUnsafe = False,
    max_body_mb: Annotated[int, typer.Option(min=1, help="Largest request, MiB; a larger one gets a 413.")] = 16,
    max_answer_mb: Annotated[
        int, typer.Option(min=1, help="Output and files of all programs of one request, MiB; more get a 413.")
    ] = 64,
    grace_s: Annotated[float, typer.Option(min=0.0, help="Seconds that programs get to end after SIGTERM.")] = 10.0,
    log_level: Annotated[LogLevel, typer.Option(envvar="TIRJUDGE_LOG_LEVEL")] = LogLevel.WARNING,
) -> None:
    """Run programs over HTTP: POST /v1/execute, and what SandboxFusion's and verl-tool's clients speak.

    A line of JSON on the standard output says where, as soon as programs can come. SIGTERM ends it: nothing new is
    taken, what runs may end.
    """
    from tirjudge_sandbox.serving import serve_pool
    from tirjudge_web.binding import check_bind
    from tirjudge_web.browser_check import AllowedHosts
    from tirjudge_web.limits import ConnectionLimits
    from tirjudge_web.process import bind, run

    keys = [given for given in key or [] if given]
    with _mistakes_explained():
        check_bind(host, has_keys=bool(keys), insecure_open=insecure_open, remedy="give --key")
        limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
        pool = SandboxPool(
            slots=slots,
            limits=limits,
            max_limits=limits.times(headroom),
            max_waiting=max_waiting,
            level=level,
            min_level=min_level,
            allow_unsafe=allow_unsafe,
            image=image,
        )
        with bind(host, port=port) as bound:
            serving = serve_pool(
                pool,
                bound=bound,
                keys=keys,
                max_body_bytes=max_body_mb * 1024 * 1024,
                max_answer_bytes=max_answer_mb * 1024 * 1024,
                grace_s=grace_s,
                hosts=AllowedHosts(given=tuple(allowed_host or ()), bound=host),
                limits=ConnectionLimits(max_connections=max_connections, header_s=header_timeout_s),
            )
            run(serving, log_level=log_level, secrets=keys)


@app.command()
def mcp(
    slots: Slots = None,
    cpu_s: CpuS = _DEFAULTS.cpu_s,
    wall_s: WallS = _DEFAULTS.wall_s,
    memory_mb: MemoryMb = _DEFAULTS.memory_mb,
    level: ChosenLevel = None,
    min_level: MinLevel = IsolationLevel.LANDLOCK,
    image: Image = None,
) -> None:
    """Offer the sandbox as a tool of the Model Context Protocol, over standard input and output."""
    from tirjudge_sandbox.mcp import serve_mcp

    with _mistakes_explained():
        limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
        pool = SandboxPool(slots=slots, limits=limits, level=level, min_level=min_level, image=image)
        asyncio.run(serve_mcp(pool))


@app.command()
def doctor(
    image: Image = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Try what isolation this machine allows, and some attacks; exits 1 if programs could only run without any, or an attack
    got through."""
    diagnosis = asyncio.run(diagnose(image=image))
    if as_json:
        typer.echo(json.dumps(asdict(diagnosis), indent=2))
    else:
        _print_diagnosis(diagnosis)
    held = all(finding.works for finding in diagnosis.attacks)
    raise typer.Exit(0 if diagnosis.level and held else 1)


@contextmanager
def _mistakes_explained() -> Iterator[None]:
    """A wrong option is the user's mistake, with its own exit code; so is a sandbox that does not work, with another."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    except SandboxUnavailable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_UNAVAILABLE) from error


async def _run_once(pool: SandboxPool, *, code: str, arguments: dict[str, Any]) -> ExecResult:
    async with pool:
        return await pool.run(code, **arguments)


def _pairs(given: list[str] | None, *, option: str) -> dict[str, str]:
    for pair in given or []:
        if "=" not in pair:
            raise ValueError(f"{option}: {pair!r} given, not name=...")
    return dict(pair.split("=", 1) for pair in given or [])


def _name_and_path(given: str) -> tuple[str, str]:
    """`data.csv` is `data.csv=data.csv`, and `/srv/data.csv` is `data.csv=/srv/data.csv`."""
    name, separator, path = given.partition("=")
    return (name, path) if separator else (Path(given).name, given)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    typer.echo(f"Linux {diagnosis.kernel}, Python {diagnosis.python}")
    groups = {
        "building blocks": diagnosis.primitives,
        "levels": diagnosis.levels,
        "attacks": diagnosis.attacks,
        "resources": diagnosis.resources,
    }
    told: set[str] = set()
    for title, findings in groups.items():
        typer.echo(f"\n{title}")
        for finding in findings:
            _print_finding(finding, works="held" if title == "attacks" else "works", told=told)
    chosen = diagnosis.level or "none: programs are refused (--allow-unsafe would run them without isolation)"
    typer.echo(f"\nlevel: {chosen}")
    if diagnosis.print_ms is not None:
        typer.echo(f"print: {diagnosis.print_ms} ms (median)")


def _print_finding(finding: Finding, *, works: str, told: set[str]) -> None:
    """Prints a remedy in full the first time alone; `told` holds those that were, and takes in this one."""
    typer.echo(f"  {works if finding.works else 'FAILS':5}  {finding.name}")
    advice = "The same would help as above." if finding.remedy in told else finding.remedy
    for line in filter(None, (finding.problem, advice)):
        typer.echo(f"         {line}")
    told |= {finding.remedy} - {""}
