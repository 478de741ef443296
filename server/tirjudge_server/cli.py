"""The commands `serve`, `worker` and `demo`. They import heavy modules when they run."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated

import typer

from tirjudge.options import AllowedHost, Checkpoint, LogLevel, options_of
from tirjudge_server.settings import PANELS, Grace, Host, InsecureOpen, LogFormat, Logging, Port, ServerSettings


@options_of(ServerSettings, panels=PANELS)
def serve(settings: ServerSettings) -> None:
    """Serve the judge over HTTP: a native API, an OpenAI-compatible API, and the reward protocols of trainers.

    Examples:
        tirjudge serve                                                                  # the bundled judge
        tirjudge serve --engine http://gpu-1:8000                                       # a running vLLM server
        tirjudge serve --model Qwen/Qwen3-8B --workers 8                                # start one vLLM per GPU
        tirjudge serve --chat-url http://127.0.0.1:11434 --chat-model qwen3:8b          # Ollama
        tirjudge serve --chat-url https://api.openai.com/v1 --chat-model gpt-4.1-mini   # a hosted chat model
    """
    if sys.stdout.isatty():
        print("Loading the judge and starting the server ...", flush=True)
    from tirjudge_server.serving import serve_judge
    from tirjudge_server.telemetry.logs import JsonLines
    from tirjudge_web.process import bind, run

    settings = replace(settings, otlp=settings.otlp or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None)
    formatter = JsonLines() if settings.log_format is LogFormat.JSON else None
    with bind(settings.host, port=settings.port) as bound:
        given = (settings.engine_key, settings.chat_api_key, settings.sandbox_key, settings.records)
        sample_keys = [entry.partition("=")[2] for entry in settings.sample_key or ()]
        secrets = [secret for secret in (*given, *sample_keys) if secret]
        serving = serve_judge(bound, settings=settings)
        run(serving, log_level=settings.log_level, formatter=formatter, secrets=secrets)


def worker(
    model: Checkpoint = None,
    host: Host = "127.0.0.1",
    port: Port = 8500,
    allowed_host: AllowedHost = None,
    max_batch: Annotated[int, typer.Option(min=1, help="Maximum number of sequences per step.")] = 16,
    grace_s: Grace = 5.0,
    api_key: Annotated[
        str | None, typer.Option(envvar="VLLM_API_KEY", help="API key of callers; safer in VLLM_API_KEY than here.")
    ] = None,
    insecure_open: InsecureOpen = False,
    log_level: Logging = LogLevel.WARNING,
) -> None:
    """Serve a small checkpoint with the HTTP API of vLLM (POST /v1/completions).

    Examples:
        tirjudge worker --port 8500    # then: tirjudge serve --engine http://127.0.0.1:8500
    """
    from tirjudge_server.serving import serve_worker
    from tirjudge_web.binding import check_bind
    from tirjudge_web.browser_check import AllowedHosts
    from tirjudge_web.process import bind, run

    # An empty variable means no key.
    api_key = api_key or None
    check_bind(host, has_keys=api_key is not None, insecure_open=insecure_open, remedy="give --api-key")
    hosts = AllowedHosts(given=tuple(allowed_host or ()), bound=host)
    with bind(host, port=port) as bound:
        serving = serve_worker(
            bound, checkpoint=model, max_batch=max_batch, grace_s=grace_s, api_key=api_key, hosts=hosts
        )
        run(serving, log_level=log_level, secrets=[api_key] if api_key else [])


def demo(
    url: Annotated[str | None, typer.Option(help="URL of a running server; default: start one for the demo.")] = None,
) -> None:
    """Judge three small requests over HTTP and print the model's programs, their output and the verdicts.

    Examples:
        tirjudge demo
        tirjudge demo --url http://127.0.0.1:8400
    """
    from tirjudge_server.demo import run_demo

    run_demo(url)
