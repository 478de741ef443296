"""How long `/health` takes to answer while one connection sends requests that are made to keep the server busy.

    python benchmarks/health_under_attack.py --out benchmarks/results/health_under_attack.json

Starts `tirjudge serve` with the bundled judge and `tirjudge sandbox serve`, with their defaults and a state directory of
their own. Each attack runs in a loop for some seconds. Meanwhile another process asks for `/health` every 20 ms, each time on
a new connection, whether or not the last answer is there: a server that freezes for a second delays fifty, and all count.
An answer that does not come within ten seconds counts as ten seconds, and as unanswered. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

ASK_EVERY_S = 0.02
UNANSWERED_S = 10.0
TARGET_P99_MS = 250.0
QUIET_MS, QUIET_WITHIN_S = 50.0, 60.0
"""Before the next attack, `/health` must have answered that fast; the last attack may still be worked on."""

Target = Literal["judge", "sandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One request, sent again and again on one connection."""

    name: str
    target: Target = "judge"
    path: str = "/health"
    body: Callable[[], bytes] = bytes
    """Made once, when its turn comes."""
    headers: tuple[str, ...] = ()
    kind: Literal["requests", "header_flood", "idle_connections", "unfinished_bodies", "none"] = "requests"


def as_json(value: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(value).encode()


def chat(content: Callable[[], str]) -> Callable[[], bytes]:
    return lambda: json.dumps({"model": "tirjudge-tiny", "messages": [{"role": "user", "content": content()}]}).encode()


def grader(template: str, *, sample: str = "x") -> Callable[[], bytes]:
    check = {"type": "string_check", "name": "g", "operation": "eq", "input": template, "reference": "x"}
    return as_json({"grader": check, "model_sample": sample})


def action(text: str) -> Callable[[], bytes]:
    return as_json({"trajectory_ids": ["t"], "actions": [text]})


def rollout(text: str) -> dict[str, Any]:
    return {"output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}


QUESTION = {"type": "predicate", "instructions": "Is it so?"}
ANSWERS = [f"answer {number}" for number in range(600)]
MB = 1_000_000
FENCED = "".join(f"{heading}:\n```\n" * 60 for heading in ("Question", "Reference answer", "Response"))
GRADERS = "/v1/fine_tuning/alpha/graders/run"
POINTWISE = {"mode": "pointwise", "prompt": "Use no commas.", "responses": ["It rains."]}
SPARSE = {
    "code": "open('f', 'wb').truncate(15 << 20)",
    "fetch": ["f"],
    "limits": {"file_mb": 16, "scratch_mb": 64, "fetch_bytes": 15 << 20},
}

ATTACKS = (
    Attack(name="nothing", kind="none"),
    Attack(name="nothing at the sandbox", target="sandbox", kind="none"),
    Attack(name="honest judgments", path="/v1/judge", body=as_json(POINTWISE)),
    # Parsing.
    Attack(name="nested markers in a chat", path="/v1/chat/completions", body=chat(lambda: FENCED + "`")),
    Attack(
        name="answer markers in a chat",
        path="/v1/chat/completions",
        body=chat(lambda: "[User Question]\n" * 20_000 + "[The Start of Assistant A's Answer" * 20_000),
    ),
    Attack(
        name="headings of a GOLD prompt",
        path="/v1/chat/completions",
        body=chat(lambda: "GOLD SOLUTION:\n" * 300 + "PREDICTED SOLUTION:\n" * 300 + "### Final Score:"),
    ),
    Attack(name="open placeholders in a grader", path=GRADERS, body=grader("{{" * 18_000)),
    Attack(name="brackets of a placeholder", path=GRADERS, body=grader("{{item" + "[0]" * 100_000 + "}}")),
    Attack(name="turns without an end", path="/get_reward", body=as_json({"query": "<|im_start|>user\n" * 60_000})),
    Attack(name="thoughts without an end", path="/classify", body=as_json({"input": "<think>" * 150_000})),
    Attack(name="instructions without an end", path="/classify", body=as_json({"input": "[INST] <s>" * 100_000})),
    Attack(name="open python tags", target="sandbox", path="/get_observation", body=action("<python>" * 20_000)),
    Attack(name="open input blocks", target="sandbox", path="/get_observation", body=action("```input\n" * 50_000)),
    Attack(
        name="open blocks after a program",
        target="sandbox",
        path="/get_observation",
        body=action("<python>1</python>" + "```python```input\n" * 20_000),
    ),
    # Amplification.
    Attack(
        name="a template that repeats its sample",
        path=GRADERS,
        body=grader("{{sample.output_text}}" * 20_000, sample="x" * 100_000),
    ),
    Attack(
        name="400 questions about 10 MB",
        path="/v1/decisions",
        body=as_json({"model": "tirjudge-tiny", "input": "x" * 10 * MB, "questions": [QUESTION] * 400}),
    ),
    Attack(
        name="6 questions about 10 MB",
        path="/v1/decisions",
        body=as_json({"model": "tirjudge-tiny", "input": "x" * 10 * MB, "questions": [QUESTION] * 6}),
    ),
    Attack(
        name="400 questions about a state of 10 MB",
        path="/v1/systemone",
        body=as_json({"state": {"s": "x" * 10 * MB}, "questions": {f"q{n}": {"type": "noul"} for n in range(400)}}),
    ),
    Attack(
        name="all pairs of 600 responses",
        path="/compare?strategy=all_pairs",
        body=as_json(
            {
                "conversation_history": [{"role": "user", "content": "p"}],
                "response_objs": [rollout(answer) for answer in ANSWERS],
            }
        ),
    ),
    Attack(
        name="all pairs of 180 responses",
        path="/v1/rerank",
        body=as_json({"prompt": "p", "responses": ANSWERS[:180], "method": "all_pairs"}),
    ),
    Attack(
        name="4096 items of four responses",
        path="/v1/reward",
        body=as_json({"items": [{"prompt": f"p{n}", "responses": list("abcd")} for n in range(4096)]}),
    ),
    Attack(
        name="a batch of 4096 requests",
        path="/v1/judge/batch",
        body=as_json({"requests": [POINTWISE | {"prompt": f"p{n}"} for n in range(4096)]}),
    ),
    Attack(
        name="1024 responses with 16 votes",
        path="/v1/judge",
        body=as_json(POINTWISE | {"responses": [f"r{n}" for n in range(1024)], "votes": 16}),
    ),
    Attack(name="a prompt of 15 MB", path="/v1/judge", body=as_json(POINTWISE | {"prompt": "x" * 15 * MB})),
    Attack(
        name="a prompt of 15 MB in Chinese",
        path="/v1/judge",
        body=lambda: json.dumps(POINTWISE | {"prompt": "\u6f22" * 5 * MB}, ensure_ascii=False).encode(),
    ),
    Attack(
        name="JSON of five million lists",
        path="/verify",
        body=lambda: b'{"response": {"a": [' + b"[]," * 5 * MB + b"[]]}}",
    ),
    Attack(
        name="JSON of 500,000 lists",
        path="/verify",
        body=lambda: b'{"responses_create_params": {}, "response": {"a": [' + b"[]," * 500_000 + b"[]]}}",
    ),
    Attack(
        name="sparse files of four programs",
        target="sandbox",
        path="/v1/execute/batch",
        body=as_json({"programs": [SPARSE] * 4}),
    ),
    Attack(
        name="800 programs that print 64 KiB of zeros",
        target="sandbox",
        path="/v1/execute/batch",
        body=as_json({"programs": [{"code": "print('\\0' * 65535)"}] * 800}),
    ),
    # Connections.
    Attack(name="a flood of headers", kind="header_flood"),
    Attack(name="idle connections", kind="idle_connections"),
    Attack(name="bodies that never end", path="/v1/judge", kind="unfinished_bodies"),
    Attack(name="a flood of headers at the sandbox", target="sandbox", kind="header_flood"),
    Attack(name="idle connections at the sandbox", target="sandbox", kind="idle_connections"),
)


def main(
    seconds: Annotated[float, typer.Option(help="Of each attack.")] = 5.0,
    only: Annotated[str | None, typer.Option(help="Text in the names of the attacks to run; default: all.")] = None,
    num_idle: Annotated[int, typer.Option(help="Connections of the attacks that hold them open.")] = 500,
    out: Annotated[Path | None, typer.Option(help="File for the result; default: printed only.")] = None,
) -> None:
    """Attack, measure, and print the result as JSON."""
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or None,
        "python": platform.python_version(),
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average_before": os.getloadavg(),
        "seconds_each": seconds,
        "target_p99_ms": TARGET_P99_MS,
    }
    chosen = [attack for attack in ATTACKS if only is None or only in attack.name]
    with started_servers() as addresses:
        result["attacks"] = [
            measure(attack, address=addresses[attack.target], seconds=seconds, num_idle=num_idle) for attack in chosen
        ]
    result["load_average_after"] = os.getloadavg()
    result["num_over_target"] = sum(row["p99_ms"] > TARGET_P99_MS for row in result["attacks"])
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n")


Address = tuple[str, int]


@contextmanager
def started_servers() -> Iterator[dict[Target, Address]]:
    """A judge and a sandbox service, each on a port of its own."""
    with TemporaryDirectory() as state, ExitStack() as stack:
        judge = stack.enter_context(started(["serve", "--port", "0"], state=state))
        sandbox = stack.enter_context(started(["sandbox", "serve", "--port", "0"], state=state))
        yield {"judge": address_of(judge.split()[4]), "sandbox": address_of(json.loads(sandbox)["url"])}


@contextmanager
def started(arguments: list[str], *, state: str) -> Iterator[str]:
    """A command of ours; gives its first line, which says that it is ready."""
    command = [sys.executable, "-c", "from tirjudge.cli import main; main()", *arguments]
    environment = os.environ | {"XDG_STATE_HOME": state}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"tirjudge {' '.join(arguments)} ended with status {process.wait()}")
        try:
            yield line
        finally:
            process.kill()  # after an attack it may take long to end by itself


