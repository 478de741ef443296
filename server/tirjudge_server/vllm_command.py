"""Command line, environment and GPUs of each engine that `tirjudge serve` starts."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from tirjudge.errors import TirjudgeError

HOST = "127.0.0.1"
"""Where it listens: for this machine alone."""

VLLM = "vllm serve"
"""What starts one, where nothing else is said."""


class WorkersRefused(TirjudgeError, ValueError):
    """Workers that cannot be started as they were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Engines to start."""

    num_workers: int
    tensor_parallel: int = 1
    """GPUs of each."""
    command: str = VLLM
    """What starts one: vLLM in one of its two ways, or `tirjudge worker`."""
    arguments: str = ""
    """More of them, as a shell would read them; of two that contradict, vLLM takes the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerModel:
    """What each of them serves."""

    model: str
    """Folder of a checkpoint, or its name on the Hugging Face hub."""
    name: str
    """Under which it is served."""
    context_tokens: int
    """Longest sequence."""


def worker_command(served: WorkerModel, *, workers: Workers, port: int) -> list[str]:
    """The command line of one worker."""
    start, more = words_of(workers.command), words_of(workers.arguments)
    address = ["--host", HOST, "--port", str(port)]
    if start[-1] == "worker":
        return [*start, "--model", served.model, *address, *more]
    model = [served.model] if start[-1] == "serve" else ["--model", served.model]
    flags = ["--served-model-name", served.name, "--max-model-len", str(served.context_tokens)]
    parallel = ["--tensor-parallel-size", str(workers.tensor_parallel)]
    told = ["--enable-prompt-tokens-details", "--logprobs-mode", "raw_logprobs", "--scheduling-policy", "priority"]
    told += ["--enable-tokenizer-info-endpoint"]  # names the control tokens to break
    return [*start, *model, *flags, *address, *parallel, *told, *more]


def worker_environment(around: Mapping[str, str], *, key: str, gpus: Sequence[str] | None) -> dict[str, str]:
    """What a worker finds in its environment: what is around, but our own settings, which hold secrets.

    Args:
        around: the environment of this process.
        key: that it asks for.
        gpus: that are its own; None: there are none to share.
    """
    kept = {name: value for name, value in around.items() if not name.startswith("TIRJUDGE_")}
    own = {"VLLM_API_KEY": key, "VLLM_NO_USAGE_STATS": "1", "PYTHONUNBUFFERED": "1"}
    return kept | own | ({} if gpus is None else {"CUDA_VISIBLE_DEVICES": ",".join(gpus)})


def shares(gpus: Sequence[str], workers: Workers) -> list[list[str] | None]:
    """The GPUs of each worker; None for each: there are none.

    Raises:
        WorkersRefused: there are not enough.
    """
    size, num_needed = workers.tensor_parallel, workers.num_workers * workers.tensor_parallel
    if gpus and num_needed > len(gpus):
        fix = f"--workers {len(gpus) // size}" if len(gpus) >= size else f"--tensor-parallel {len(gpus)}"
        raise WorkersRefused(
            f"--workers {workers.num_workers} with --tensor-parallel {size} given, which takes {num_needed} GPUs; "
            f"{len(gpus)} are visible, use {fix}"
        )
    return [list(gpus[i * size : (i + 1) * size]) if gpus else None for i in range(workers.num_workers)]


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """Those that this process may use: what CUDA_VISIBLE_DEVICES says, else all that the driver knows."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        try:
            visible = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return []
    listed = [part.strip() for part in visible.replace("\n", ",").split(",") if part.strip()]
    return list(takewhile(lambda gpu: not gpu.startswith("-"), listed))  # as CUDA reads it: none after a negative one


def check_command(command: str) -> None:
    """
    Raises:
        WorkersRefused: it cannot be run here.
    """
    words = words_of(command)
    if not words:
        raise WorkersRefused("--worker-command: nothing given; use `vllm serve`")
    if shutil.which(words[0]) is None:
        hint = "pip install vllm" if words[0] == "vllm" else "a command that is on the PATH"
        raise WorkersRefused(f"--workers: there is no command {words[0]!r} here; use {hint}, or --worker-command")


def words_of(line: str) -> list[str]:
    """As a shell would read it.

    Raises:
        WorkersRefused: a quote is open.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise WorkersRefused(f"{line!r} given for workers: {error}; use quotes as in a shell") from error
