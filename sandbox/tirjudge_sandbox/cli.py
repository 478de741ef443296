"""`tirjudge sandbox`: run a file in the sandbox, and see what the machine can do."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import ExecResult
from tirjudge_sandbox.doctor import Diagnosis, Finding, diagnose
from tirjudge_sandbox.levels import Level
from tirjudge_sandbox.limits import Limits
from tirjudge_sandbox.pool import SandboxPool

app = typer.Typer(name="sandbox", help="Run untrusted Python.", no_args_is_help=True)

_UNAVAILABLE = 70
"""Exit code when the sandbox, not the program, failed (EX_SOFTWARE)."""


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="Python program.", exists=True, dir_okay=False)],
    bind: Annotated[list[str] | None, typer.Option(help="A variable of the program, as name=text. Repeatable.")] = None,
    cpu_s: Annotated[float, typer.Option(help="Processor time, seconds.")] = Limits().cpu_s,
    wall_s: Annotated[float, typer.Option(help="Time on the clock, seconds.")] = Limits().wall_s,
    memory_mb: Annotated[int, typer.Option(help="Memory, MiB.")] = Limits().memory_mb,
    level: Annotated[Level | None, typer.Option(help="Isolation; the best that works by default.")] = None,
    min_level: Annotated[Level, typer.Option(help="Refuse to run below this.")] = Level.LANDLOCK,
    allow_unsafe: Annotated[bool, typer.Option(help="Run without isolation where there is none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """Run one program; exits as the program did (1 if it did not end by itself, 70 if the sandbox failed)."""
    try:
        limits = Limits(cpu_s=cpu_s, wall_s=wall_s, memory_mb=memory_mb)
        bindings = _parse_bindings(bind or [])
        pool = SandboxPool(slots=1, limits=limits, level=level, min_level=min_level, allow_unsafe=allow_unsafe)
        result = asyncio.run(_run_once(pool, code=file.read_text(), bindings=bindings))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except SandboxUnavailable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_UNAVAILABLE) from error
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=2))
    else:
        _print_result(result)
    raise typer.Exit(0 if result.outcome.is_ok else result.exit_code or 1)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Try what isolation this machine allows; exits 1 if programs could only run without any."""
    diagnosis = asyncio.run(diagnose())
    if as_json:
        typer.echo(json.dumps(asdict(diagnosis), indent=2))
    else:
        _print_diagnosis(diagnosis)
    raise typer.Exit(0 if diagnosis.level else 1)


async def _run_once(pool: SandboxPool, *, code: str, bindings: dict[str, str]) -> ExecResult:
    async with pool:
        return await pool.run(code, bindings=bindings)


def _parse_bindings(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ValueError(f"--bind: {pair!r} given, name=text would do")
    return dict(pair.split("=", 1) for pair in pairs)


def _print_result(result: ExecResult) -> None:
    typer.echo(result.stdout, nl=False)
    if result.error is not None:
        typer.echo(f"{result.outcome}: {result.error}", err=True)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    typer.echo(f"Linux {diagnosis.kernel}, Python {diagnosis.python}")
    for title, findings in (("building blocks", diagnosis.primitives), ("levels", diagnosis.levels)):
        typer.echo(f"\n{title}")
        for finding in findings:
            _print_finding(finding)
    chosen = diagnosis.level or "none: programs are refused (--allow-unsafe would run them without isolation)"
    typer.echo(f"\nlevel: {chosen}")
    if diagnosis.print_ms is not None:
        typer.echo(f"print: {diagnosis.print_ms} ms (median)")


def _print_finding(finding: Finding) -> None:
    typer.echo(f"  {'works' if finding.works else 'FAILS'}  {finding.name}")
    for line in filter(None, (finding.problem, finding.remedy)):
        typer.echo(f"         {line}")
