"""The commands of this room. What is heavy is imported when one of them runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tirjudge.options import AllowUnsafeSandbox, Checkpoint, EngineUrl, Slots

Host = Annotated[str, typer.Option(envvar="TIRJUDGE_HOST", help="Address to listen at.")]
Port = Annotated[int, typer.Option(envvar="TIRJUDGE_PORT", min=0, max=65535, help="0: any that is free.")]
Grace = Annotated[float, typer.Option(min=0.0, help="Seconds that judgments under way get after SIGTERM.")]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Logging = Annotated[LogLevel, typer.Option(envvar="TIRJUDGE_LOG_LEVEL", help="`info` logs each judgment.")]


def serve(
    model: Checkpoint = None,
    engine: EngineUrl = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    slots: Slots = None,
    max_concurrency: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_CONCURRENCY", min=1, help="Judgments side by side.")
    ] = 16,
    max_queue: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_QUEUE", min=0, help="Requests that may wait; one more gets a 429.")
    ] = 256,
    max_body_mb: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_BODY_MB", min=1, help="Largest request, MiB; a larger one gets a 413.")
    ] = 16,
    grace_s: Grace = 30.0,
    allow_unsafe_sandbox: AllowUnsafeSandbox = False,
    log_level: Logging = LogLevel.WARNING,
) -> None:
    """Judge over HTTP: POST /v1/judge."""
    from tirjudge_server.process import bind, run
    from tirjudge_server.serving import serve_judge

    with bind(host, port=port) as bound:
        judging = serve_judge(
            bound,
            checkpoint=model,
            engine_url=engine,
            slots=slots,
            max_concurrency=max_concurrency,
            max_queue=max_queue,
            max_body_bytes=max_body_mb * 1024 * 1024,
            grace_s=grace_s,
            allow_unsafe_sandbox=allow_unsafe_sandbox,
        )
        run(judging, log_level=log_level)


def worker(
    model: Checkpoint = None,
    host: Host = "127.0.0.1",
    port: Port = 8500,
    max_batch: Annotated[int, typer.Option(min=1, help="Sequences computed in one step.")] = 16,
    grace_s: Grace = 5.0,
    log_level: Logging = LogLevel.WARNING,
) -> None:
    """Serve a small checkpoint as vLLM would: POST /v1/completions."""
    from tirjudge_server.process import bind, run
    from tirjudge_server.serving import serve_worker

    with bind(host, port=port) as bound:
        run(serve_worker(bound, checkpoint=model, max_batch=max_batch, grace_s=grace_s), log_level=log_level)


def demo(
    url: Annotated[str | None, typer.Option(help="A server that runs already; default: one is started.")] = None,
) -> None:
    """Judge three small requests over HTTP, and show the programs that were written and what they printed."""
    from tirjudge_server.demo import run_demo

    run_demo(url)
