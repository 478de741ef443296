"""Options that commands of several rooms take: which model judges, and where its programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Checkpoint = Annotated[
    Path | None, typer.Option("--model", envvar="TIRJUDGE_MODEL", help="Checkpoint folder; default: the bundled judge.")
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
