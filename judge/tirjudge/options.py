"""Options that commands of several rooms take: which model judges, and where its programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Checkpoint = Annotated[
    Path | None, typer.Option("--model", envvar="TIRJUDGE_MODEL", help="Checkpoint folder; default: the bundled judge.")
]
JudgeAddress = Annotated[
    str | None,
    typer.Option(
        "--judge",
        envvar="TIRJUDGE_JUDGE",
        help="KIND:ADDRESS of a model: embedded:PATH, vllm:URL[,URL], chat:URL#MODEL, or an engine of another package.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        envvar="TIRJUDGE_FORMAT",
        help="How the model is asked; default: as its checkpoint says, or tirjudge/1.",
    ),
]
ToolNames = Annotated[
    list[str] | None,
    typer.Option("--tool", envvar="TIRJUDGE_TOOL", help="A tool that the model may call; repeatable; default: python."),
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        envvar="TIRJUDGE_ENGINE",
        help="URL of a vLLM server that runs the model, which --model then gives the profile of; repeatable.",
    ),
]
EnginesFile = Annotated[
    Path | None,
    typer.Option(
        "--engines-file",
        envvar="TIRJUDGE_ENGINES_FILE",
        help="File with the URL of such a server on each line; what is changed in it takes effect at once.",
    ),
]
EngineKey = Annotated[
    str | None,
    typer.Option(
        "--engine-key",
        envvar="TIRJUDGE_ENGINE_KEY",
        help="Key that these servers ask for; better in the environment than here.",
    ),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        envvar="TIRJUDGE_ALLOWED_HOST",
        help="Name that callers reach the server by, besides localhost and IP addresses; repeatable.",
    ),
]
MaxConnections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        envvar="TIRJUDGE_MAX_CONNECTIONS",
        min=1,
        help="Open at a time; default: as many as the limit of open files has room for, at most 2048.",
    ),
]
HeaderTimeout = Annotated[
    float,
    typer.Option(
        "--header-timeout-s",
        envvar="TIRJUDGE_HEADER_TIMEOUT_S",
        min=0.1,
        help="Seconds that the header of a request, or a TLS handshake, may take.",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option("--slots", envvar="TIRJUDGE_SLOTS", min=1, help="Programs side by side; default: one a core."),
]
AllowUnsafeSandbox = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-sandbox/--no-allow-unsafe-sandbox",
        envvar="TIRJUDGE_ALLOW_UNSAFE_SANDBOX",
        help="Run programs even where nothing isolates them.",
    ),
]
ChatUrl = Annotated[
    str | None,
    typer.Option(
        "--chat-url",
        envvar="TIRJUDGE_CHAT_URL",
        help="Base URL of any OpenAI-compatible chat endpoint, such as https://api.openai.com/v1, whose model judges.",
    ),
]
ChatModel = Annotated[
    str | None,
    typer.Option("--chat-model", envvar="TIRJUDGE_CHAT_MODEL", help="Name of the model at that endpoint."),
]
ChatApiKey = Annotated[
    str | None,
    typer.Option(
        "--chat-api-key",
        envvar="TIRJUDGE_CHAT_API_KEY",
        help="Key of that endpoint; better in the environment than here.",
    ),
]
