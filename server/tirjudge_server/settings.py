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
    ChatApiKey,
    ChatConcurrency,
    ChatContext,
    ChatModel,
    ChatTemplateKwargs,
    ChatTimeout,
    ChatUrl,
    Checkpoint,
    ChecksFile,
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
from tirjudge.prices import Prices
from tirjudge_server.records.options import RecordsUrl
from tirjudge_server.vllm_command import VLLM

MAX_DEADLINE_S = 600.0
"""Default maximum seconds of a judgment: the timeout of OpenAI's clients."""

MAX_ROLLOUTS = 16_384
"""Default maximum rollouts of one request: all pairs of 181 responses, or 4096 judgments with both orders and two votes."""

MAX_PROMPT_CHARS = 64 * 1024 * 1024
"""Default maximum characters in all rollouts of one request: four times the default maximum body."""

Host = Annotated[str, Option(envvar="TIRJUDGE_HOST", help="Address to listen on.")]
Port = Annotated[int, Option(envvar="TIRJUDGE_PORT", min=0, max=65535, help="Port to listen on; 0: any free port.")]
InsecureOpen = Annotated[
    bool,
    Option(
        "--insecure-open",
        envvar="TIRJUDGE_INSECURE_OPEN",
        help="Serve callers without an API key, even if --host is not a loopback address.",
    ),
]
Grace = Annotated[
    float, Option(envvar="TIRJUDGE_GRACE_S", min=0.0, help="Seconds that running judgments get after SIGTERM.")
]
Logging = Annotated[LogLevel, Option(envvar="TIRJUDGE_LOG_LEVEL", help="`info` logs each request and judgment.")]


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


PANELS = {
    "Model": ("model", "judge", "format", "chat_template_kwargs", "profile"),
    "vLLM servers": (
        "engine", "engines_file", "engine_key", "engine_wait_s", "workers", "tensor_parallel", "worker_command",
        "worker_args", "in_process",
    ),
    "Chat endpoint": (
        "chat_url", "chat_model", "chat_api_key", "chat_timeout_s", "chat_concurrency", "chat_context_tokens",
        "chat_price_input", "chat_price_cached", "chat_price_output", "sample_url", "sample_key",
    ),
    "Programs and checks": (
        "tool", "checks", "sandbox", "sandbox_key", "slots", "function_calls_per_minute", "allow_unsafe_sandbox",
    ),
    "Network": (
        "host", "port", "allowed_host", "public_url", "max_connections", "header_timeout_s", "insecure_open", "tls_cert",
        "tls_key",
    ),
    "Limits": (
        "max_concurrency", "max_queue", "deadline_s", "max_body_mb", "max_rollouts", "max_prompt_chars", "grace_s",
    ),
    "Records": ("records", "cache", "require_records", "withhold", "retention_days", "runs"),
    "Files and batches": ("files", "max_files_mb", "max_files", "max_batches"),
    "Reward protocols": ("dialects", "reward_mode", "fallback", "response_view", "cohort_size"),
    "Logs and traces": ("otlp", "trace_content", "log_level", "log_format"),
}  # fmt: skip
"""Groups of options in `tirjudge serve --help`: title -> names of the fields of `ServerSettings`."""


