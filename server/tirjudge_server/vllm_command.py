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
"""Address that workers listen on: loopback only."""

VLLM = "vllm serve"
"""The default command that starts a worker."""


class WorkersRefused(TirjudgeError, ValueError):
    """The requested workers cannot be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The workers to start."""

    num_workers: int
    """Number of workers."""
    tensor_parallel: int = 1
    """GPUs per worker."""
    command: str = VLLM
    """Command that starts a worker: `vllm serve`, vLLM's API server module, or `tirjudge worker`."""
    arguments: str = ""
    """More arguments in shell syntax. If an argument is given twice, vLLM uses the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerModel:
    """The model that every worker serves."""

    model: str
    """Checkpoint folder, or a name on the Hugging Face hub."""
    name: str
    """Name under which the model is served."""
    context_tokens: int
    """Maximum length of a sequence in tokens."""


def worker_command(served: WorkerModel, *, workers: Workers, port: int) -> list[str]:
    """The command line of one worker."""
    start, more = words_of(workers.command), words_of(workers.arguments)
    address = ["--host", HOST, "--port", str(port)]
    if start[-1] == "worker":
        return [*start, "--model", served.model, *address, *more]
    model = [served.model] if start[-1] == "serve" else ["--model", served.model]
    flags = ["--served-model-name", served.name, "--max-model-len", str(served.context_tokens)]
    parallel = ["--tensor-parallel-size", str(workers.tensor_parallel)]
    needed = ["--enable-prompt-tokens-details", "--logprobs-mode", "raw_logprobs", "--scheduling-policy", "priority"]
    needed += ["--enable-tokenizer-info-endpoint"]  # lists the control tokens that the judge escapes in texts
    return [*start, *model, *flags, *address, *parallel, *needed, *more]


def worker_environment(around: Mapping[str, str], *, key: str, gpus: Sequence[str] | None) -> dict[str, str]:
    """The environment of a worker: this process's environment without `TIRJUDGE_` variables, which may hold secrets.

    Args:
        around: the environment of this process.
        key: the API key of the worker.
        gpus: the GPUs of the worker; None: this machine has no GPUs.
    """
    kept = {name: value for name, value in around.items() if not name.startswith("TIRJUDGE_")}
    own = {"VLLM_API_KEY": key, "VLLM_NO_USAGE_STATS": "1", "PYTHONUNBUFFERED": "1"}
    return kept | own | ({} if gpus is None else {"CUDA_VISIBLE_DEVICES": ",".join(gpus)})


def shares(gpus: Sequence[str], workers: Workers) -> list[list[str] | None]:
    """Divide the GPUs between the workers; return the GPUs of each worker, or None for each on a machine without GPUs.

    Raises:
        WorkersRefused: there are not enough GPUs.
    """
    size, num_needed = workers.tensor_parallel, workers.num_workers * workers.tensor_parallel
    if gpus and num_needed > len(gpus):
        fix = f"--workers {len(gpus) // size}" if len(gpus) >= size else f"--tensor-parallel {len(gpus)}"
        raise WorkersRefused(
            f"--workers {workers.num_workers} with --tensor-parallel {size} needs {num_needed} GPUs; "
            f"{len(gpus)} are visible, use {fix}"
        )
    return [list(gpus[i * size : (i + 1) * size]) if gpus else None for i in range(workers.num_workers)]


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The GPUs that this process may use: those in CUDA_VISIBLE_DEVICES if it is set, or all GPUs of the driver."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        asked = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        try:
            visible = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return []
    listed = [part.strip() for part in visible.replace("\n", ",").split(",") if part.strip()]
    return list(takewhile(lambda gpu: not gpu.startswith("-"), listed))  # like CUDA, stop at the first negative index


def check_command(command: str) -> None:
    """Check that the command of a worker exists.

    Raises:
        WorkersRefused: the command is empty or is not on the PATH.
    """
    words = words_of(command)
    if not words:
        raise WorkersRefused("--worker-command: empty; use `vllm serve`")
    if shutil.which(words[0]) is None:
        hint = "pip install vllm" if words[0] == "vllm" else "a command that is on the PATH"
        raise WorkersRefused(f"--workers: command not found: {words[0]!r}; use {hint}, or --worker-command")


def words_of(line: str) -> list[str]:
    """Split a command line as a shell does.

    Raises:
        WorkersRefused: a quote is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise WorkersRefused(f"workers: {line!r} given: {error}; quote it as in a shell") from error
