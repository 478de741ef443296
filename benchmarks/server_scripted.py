"""`tirjudge serve` with a scripted model. Everything except the model is the real server.

    python benchmarks/server_scripted.py --programs 1 --records none

`server_overhead.py` and `harness_throughput.py` measure it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.engines.scripted import ScriptedEngine
from tirjudge.model import Model
from tirjudge.profile import Profile
from tirjudge.types import Completion, Sampling
from tirjudge.weights_lock import WeightsLock
from tirjudge_server import serving
from tirjudge_server.settings import ServerSettings
from tirjudge_web.process import bind, run

COMMAND = (sys.executable, str(Path(__file__)))
"""Starts this server."""

PROGRAM = """We count the words.
```python
for name in ("A", "B"):
    print(name, len(responses[name].split()))
```
```output
"""
VERDICT = "B has more of them. <preference>B</preference>"
NUM_PROGRAMS = re.compile(r"after programs: (\d)")
"""Matches the number of programs that the judgment of a prompt must run. The number is part of the prompt."""


class Engine(ScriptedEngine):
    """Writes programs, then a verdict. Does not record its calls.

    Args:
        num_programs: programs before the verdict, if the prompt does not give a number.
        delay_s: seconds per text.
    """

    def __init__(self, *, num_programs: int, delay_s: float) -> None:
        def write(sequence: str) -> str:
            wanted = NUM_PROGRAMS.search(sequence)
            return VERDICT if sequence.count(PROGRAM) >= (int(wanted[1]) if wanted else num_programs) else PROGRAM

        super().__init__(write, label_probs={"A": 0.1, "B": 0.9}, delay_s=delay_s)

    async def generate(self, token_ids: Sequence[int], *, sampling: Sampling, session: str) -> Completion:
        self.calls.clear()
        return await super().generate(token_ids, sampling=sampling, session=session)


def main(
    programs: Annotated[int, typer.Option(help="Programs that the model writes per judgment.")] = 1,
    delay_ms: Annotated[float, typer.Option(help="Milliseconds per text of the model.")] = 0.0,
    records: Annotated[str, typer.Option(help="As for `tirjudge serve`.")] = "none",
    cache: Annotated[bool, typer.Option(help="As for `tirjudge serve`.")] = True,
    max_concurrency: Annotated[int, typer.Option(help="As for `tirjudge serve`.")] = 16,
    max_queue: Annotated[int, typer.Option(help="As for `tirjudge serve`.")] = 256,
) -> None:
    """Serve until a signal arrives. The first line on stdout contains the URL."""

    @asynccontextmanager
    async def open_scripted(*_: Any, **__: Any) -> AsyncIterator[Model]:
        engine = Engine(num_programs=programs, delay_s=delay_ms / 1000)
        yield Model(engine=engine, profile=Profile(name="scripted"), weights=WeightsLock(version="scripted"))

    serving.open_judging = open_scripted
    settings = ServerSettings(
        max_concurrency=max_concurrency,
        max_queue=max_queue,
        records=records,
        cache=cache,
        files="none",
    )
    run(serving.serve_judge(bind("127.0.0.1", port=0), settings=settings), log_level="warning")


if __name__ == "__main__":
    typer.run(main)
