"""Run the functions of the Ray tests in a child process, so that Ray never runs in the process of pytest.

Ray ends the process of a driver with exit code 1 if its raylet does not answer in time, which happens on a loaded
machine. In the process of pytest that would end the whole test run without a message. In a child process it is a failed
test.

Requests and answers are JSON objects, one per line: `{"function": "module:name", "arguments": {...}}` is answered by
`{"result": ...}` or `{"error": traceback}`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ANSWER_S = 300.0
"""Maximum seconds for one answer."""


class DriverEndedByRay(Exception):
    """The child process ended while a function was running, without an error of the function."""


class DriverError(Exception):
    """The function raised an exception. The message is its traceback."""


class Driver:
    """A child process that runs functions one after another.

    Args:
        environment: environment variables of the process, in addition to those of this process.
        log: file for the standard error of the process.
    """

    def __init__(self, *, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.ray.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **environment},
                bufsize=0,
            )
        self._received = b""

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def call(self, function: str, **arguments: Any) -> Any:
        """Run a function, given as `module:name`, and return its result.

        Raises:
            DriverError: the function raised an exception.
            DriverEndedByRay: the process ended during the call.
            TimeoutError: no answer within `ANSWER_S`.
        """
        self.start(function, **arguments)
        return self.result()

    def start(self, function: str, **arguments: Any) -> None:
        """Start a function without waiting for its result."""
        assert self._process.stdin is not None
        request = json.dumps({"function": function, "arguments": arguments})
        with suppress(BrokenPipeError):  # `result` reports a process that has ended
            self._process.stdin.write(request.encode() + b"\n")

    def result(self) -> Any:
        """Wait for the result of the function that was started."""
        answer = json.loads(self._line())
        if "error" in answer:
            raise DriverError(answer["error"])
        return answer["result"]

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + ANSWER_S
        while b"\n" not in self._received:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError(f"no answer within {ANSWER_S:g} s; {self._end_of_log()}")
            received = os.read(self._process.stdout.fileno(), 1 << 16)
            if not received:
                raise DriverEndedByRay(f"exit code {self._process.wait()}; {self._end_of_log()}")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _end_of_log(self) -> str:
        return f"end of its log:\n{self._log.read_bytes()[-4000:].decode(errors='replace')}"

    def close(self) -> None:
        """End the process: wait 30 s for it after the end of its input, then kill it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the output of Ray goes to the log
    for line in sys.stdin:
        request = json.loads(line)
        module, _, name = request["function"].partition(":")
        try:
            answer = {"result": getattr(import_module(module), name)(**request["arguments"])}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
