"""The settings of a server: each field is an option of `tirjudge serve`, with its default, its bounds and its help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from tirjudge.errors import TirjudgeError
from tirjudge.http.rewards import RewardMode
from tirjudge.integrations.detemplate import ResponseView
from tirjudge.options import (
    AllowedHost,
    AllowUnsafeSandbox,
    Checkpoint,
    EngineKey,
    Engines,
    EnginesFile,
    FormatName,
    HeaderTimeout,
    JudgeAddress,
    LogLevel,
    MaxConnections,
    Slots,
    ToolNames,
)
from tirjudge_server.records.options import RecordsUrl
from tirjudge_server.vllm_command import VLLM

MAX_DEADLINE_S = 600.0
"""The longest that a judgment may take: OpenAI's clients wait no longer."""

MAX_ROLLOUTS = 16_384
"""Of one request: all pairs of 181 responses, or 4096 judgments of both orders and two votes each."""

MAX_PROMPT_CHARS = 64 * 1024 * 1024
"""Of one request, in all its rollouts: four times the largest body."""

Host = Annotated[str, Option(envvar="TIRJUDGE_HOST", help="Address to listen at.")]
Port = Annotated[int, Option(envvar="TIRJUDGE_PORT", min=0, max=65535, help="0: any that is free.")]
InsecureOpen = Annotated[
    bool,
    Option(
        "--insecure-open", envvar="TIRJUDGE_INSECURE_OPEN", help="Serve everybody who reaches --host, without a key."
    ),
]
Grace = Annotated[
    float, Option(envvar="TIRJUDGE_GRACE_S", min=0.0, help="Seconds that judgments under way get after SIGTERM.")
]
Logging = Annotated[LogLevel, Option(envvar="TIRJUDGE_LOG_LEVEL", help="`info` logs each request and judgment.")]


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class OptionsClash(TirjudgeError, ValueError):
    """Options that exclude each other, or name what there is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    model: Checkpoint = None
    judge: JudgeAddress = None
    format: FormatName = None
    tool: ToolNames = None
    profile: Annotated[Path | None, Option(help="Folder whose judge.json to judge by; default: that of --model.")] = (
        None
    )
    engine: Engines = None
    engines_file: EnginesFile = None
    engine_key: EngineKey = None
    engine_wait_s: Annotated[
        float, Option(min=0.0, help="For how long to try again while none of these answers yet.")
    ] = 0.0
    workers: Annotated[int, Option(min=0, help="vLLM servers to start, each on GPUs of its own.")] = 0
    tensor_parallel: Annotated[int, Option(min=1, help="GPUs of each of these.")] = 1
    worker_command: Annotated[str, Option(help="What starts one, or `tirjudge worker`.")] = VLLM
    worker_args: Annotated[str, Option(help="More arguments of each, as a shell would read them.")] = ""
    in_process: Annotated[bool, Option("--in-process", help="Run the model by vLLM in here, with --worker-args.")] = (
        False
    )
    sandbox: Annotated[
        list[str] | None, Option(help="URL of a `tirjudge sandbox serve` to run programs; repeatable.")
    ] = None
    sandbox_key: Annotated[str | None, Option(help="Key that these ask for; better in the environment than here.")] = (
        None
    )
    host: Host = "127.0.0.1"
    port: Port = 8400
    allowed_host: AllowedHost = None
    max_connections: MaxConnections = None
    header_timeout_s: HeaderTimeout = 20.0
    slots: Slots = None
    max_concurrency: Annotated[
        int | None, Option(min=1, help="Judgments side by side; default: 16, or 64 a worker started.")
    ] = None
    max_queue: Annotated[int, Option(min=0, help="Requests that may wait; one more gets a 429.")] = 256
    deadline_s: Annotated[float, Option(min=0.1, help="The most that a judgment may take.")] = MAX_DEADLINE_S
    max_body_mb: Annotated[int, Option(min=1, help="Largest request, MiB; a larger one gets a 413.")] = 16
    max_rollouts: Annotated[int, Option(min=1, help="Of one request: judgments x orders x votes; more get a 413.")] = (
        MAX_ROLLOUTS
    )
    max_prompt_chars: Annotated[int, Option(min=1, help="Of all rollouts of one request; more get a 413.")] = (
        MAX_PROMPT_CHARS
    )
    grace_s: Grace = 30.0
    allow_unsafe_sandbox: AllowUnsafeSandbox = False
    records: RecordsUrl = None
    cache: Annotated[bool, Option(help="Answer what was judged before from the records.")] = True
    require_records: Annotated[bool, Option(help="A judgment that cannot be stored is not told.")] = True
    withhold: Annotated[
        list[str] | None, Option(help="A field that is not stored, such as request.prompt; repeatable.")
    ] = None
    retention_days: Annotated[float | None, Option(min=0.0, help="Age at which texts are erased; default: never.")] = (
        None
    )
    files: Annotated[
        str | None,
        Option(help="Folder of files and batches, or none; default: tirjudge/files in the user's state directory."),
    ] = None
    max_files_mb: Annotated[int, Option(min=1, help="That one key may keep in /v1/files, MiB.")] = 2048
    max_files: Annotated[int, Option(min=1, help="Files that one key may keep.")] = 1000
    max_batches: Annotated[int, Option(min=1, help="Unfinished batches that one key may have.")] = 16
    insecure_open: InsecureOpen = False
    tls_cert: Annotated[Path | None, Option(exists=True, help="PEM file; default: plain HTTP.")] = None
    tls_key: Annotated[Path | None, Option(exists=True, help="PEM file, unless --tls-cert holds it.")] = None
    dialects: Annotated[str, Option(help="all, none, or names with commas: openrlhf,slime.")] = "all"
    reward_mode: Annotated[RewardMode, Option(help="How dialects score where a URL does not say.")] = (
        RewardMode.EXPECTED_SCORE
    )
    fallback: Annotated[
        float | None,
        Option(help="Stands in for a score that is missing, where a protocol must have one; default: the middle."),
    ] = None
    response_view: Annotated[ResponseView, Option(help="Whether dialects show the judge a response's reasoning.")] = (
        "final"
    )
    cohort_size: Annotated[int, Option(min=1, help="NeMo Gym: rollouts of a prompt to compare.")] = 1
    otlp: Annotated[
        str | None,
        Option(
            help="URL of the OpenTelemetry collector that gets traces; default: $OTEL_EXPORTER_OTLP_ENDPOINT, or none."
        ),
    ] = None
    trace_content: Annotated[bool, Option(help="Traces hold what people and the model wrote.")] = False
    log_level: Logging = LogLevel.WARNING
    log_format: Annotated[LogFormat, Option(help="How log lines look.")] = LogFormat.TEXT

    @property
    def concurrency(self) -> int:
        """Judgments side by side."""
        return self.max_concurrency or 64 * self.workers or 16

    @property
    def max_body_bytes(self) -> int:
        return self.max_body_mb * 1024 * 1024