def address_of(url: str) -> Address:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def measure(attack: Attack, *, address: Address, seconds: float, num_idle: int) -> dict[str, Any]:
    """One attack, and what `/health` took meanwhile."""
    wait_until_quiet(address)
    attacker = Attacker(attack, address=address, num_idle=num_idle)
    with asked_for_health(address) as asking:
        ends_at = monotonic() + seconds
        while monotonic() < ends_at:
            attacker.strike(timeout_s=max(0.1, ends_at - monotonic()))
        attacker.close()
        latencies = asking()
    row = {"name": attack.name, "target": attack.target, **attacker.seen(), **spread(latencies)}
    print(f"{attack.name}: p99 {row['p99_ms']} ms, {row['answers']}", file=sys.stderr, flush=True)
    return row


@dataclass(slots=True)
class Attacker:
    """One attack under way."""

    attack: Attack
    address: Address
    num_idle: int
    answers: Counter[str] = field(default_factory=Counter)
    """Status, or what came instead -> how often."""
    num_bytes: int = 0
    """Sent."""
    _request: bytes = b""
    _connection: socket.socket | None = None
    _held: list[socket.socket] = field(default_factory=list)

    def strike(self, *, timeout_s: float) -> None:
        """Once more; what the server answers, or that it hangs up, is counted."""
        try:
            match self.attack.kind:
                case "none":
                    sleep(timeout_s)
                case "requests":
                    self._post(timeout_s)
                case "header_flood":
                    self._flood(timeout_s)
                case "idle_connections" | "unfinished_bodies":
                    self._hold(timeout_s)
        except TimeoutError:
            self._count("no answer in time")
        except OSError as error:
            self._count(type(error).__name__)
            sleep(0.01)

    def close(self) -> None:
        for connection in [*self._held, *([self._connection] if self._connection is not None else [])]:
            connection.close()

    def seen(self) -> dict[str, Any]:
        return {"mb_sent": round(self.num_bytes / MB, 1), "answers": dict(self.answers)}

    def _count(self, what: str) -> None:
        self.answers[what] += 1
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self, timeout_s: float) -> socket.socket:
        if self._connection is None:
            self._connection = socket.create_connection(self.address, timeout=timeout_s)
        self._connection.settimeout(timeout_s)
        return self._connection

    def _send(self, connection: socket.socket, content: bytes) -> None:
        connection.sendall(content)
        self.num_bytes += len(content)

    def _post(self, timeout_s: float) -> None:
        if not self._request:
            body = self.attack.body()
            head = f"POST {self.attack.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            self._request = head.encode() + body
        connection = self._connected(timeout_s)
        self._send(connection, self._request)
        self.answers[read_answer(connection)] += 1

    def _flood(self, timeout_s: float) -> None:
        connection = self._connected(timeout_s)
        self._send(connection, b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        lines = b"x-a: b\r\n" * 8192
        for _ in range(1000):
            self._send(connection, lines)
        self._count("took 64 MB of headers")

    def _hold(self, timeout_s: float) -> None:
        if len(self._held) >= self.num_idle:
            sleep(min(timeout_s, 0.1))
            return
        connection = socket.create_connection(self.address, timeout=timeout_s)
        self._held.append(connection)
        if self.attack.kind == "unfinished_bodies":
            head = f"POST {self.attack.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
            self._send(connection, head.encode() + b"{")
        self.answers["held"] += 1


def read_answer(connection: socket.socket) -> str:
    """The status of an answer, which is read to its end."""
    with connection.makefile("rb") as stream:
        status = stream.readline().split(b" ")
        if len(status) < 2:
            raise ConnectionResetError
        length, is_chunked = 0, False
        while (line := stream.readline().strip().lower()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name == b"content-length" else length
            is_chunked |= name == b"transfer-encoding"
        if is_chunked:
            while size := int(stream.readline(), 16):
                stream.read(size + 2)
            stream.readline()
        stream.read(length)
    return status[1].decode()


def wait_until_quiet(address: Address) -> None:
    """Until the server has done with the last attack.

    Raises:
        SystemExit: it does not.
    """
    give_up_at = monotonic() + QUIET_WITHIN_S
    while monotonic() < give_up_at:
        latency = asyncio.run(health_s(address))
        if latency * 1000 < QUIET_MS:
            return
        sleep(0.1)
    print(f"/health of {address} stayed slow; going on", file=sys.stderr)


@contextmanager
def asked_for_health(address: Address) -> Iterator[Callable[[], list[float]]]:
    """Another process asks for `/health` inside of the block; the function that this gives ends that, and gives the seconds
    of each answer."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    asking = context.Process(target=ask_until_told, args=(address, theirs), daemon=True)
    asking.start()
    assert ours.recv() == "ready"

    def end() -> list[float]:
        ours.send("end")
        return ours.recv()

    try:
        yield end
    finally:
        asking.join(UNANSWERED_S)
        asking.kill()


def ask_until_told(address: Address, connection: Connection) -> None:
    connection.send("ready")
    connection.send(asyncio.run(health_latencies(address, connection)))


async def health_latencies(address: Address, connection: Connection) -> list[float]:
    """Seconds of each answer, asked for at even times however long the others take."""
    asked: list[asyncio.Task[float]] = []
    began = perf_counter()
    while not connection.poll():
        asked.append(asyncio.create_task(health_s(address)))
        await asyncio.sleep(max(0.0, began + len(asked) * ASK_EVERY_S - perf_counter()))
    return list(await asyncio.gather(*asked))


async def health_s(address: Address) -> float:
    """Seconds until `/health` has answered 200; `UNANSWERED_S` if it does not."""
    began = perf_counter()
    try:
        async with asyncio.timeout(UNANSWERED_S):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                status = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return UNANSWERED_S
    return perf_counter() - began if b" 200 " in status else UNANSWERED_S


def spread(latencies: list[float]) -> dict[str, Any]:
    """In milliseconds."""
    cuts = quantiles(latencies, n=100)
    return {
        "num_asked": len(latencies),
        "num_unanswered": sum(latency >= UNANSWERED_S for latency in latencies),
        "p50_ms": round(cuts[49] * 1000, 1),
        "p99_ms": round(min(cuts[98], max(latencies)) * 1000, 1),
        "max_ms": round(max(latencies) * 1000, 1),
    }


if __name__ == "__main__":
    typer.run(main)