class OptionsClash(TirjudgeError, ValueError):
    """Options that contradict each other, or that name something unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of one server. The help text of each field documents it."""

    model: Checkpoint = None
    judge: JudgeAddress = None
    format: FormatName = None
    chat_template_kwargs: ChatTemplateKwargs = None
    tool: ToolNames = None
    checks: ChecksFile = None
    profile: Annotated[Path | None, Option(help="Folder of the judge.json to use; default: that of --model.")] = None
    engine: Engines = None
    engines_file: EnginesFile = None
    engine_key: EngineKey = None
    engine_wait_s: Annotated[
        float, Option(min=0.0, help="Seconds to wait at startup until an engine or the chat endpoint responds.")
    ] = 0.0
    chat_url: ChatUrl = None
    chat_model: ChatModel = None
    chat_api_key: ChatApiKey = None
    chat_timeout_s: ChatTimeout = None
    chat_concurrency: ChatConcurrency = None
    chat_context_tokens: ChatContext = None
    chat_price_input: Annotated[
        float | None, Option(min=0.0, help="Price of a million input tokens of --chat-model, in USD.")
    ] = None
    chat_price_cached: Annotated[
        float | None, Option(min=0.0, help="Price of a million cached input tokens; default: that of input tokens.")
    ] = None
    chat_price_output: Annotated[
        float | None, Option(min=0.0, help="Price of a million output tokens of --chat-model, in USD.")
    ] = None
    sample_url: Annotated[
        list[str] | None,
        Option(
            help="NAME=URL of a chat endpoint that has the model NAME, for samples and graders of evals; repeatable."
        ),
    ] = None
    sample_key: Annotated[
        list[str] | None,
        Option(help="NAME=KEY, the API key for the model NAME; repeatable; safer in TIRJUDGE_SAMPLE_KEY than here."),
    ] = None
    workers: Annotated[int, Option(min=0, help="Number of vLLM servers to start, each on separate GPUs.")] = 0
    tensor_parallel: Annotated[int, Option(min=1, help="GPUs per started vLLM server.")] = 1
    worker_command: Annotated[str, Option(help="Command that starts a worker; `tirjudge worker` works too.")] = VLLM
    worker_args: Annotated[str, Option(help="More arguments for each worker, in shell syntax.")] = ""
    in_process: Annotated[
        bool, Option("--in-process", help="Run the model with vLLM in this process, with --worker-args.")
    ] = False
    sandbox: Annotated[
        list[str] | None, Option(help="URL of a `tirjudge sandbox serve` that runs programs; repeatable.")
    ] = None
    sandbox_key: Annotated[
        str | None, Option(help="Key of the sandbox services; safer in TIRJUDGE_SANDBOX_KEY than here.")
    ] = None
    host: Host = "127.0.0.1"
    port: Port = 8400
    allowed_host: AllowedHost = None
    public_url: Annotated[
        str | None,
        Option(
            help="URL at which browsers reach the server, such as that of a TLS proxy; default: that of each request."
        ),
    ] = None
    max_connections: MaxConnections = None
    header_timeout_s: HeaderTimeout = 20.0
    slots: Slots = None
    max_concurrency: Annotated[
        int | None,
        Option(min=1, help="Maximum number of concurrent judgments; default: 16, or 64 per started worker."),
    ] = None
    max_queue: Annotated[int, Option(min=0, help="Maximum number of waiting requests; further requests get a 429.")] = (
        256
    )
    deadline_s: Annotated[float, Option(min=0.1, help="Maximum seconds of a judgment.")] = MAX_DEADLINE_S
    max_body_mb: Annotated[int, Option(min=1, help="Maximum size of a request in MiB; larger requests get a 413.")] = 16
    max_rollouts: Annotated[
        int, Option(min=1, help="Maximum rollouts (judgments x orders x votes) of a request; more get a 413.")
    ] = MAX_ROLLOUTS
    max_prompt_chars: Annotated[
        int, Option(min=1, help="Maximum characters in all rollouts of a request; more get a 413.")
    ] = MAX_PROMPT_CHARS
    function_calls_per_minute: Annotated[
        int | None,
        Option(
            min=1, help="Maximum function calls of one key's programs per minute; further ones fail; default: no limit."
        ),
    ] = None
    grace_s: Grace = 30.0
    allow_unsafe_sandbox: AllowUnsafeSandbox = False
    records: RecordsUrl = None
    cache: Annotated[bool, Option(help="Answer requests that were judged before from the records.")] = True
    require_records: Annotated[
        bool, Option(help="Fail a request whose judgment cannot be stored, instead of returning the judgment.")
    ] = True
    withhold: Annotated[
        list[str] | None, Option(help="A field that is not stored, such as request.prompt; repeatable.")
    ] = None
    retention_days: Annotated[
        float | None, Option(min=0.0, help="Days after which texts are erased; default: never.")
    ] = None
    files: Annotated[
        str | None,
        Option(
            help="Folder of files, batches and evals, or none; default: tirjudge/files in the user's state directory."
        ),
    ] = None
    max_files_mb: Annotated[int, Option(min=1, help="Maximum size of the files of one key, in MiB.")] = 2048
    max_files: Annotated[int, Option(min=1, help="Maximum number of files of one key.")] = 1000
    max_batches: Annotated[int, Option(min=1, help="Maximum unfinished batches of a key, and runs of evals.")] = 16
    runs: Annotated[
        Path | None,
        Option(exists=True, file_okay=False, help="Folder of benchmark runs to show on pages; default: none."),
    ] = None
    insecure_open: InsecureOpen = False
    tls_cert: Annotated[Path | None, Option(exists=True, help="Certificate as a PEM file; default: plain HTTP.")] = None
    tls_key: Annotated[
        Path | None, Option(exists=True, help="Private key as a PEM file; default: --tls-cert contains it.")
    ] = None
    dialects: Annotated[str, Option(help="all, none, or names separated by commas: openrlhf,slime.")] = "all"
    reward_mode: Annotated[
        RewardMode, Option(help="Reward mode of dialects if the request's URL does not name one.")
    ] = RewardMode.EXPECTED_SCORE
    fallback: Annotated[
        float | None,
        Option(help="Score for missing scores in protocols that require a number; default: middle of the scale."),
    ] = None
    response_view: Annotated[ResponseView, Option(help="Whether dialects show the judge a response's reasoning.")] = (
        "final"
    )
    cohort_size: Annotated[int, Option(min=1, help="NeMo Gym: number of rollouts of a prompt to compare.")] = 1
    otlp: Annotated[
        str | None,
        Option(
            help="URL of the OpenTelemetry collector for traces; default: $OTEL_EXPORTER_OTLP_ENDPOINT, or no traces."
        ),
    ] = None
    trace_content: Annotated[bool, Option(help="Include the texts of requests and of the model in traces.")] = False
    log_level: Logging = LogLevel.WARNING
    log_format: Annotated[LogFormat, Option(help="Format of log lines.")] = LogFormat.TEXT

    @property
    def concurrency(self) -> int:
        """Maximum number of concurrent judgments."""
        return self.max_concurrency or 64 * self.workers or 16

    @property
    def chat_prices(self) -> Prices | None:
        """Prices of the chat endpoint in USD. None: not given."""
        if self.chat_price_input is None or self.chat_price_output is None:
            return None
        return Prices(input=self.chat_price_input, output=self.chat_price_output, cached=self.chat_price_cached)

    @property
    def max_body_bytes(self) -> int:
        """Maximum size of a request in bytes."""
        return self.max_body_mb * 1024 * 1024

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools that the model may call, and of the functions that its programs may call."""
        from tirjudge.opening import given_tools

        return given_tools(self.tool)
