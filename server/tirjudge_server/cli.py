"""The commands of this room. What is heavy is imported when one of them runs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Annotated

import typer

from tirjudge.options import AllowedHost, Checkpoint, LogLevel, options_of
from tirjudge_server.settings import Grace, Host, InsecureOpen, LogFormat, Logging, Port, ServerSettings


@options_of(ServerSettings)
def serve(settings: ServerSettings) -> None:
    """Judge over HTTP: natively, for OpenAI's clients, and for trainers."""
    from tirjudge_server.serving import serve_judge
    from tirjudge_server.telemetry.logs import JsonLines
    from tirjudge_web.process import bind, run

    settings = replace(settings, otlp=settings.otlp or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None)
    formatter = JsonLines() if settings.log_format is LogFormat.JSON else None
    with bind(settings.host, port=settings.port) as bound:
        secrets = [secret for secret in (settings.engine_key, settings.sandbox_key, settings.records) if secret]
        serving = serve_judge(bound, settings=settings)
        run(serving, log_level=settings.log_level, formatter=formatter, secrets=secrets)


def worker(
    model: Checkpoint = None,
    host: Host = "127.0.0.1",
    port: Port = 8500,
    allowed_host: AllowedHost = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Sequences computed in one step.")] = 16,
    grace_s: Grace = 5.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="VLLM_API_KEY", help="Needed to ask it; better in the environment than here.")
    ] = None,
    insecure_open: InsecureOpen = False,
    log_level: Logging = LogLevel.WARNING,
) -> None:
    """Serve a small checkpoint as vLLM would: POST /v1/completions."""
    from tirjudge_server.serving import serve_worker
    from tirjudge_web.binding import check_bind
    from tirjudge_web.browser_check import AllowedHosts
    from tirjudge_web.process import bind, run

    # An empty variable gives no key.
    api_key = api_key or None
    check_bind(host, has_keys=api_key is not None, insecure_open=insecure_open, remedy="give --api-key")
    hosts = AllowedHosts(given=tuple(allowed_host or ()), bound=host)
    with bind(host, port=port) as bound:
        serving = serve_worker(
            bound, checkpoint=model, max_batch=max_batch, grace_s=grace_s, api_key=api_key, hosts=hosts
        )
        run(serving, log_level=log_level, secrets=[api_key] if api_key else [])


def demo(
    url: Annotated[str | None, typer.Option(help="A server that runs already; default: one is started.")] = None,
) -> None:
    """Judge three small requests over HTTP, and show the programs that were written and what they printed."""
    from tirjudge_server.demo import run_demo

    run_demo(url)
