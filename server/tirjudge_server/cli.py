"""The commands of this room. What is heavy is imported when one of them runs."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tirjudge.http.rewards import RewardMode
from tirjudge.integrations.detemplate import ResponseView
from tirjudge.options import (
    AllowedHost,
    AllowUnsafeSandbox,
    Checkpoint,
    EngineKey,
    Engines,
    EnginesFile,
    HeaderTimeout,
    MaxConnections,
    Slots,
)
from tirjudge_server.records.options import RecordsUrl
from tirjudge_server.vllm_command import VLLM, Workers, words_of

Host = Annotated[str, typer.Option(envvar="TIRJUDGE_HOST", help="Address to listen at.")]
Port = Annotated[int, typer.Option(envvar="TIRJUDGE_PORT", min=0, max=65535, help="0: any that is free.")]
InsecureOpen = Annotated[
    bool,
    typer.Option(
        "--insecure-open", envvar="TIRJUDGE_INSECURE_OPEN", help="Serve everybody who reaches --host, without a key."
    ),
]
Grace = Annotated[
    float, typer.Option(envvar="TIRJUDGE_GRACE_S", min=0.0, help="Seconds that judgments under way get after SIGTERM.")
]


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


Logging = Annotated[LogLevel, typer.Option(envvar="TIRJUDGE_LOG_LEVEL", help="`info` logs each request and judgment.")]


def serve(
    model: Checkpoint = None,
    profile: Annotated[
        Path | None,
        typer.Option(envvar="TIRJUDGE_PROFILE", help="Folder whose judge.json to judge by; default: that of --model."),
    ] = None,
    engine: Engines = None,
    engines_file: EnginesFile = None,
    engine_key: EngineKey = None,
    engine_wait_s: Annotated[
        float,
        typer.Option(
            envvar="TIRJUDGE_ENGINE_WAIT_S", min=0.0, help="For how long to try again while none of these answers yet."
        ),
    ] = 0.0,
    workers: Annotated[
        int, typer.Option(envvar="TIRJUDGE_WORKERS", min=0, help="vLLM servers to start, each on GPUs of its own.")
    ] = 0,
    tensor_parallel: Annotated[
        int, typer.Option(envvar="TIRJUDGE_TENSOR_PARALLEL", min=1, help="GPUs of each of these.")
    ] = 1,
    worker_command: Annotated[
        str, typer.Option(envvar="TIRJUDGE_WORKER_COMMAND", help="What starts one, or `tirjudge worker`.")
    ] = VLLM,
    worker_args: Annotated[
        str, typer.Option(envvar="TIRJUDGE_WORKER_ARGS", help="More arguments of each, as a shell would read them.")
    ] = "",
    in_process: Annotated[
        bool,
        typer.Option(
            "--in-process", envvar="TIRJUDGE_IN_PROCESS", help="Run the model by vLLM in here, with --worker-args."
        ),
    ] = False,
    sandbox: Annotated[
        list[str] | None,
        typer.Option(envvar="TIRJUDGE_SANDBOX", help="URL of a `tirjudge sandbox serve` to run programs; repeatable."),
    ] = None,
    sandbox_key: Annotated[
        str | None,
        typer.Option(
            envvar="TIRJUDGE_SANDBOX_KEY", help="Key that these ask for; better in the environment than here."
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8400,
    allowed_host: AllowedHost = None,
    max_connections: MaxConnections = None,
    header_timeout_s: HeaderTimeout = 20.0,
    slots: Slots = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            envvar="TIRJUDGE_MAX_CONCURRENCY",
            min=1,
            help="Judgments side by side; default: 16, or 64 a worker started.",
        ),
    ] = None,
    max_queue: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_QUEUE", min=0, help="Requests that may wait; one more gets a 429.")
    ] = 256,
    deadline_s: Annotated[
        float, typer.Option(envvar="TIRJUDGE_DEADLINE_S", min=0.1, help="The most that a judgment may take.")
    ] = 600.0,
    max_body_mb: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_BODY_MB", min=1, help="Largest request, MiB; a larger one gets a 413.")
    ] = 16,
    max_rollouts: Annotated[
        int,
        typer.Option(
            envvar="TIRJUDGE_MAX_ROLLOUTS", min=1, help="Of one request: judgments x orders x votes; more get a 413."
        ),
    ] = 16_384,
    max_prompt_chars: Annotated[
        int,
        typer.Option(envvar="TIRJUDGE_MAX_PROMPT_CHARS", min=1, help="Of all rollouts of one request; more get a 413."),
    ] = 67_108_864,
    grace_s: Grace = 30.0,
    allow_unsafe_sandbox: AllowUnsafeSandbox = False,
    records: RecordsUrl = None,
    cache: Annotated[
        bool, typer.Option(envvar="TIRJUDGE_CACHE", help="Answer what was judged before from the records.")
    ] = True,
    require_records: Annotated[
        bool, typer.Option(envvar="TIRJUDGE_REQUIRE_RECORDS", help="A judgment that cannot be stored is not told.")
    ] = True,
    withhold: Annotated[
        list[str] | None,
        typer.Option(
            envvar="TIRJUDGE_WITHHOLD", help="A field that is not stored, such as request.prompt; repeatable."
        ),
    ] = None,
    retention_days: Annotated[
        float | None,
        typer.Option(envvar="TIRJUDGE_RETENTION_DAYS", min=0.0, help="Age at which texts are erased; default: never."),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option(
            envvar="TIRJUDGE_FILES",
            help="Folder of files and batches, or none; default: tirjudge/files in the user's state directory.",
        ),
    ] = None,
    max_files_mb: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_FILES_MB", min=1, help="That one key may keep in /v1/files, MiB.")
    ] = 2048,
    max_files: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_FILES", min=1, help="Files that one key may keep.")
    ] = 1000,
    max_batches: Annotated[
        int, typer.Option(envvar="TIRJUDGE_MAX_BATCHES", min=1, help="Unfinished batches that one key may have.")
    ] = 16,
    insecure_open: InsecureOpen = False,
    tls_cert: Annotated[
        Path | None, typer.Option(envvar="TIRJUDGE_TLS_CERT", exists=True, help="PEM file; default: plain HTTP.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="TIRJUDGE_TLS_KEY", exists=True, help="PEM file, unless --tls-cert holds it.")
    ] = None,
    dialects: Annotated[
        str, typer.Option(envvar="TIRJUDGE_DIALECTS", help="all, none, or names with commas: openrlhf,slime.")
    ] = "all",
    reward_mode: Annotated[
        RewardMode, typer.Option(envvar="TIRJUDGE_REWARD_MODE", help="How dialects score where a URL does not say.")
    ] = RewardMode.EXPECTED_SCORE,
    fallback: Annotated[
        float | None,
        typer.Option(
            envvar="TIRJUDGE_FALLBACK",
            help="Stands in for a score that is missing, where a protocol must have one; default: the middle.",
        ),
    ] = None,
    response_view: Annotated[
        ResponseView,
        typer.Option(envvar="TIRJUDGE_RESPONSE_VIEW", help="Whether dialects show the judge a response's reasoning."),
    ] = "final",
    cohort_size: Annotated[
        int, typer.Option(envvar="TIRJUDGE_COHORT_SIZE", min=1, help="NeMo Gym: rollouts of a prompt to compare.")
    ] = 1,
    otlp: Annotated[
        str | None,
        typer.Option(
            envvar="TIRJUDGE_OTLP",
            help="URL of the OpenTelemetry collector that gets traces; default: $OTEL_EXPORTER_OTLP_ENDPOINT, or none.",
        ),
    ] = None,
    trace_content: Annotated[
        bool, typer.Option(envvar="TIRJUDGE_TRACE_CONTENT", help="Traces hold what people and the model wrote.")
    ] = False,
    log_level: Logging = LogLevel.WARNING,
    log_format: Annotated[LogFormat, typer.Option(envvar="TIRJUDGE_LOG_FORMAT", help="How log lines look.")] = (
        LogFormat.TEXT
    ),
) -> None:
    """Judge over HTTP: natively, for OpenAI's clients, and for trainers."""
    from tirjudge_server.cost import CostLimits
    from tirjudge_server.dialects import DialectSettings
    from tirjudge_server.openai.filestore import FileQuota
    from tirjudge_server.records.store import RecordPolicy
    from tirjudge_server.scoring import Scoring
    from tirjudge_server.serving import serve_judge
    from tirjudge_server.settings import ServerSettings, dialects_named
    from tirjudge_server.telemetry.logs import JsonLines
    from tirjudge_web.limits import ConnectionLimits
    from tirjudge_web.process import bind, run

    started = Workers(
        num_workers=workers, tensor_parallel=tensor_parallel, command=worker_command, arguments=worker_args
    )
    settings = ServerSettings(
        checkpoint=model,
        profile=profile,
        engine_urls=tuple(engine or ()),
        engines_file=engines_file,
        engine_key=engine_key,
        engine_wait_s=engine_wait_s,
        workers=started if workers else None,
        vllm_arguments=tuple(words_of(worker_args)) if in_process else None,
        sandbox_urls=tuple(sandbox or ()),
        sandbox_key=sandbox_key,
        host=host,
        allowed_hosts=tuple(allowed_host or ()),
        connections=ConnectionLimits(max_connections=max_connections, header_s=header_timeout_s),
        insecure_open=insecure_open,
        slots=slots,
        allow_unsafe_sandbox=allow_unsafe_sandbox,
        max_concurrency=max_concurrency or (64 * workers if workers else 16),
        max_queue=max_queue,
        max_deadline_s=deadline_s,
        max_body_bytes=max_body_mb * 1024 * 1024,
        cost_limits=CostLimits(rollouts=max_rollouts, chars=max_prompt_chars),
        grace_s=grace_s,
        records=records,
        policy=RecordPolicy(
            cache=cache, required=require_records, withheld=frozenset(withhold or ()), retention_days=retention_days
        ),
        files=files,
        quota=FileQuota(num_bytes=max_files_mb * 1024 * 1024, num_files=max_files, num_batches=max_batches),
        dialects=dialects_named(dialects),
        dialect_settings=DialectSettings(
            scoring=Scoring(mode=reward_mode), fallback=fallback, response_view=response_view, cohort_size=cohort_size
        ),
        certificate=tls_cert,
        private_key=tls_key,
        otlp=otlp or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        trace_content=trace_content,
    )
    formatter = JsonLines() if log_format is LogFormat.JSON else None
    with bind(host, port=port) as bound:
        secrets = [secret for secret in (engine_key, sandbox_key, records) if secret]
        run(serve_judge(bound, settings=settings), log_level=log_level, formatter=formatter, secrets=secrets)


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
