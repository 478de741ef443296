"""`tirjudge sandbox`: run a file in the sandbox, serve the sandbox over HTTP or MCP, and diagnose this machine."""

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
"""Exit code when the sandbox failed and not the program (EX_SOFTWARE)."""

_DEFAULTS = Limits()

LIMITS, ISOLATION = "Limits of a program", "Isolation"
"""Groups of options in the help."""

CpuS = Annotated[float, typer.Option(help="CPU time limit of a program in seconds.", rich_help_panel=LIMITS)]
WallS = Annotated[float, typer.Option(help="Wall time limit of a program in seconds.", rich_help_panel=LIMITS)]
MemoryMb = Annotated[int, typer.Option(help="Memory limit of a program in MiB.", rich_help_panel=LIMITS)]
ChosenLevel = Annotated[
    IsolationLevel | None,
    typer.Option(help="Isolation level. Default: the strongest that works on this machine.", rich_help_panel=ISOLATION),
]
MinLevel = Annotated[
    IsolationLevel,
    typer.Option(help="Weakest level allowed; the sandbox does not start below it.", rich_help_panel=ISOLATION),
]
Image = Annotated[
    str | None, typer.Option(help="Docker image for the levels gvisor and docker.", rich_help_panel=ISOLATION)
]
AllowUnsafe = Annotated[
    bool,
    typer.Option(
        help="If no isolation level works, run programs with only the seccomp filter and resource limits.",
        rich_help_panel=ISOLATION,
    ),
]


@app.command()
def run(
    program: Annotated[
        Path, typer.Argument(help="Python file to run.", exists=True, dir_okay=False, metavar="PROGRAM.py")
    ],
    bind: Annotated[list[str] | None, typer.Option(help="A variable of the program, as name=text. Repeatable.")] = None,
    stdin: Annotated[
        typer.FileText | None, typer.Option(help="File for the program's standard input; - for this command's own.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="File to put into the program's working directory, as path or name=path. Repeatable."),
    ] = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(help="File to copy from the working directory to --out after the program. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for fetched files.", exists=True, file_okay=False)] = Path(),
    attach: Annotated[
        list[str] | None,
        typer.Option(
            help="File or directory that the program may read, as name=path. The program finds its path in "
            "`attachments[name]`. Repeatable."
        ),
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
    """Run one program and exit with its exit code (1 if the sandbox ended it, 70 if the sandbox failed).

    Examples:
        tirjudge sandbox run program.py --wall-s 5
    """
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
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. 0: any free port.")] = 8090,
    allowed_host: AllowedHost = None,
    max_connections: MaxConnections = None,
    header_timeout_s: HeaderTimeout = 20.0,
    key: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TIRJUDGE_SANDBOX_KEYS",
            help="API key that may run programs. Repeatable; the variable takes several, separated by spaces. "
            "None: no key is needed.",
        ),
    ] = None,
    insecure_open: Annotated[
        bool,
        typer.Option(
            "--insecure-open",
            envvar="TIRJUDGE_INSECURE_OPEN",
            help="Allow an address other than loopback without API keys.",
        ),
    ] = False,
    slots: Slots = None,
    max_waiting: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum number of queued programs; further ones get a 429. Default: 64 per slot."),
    ] = None,
    cpu_s: CpuS = _DEFAULTS.cpu_s,
    wall_s: WallS = _DEFAULTS.wall_s,
    memory_mb: MemoryMb = _DEFAULTS.memory_mb,
    headroom: Annotated[
        int, typer.Option(min=1, help="Factor by which a request may raise each limit above its default.")
    ] = 4,
    level: ChosenLevel = None,
    min_level: MinLevel = IsolationLevel.LANDLOCK,
    image: Image = None,
    allow_unsafe: AllowUnsafe = False,
    max_body_mb: Annotated[
        int, typer.Option(min=1, help="Maximum size of a request body in MiB; a larger one gets a 413.")
    ] = 16,
    max_answer_mb: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum total output and files of the programs of one request, in MiB; more gets a 413."
        ),
    ] = 64,
    grace_s: Annotated[
        float, typer.Option(min=0.0, help="Seconds that running programs have to finish after SIGTERM.")
    ] = 10.0,
    log_level: Annotated[LogLevel, typer.Option(envvar="TIRJUDGE_LOG_LEVEL")] = LogLevel.WARNING,
) -> None:
    """Run programs over HTTP: POST /v1/execute, and the protocols of SandboxFusion's and verl-tool's clients.

    Once ready, the command prints a line of JSON with its address. On SIGTERM it takes no new programs and waits for
    the running ones.

    Examples:
        tirjudge sandbox serve --port 8090
        tirjudge sandbox serve --host 0.0.0.0 --key SECRET
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
    """Offer the sandbox as a tool of the Model Context Protocol (MCP), over standard input and output.

    Examples:
        tirjudge sandbox mcp
    """
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
    """Test which isolation levels work on this machine, and run sample attacks. Exits 1 if no level works or an attack
    succeeds.

    Examples:
        tirjudge sandbox doctor
    """
    diagnosis = asyncio.run(diagnose(image=image))
    if as_json:
        typer.echo(json.dumps(asdict(diagnosis), indent=2))
    else:
        _print_diagnosis(diagnosis)
    held = all(finding.works for finding in diagnosis.attacks)
    raise typer.Exit(0 if diagnosis.level and held else 1)


@contextmanager
def _mistakes_explained() -> Iterator[None]:
    """Turn an invalid option into a usage error (exit code 2), and a broken sandbox into exit code 70."""
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
            raise ValueError(f"{option}: expected name=..., got {pair!r}")
    return dict(pair.split("=", 1) for pair in given or [])


def _name_and_path(given: str) -> tuple[str, str]:
    """Split name=path. A path alone gets its last part as the name: `/srv/data.csv` means `data.csv=/srv/data.csv`."""
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
    shown: set[str] = set()
    for title, findings in groups.items():
        typer.echo(f"\n{title}")
        for finding in findings:
            _print_finding(finding, works="held" if title == "attacks" else "works", shown=shown)
    chosen = diagnosis.level or "none: programs are refused (--allow-unsafe runs them without isolation)"
    typer.echo(f"\nlevel: {chosen}")
    if diagnosis.print_ms is not None:
        typer.echo(f"print: {diagnosis.print_ms} ms (median)")


def _print_finding(finding: Finding, *, works: str, shown: set[str]) -> None:
    """Print a finding. A remedy that is in `shown` is not repeated; a new one is added to `shown`."""
    typer.echo(f"  {works if finding.works else 'FAILS':5}  {finding.name}")
    advice = "Same remedy as above." if finding.remedy in shown else finding.remedy
    for line in filter(None, (finding.problem, advice)):
        typer.echo(f"         {line}")
    shown |= {finding.remedy} - {""}
