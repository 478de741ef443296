"""Starts API servers of real vLLM by forking, in an environment with vLLM.

The start of a server needs 34 s of processor time otherwise, and 27 s of them import vLLM, once for the API and once for the
engine. This process imports vLLM once.

For each line of standard input, a JSON object with the options of a server (`arguments`), its environment variables (`env`)
and the file for its output (`log`), it forks a server and writes its pid as a line. It ends at the end of the input.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from typing import Any

import vllm.model_executor.models.qwen3
import vllm.v1.engine.async_llm
import vllm.v1.engine.core
import vllm.v1.engine.utils
import vllm.v1.worker.cpu_worker
from vllm.entrypoints.launchers.api_server import entry


def main() -> None:
    """Fork a server for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended servers leave no zombies
    # vLLM on a CPU spawns engines. A forked one is the same process without the imports.
    vllm.v1.engine.utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _serve(wanted)
        print(pid, flush=True)


def _serve(wanted: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    with open(wanted["log"], "wb") as log, open(os.devnull, "rb") as nothing:
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source.fileno(), target)
    os.environ.update(wanted["env"])
    sys.argv = ["vllm", *wanted["arguments"]]
    code = 1
    try:
        entry.main()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
