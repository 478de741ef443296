"""Measure the latency of `/health` while one connection sends requests that are expensive for the server.

    python benchmarks/health_under_attack.py --out benchmarks/results/health_under_attack.json

Starts `tirjudge serve` with the bundled judge and `tirjudge sandbox serve`, with default settings and a temporary state
folder. Each attack repeats for some seconds. Meanwhile another process requests `/health` every 20 ms, each time on a new
connection, without waiting for the previous response: if the server blocks for one second, fifty requests are delayed, and
all of them count. A request without a response within ten seconds counts as ten seconds, and as unanswered.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from statistics import quantiles
from time import monotonic, perf_counter, sleep
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer
from reporting import TIRJUDGE, Out, report
from server_process import started

ASK_EVERY_S = 0.02
"""Seconds between two requests to `/health`."""
UNANSWERED_S = 10.0
"""Timeout of a request to `/health`."""
TARGET_P99_MS = 250.0
"""The p99 of `/health` should be below this during every attack."""
QUIET_MS, QUIET_WITHIN_S = 50.0, 60.0
"""The next attack starts when `/health` answers within `QUIET_MS`, or after `QUIET_WITHIN_S`."""

SANDBOX = ("sandbox", "serve", "--port", "0")

Target = Literal["judge", "sandbox"]


@dataclass(frozen=True, slots=True)
class ServiceAttack:
    """A request that is repeated on one connection, or connections that are held open."""

    name: str
    path: str = "/health"
    body: Callable[[], bytes] = bytes
    """Makes the body, once, when the attack starts."""
    _: KW_ONLY
    target: Target = "judge"
    kind: Literal["requests", "header_flood", "idle_connections", "unfinished_bodies", "none"] = "requests"


def as_json(value: Any) -> Callable[[], bytes]:
    """Return a function that makes a JSON body."""
    return lambda: json.dumps(value).encode()


def chat(content: Callable[[], str]) -> Callable[[], bytes]:
    """Return a function that makes a chat request."""
    return lambda: json.dumps({"model": "tirjudge-tiny", "messages": [{"role": "user", "content": content()}]}).encode()


def grader(template: str, *, sample: str = "x") -> Callable[[], bytes]:
    """Return a function that makes a grader request."""
    check = {"type": "string_check", "name": "g", "operation": "eq", "input": template, "reference": "x"}
    return as_json({"grader": check, "model_sample": sample})


def action(text: str) -> Callable[[], bytes]:
    """Return a function that makes a request in verl-tool's format."""
    return as_json({"trajectory_ids": ["t"], "actions": [text]})


def questions(number: int) -> Callable[[], bytes]:
    """Return a function that makes a decisions request with 10 MB of input."""
    question = {"type": "predicate", "instructions": "Is it so?"}
    return as_json({"model": "tirjudge-tiny", "input": "x" * 10 * MB, "questions": [question] * number})


ANSWERS = [f"answer {number}" for number in range(600)]
MB = 1_000_000
CHAT, GRADERS = "/v1/chat/completions", "/v1/fine_tuning/alpha/graders/run"
OBSERVE, PROGRAMS = "/get_observation", "/v1/execute/batch"
FENCED = "".join(f"{heading}:\n```\n" * 60 for heading in ("Question", "Reference answer", "Response"))
USER, ANSWER_OF_A = "[User Question]\n", "[The Start of Assistant A's Answer"
GOLD, SCORE = "GOLD SOLUTION:\n", "### Final Score:"
PROGRAM, OPEN_BLOCKS = "<python>1</python>", "```python```input\n"
REPEATED = "{{sample.output_text}}"
POINTWISE = {"mode": "pointwise", "prompt": "Use no commas.", "responses": ["It rains."]}
ABOUT_A_STATE = {"state": {"s": "x" * 10 * MB}, "questions": {f"q{n}": {"type": "noul"} for n in range(400)}}
COMPARISON = {
    "conversation_history": [{"role": "user", "content": "p"}],
    "response_objs": [
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": answer}]}]} for answer in ANSWERS
    ],
}
SPARSE = {
    "code": "open('f', 'wb').truncate(15 << 20)",
    "fetch": ["f"],
    "limits": {"file_mb": 16, "scratch_mb": 64, "fetch_bytes": 15 << 20},
}

ATTACKS = (
    ServiceAttack("no attack", kind="none"),
    ServiceAttack("no attack, sandbox", target="sandbox", kind="none"),
    ServiceAttack("honest judgments", "/v1/judge", as_json(POINTWISE)),
    # Parsing.
    ServiceAttack("nested markers in a chat", CHAT, chat(lambda: FENCED + "`")),
    ServiceAttack("answer markers in a chat", CHAT, chat(lambda: USER * 20_000 + ANSWER_OF_A * 20_000)),
    ServiceAttack("headings of a GOLD prompt", CHAT, chat(lambda: GOLD * 300 + "PREDICTED SOLUTION:\n" * 300 + SCORE)),
    ServiceAttack("open placeholders in a grader", GRADERS, grader("{{" * 18_000)),
    ServiceAttack("brackets of a placeholder", GRADERS, grader("{{item" + "[0]" * 100_000 + "}}")),
    ServiceAttack("unclosed turns", "/get_reward", as_json({"query": "<|im_start|>user\n" * 60_000})),
    ServiceAttack("unclosed think tags", "/classify", as_json({"input": "<think>" * 150_000})),
    ServiceAttack("unclosed instruction tags", "/classify", as_json({"input": "[INST] <s>" * 100_000})),
    ServiceAttack("open python tags", OBSERVE, action("<python>" * 20_000), target="sandbox"),
    ServiceAttack("open input blocks", OBSERVE, action("```input\n" * 50_000), target="sandbox"),
    ServiceAttack("open blocks after a program", OBSERVE, action(PROGRAM + OPEN_BLOCKS * 20_000), target="sandbox"),
    # Amplification.
    ServiceAttack("a template that repeats its sample", GRADERS, grader(REPEATED * 20_000, sample="x" * 100_000)),
    ServiceAttack("400 questions about 10 MB", "/v1/decisions", questions(400)),
    ServiceAttack("6 questions about 10 MB", "/v1/decisions", questions(6)),
    ServiceAttack("400 questions about a state of 10 MB", "/v1/systemone", as_json(ABOUT_A_STATE)),
    ServiceAttack("all pairs of 600 responses", "/compare?strategy=all_pairs", as_json(COMPARISON)),
    ServiceAttack(
        "all pairs of 180 responses",
        "/v1/rerank",
        as_json({"prompt": "p", "responses": ANSWERS[:180], "method": "all_pairs"}),
    ),
    ServiceAttack(
        "4096 items of four responses",
        "/v1/reward",
        as_json({"items": [{"prompt": f"p{n}", "responses": list("abcd")} for n in range(4096)]}),
    ),
    ServiceAttack(
        "a batch of 4096 requests",
        "/v1/judge/batch",
        as_json({"requests": [POINTWISE | {"prompt": f"p{n}"} for n in range(4096)]}),
    ),
    ServiceAttack(
        "1024 responses with 16 votes",
        "/v1/judge",
        as_json(POINTWISE | {"responses": [f"r{n}" for n in range(1024)], "votes": 16}),
    ),
    ServiceAttack("a prompt of 15 MB", "/v1/judge", as_json(POINTWISE | {"prompt": "x" * 15 * MB})),
    ServiceAttack(
        "a prompt of 15 MB in Chinese",
        "/v1/judge",
        lambda: json.dumps(POINTWISE | {"prompt": "\u6f22" * 5 * MB}, ensure_ascii=False).encode(),
    ),
    ServiceAttack(
        "JSON of five million lists", "/verify", lambda: b'{"response": {"a": [' + b"[]," * 5 * MB + b"[]]}}"
    ),
    ServiceAttack(
        "JSON of 500,000 lists",
        "/verify",
        lambda: b'{"responses_create_params": {}, "response": {"a": [' + b"[]," * 500_000 + b"[]]}}",
    ),
    ServiceAttack("sparse files of four programs", PROGRAMS, as_json({"programs": [SPARSE] * 4}), target="sandbox"),
    ServiceAttack(
        "800 programs that print 64 KiB of zeros",
        PROGRAMS,
        as_json({"programs": [{"code": "print('\\0' * 65535)"}] * 800}),
        target="sandbox",
    ),
    # Connections.
    ServiceAttack("a flood of headers", kind="header_flood"),
    ServiceAttack("idle connections", kind="idle_connections"),
    ServiceAttack("bodies that never end", "/v1/judge", kind="unfinished_bodies"),
    ServiceAttack("a flood of headers at the sandbox", target="sandbox", kind="header_flood"),
    ServiceAttack("idle connections at the sandbox", target="sandbox", kind="idle_connections"),
)


def main(
    seconds: Annotated[float, typer.Option(help="Seconds per attack.")] = 5.0,
    only: Annotated[str, typer.Option(help="Run only attacks whose names contain this text. Default: all.")] = "",
    num_idle: Annotated[int, typer.Option(help="Connections that the attacks hold open.")] = 500,
    out: Out = None,
) -> None:
    """Attack, measure, and print the result as JSON."""
    head = {"load_average_before": os.getloadavg(), "seconds_each": seconds}
    rows = []
    spawn = multiprocessing.get_context("spawn")
    with started_servers() as addresses, ProcessPoolExecutor(1, mp_context=spawn) as asker:
        for attack in ATTACKS:
            if only in attack.name:
                address = addresses[attack.target]
                wait_until_quiet(address, asker=asker)
                asking = asker.submit(ask_for_health, address, seconds)
                with closing(Attacker(attack, address, num_idle)) as attacker:
                    attacker.run(seconds)
                row = spread(asking.result())
                rows.append({"name": attack.name, "target": attack.target} | attacker.seen() | row)
                print(f"{attack.name}: p99 {row['p99_ms']} ms", file=sys.stderr, flush=True)
    num_over = sum(row["p99_ms"] > TARGET_P99_MS for row in rows)
    tail = {"load_average_after": os.getloadavg(), "target_p99_ms": TARGET_P99_MS, "num_over_target": num_over}
    report(head | {"attacks": rows} | tail, out)


Address = tuple[str, int]


@contextmanager
def started_servers() -> Iterator[dict[Target, Address]]:
    """Start a server and a sandbox service, and yield their addresses."""
    with started(*TIRJUDGE, "serve", "--port", "0") as judge, started(*TIRJUDGE, *SANDBOX) as sandbox:
        yield {"judge": address_of(judge.url), "sandbox": address_of(sandbox.url)}


def address_of(url: str) -> Address:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


@dataclass(slots=True)
class Attacker:
    """Runs one attack."""

    attack: ServiceAttack
    address: Address
    num_idle: int
    answers: Counter[str] = field(default_factory=Counter)
    """HTTP status or kind of failure -> how often it occurred."""
    num_bytes: int = 0
    """Bytes sent."""
    _body: bytes = b""
    _connection: http.client.HTTPConnection | None = None
    _held: list[socket.socket] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        """Repeat the attack for `seconds`, and count responses and failures."""
        strike = {"requests": self._post, "header_flood": self._flood}.get(self.attack.kind, self._hold)
        ends_at = monotonic() + seconds
        while (left_s := ends_at - monotonic()) > 0:
            try:
                strike(max(0.1, left_s))
            except TimeoutError:
                self._end("no answer in time")
            except (OSError, http.client.HTTPException) as error:
                self._end(type(error).__name__)
                sleep(0.01)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._held:
            connection.close()
        if self._connection is not None:
            self._connection.close()

    def seen(self) -> dict[str, Any]:
        """Return what was sent and received."""
        return {"mb_sent": round(self.num_bytes / MB, 1), "answers": dict(self.answers)}

    def _end(self, what: str) -> None:
        self.answers[what] += 1
        if self._connection is not None:
            self._connection.close()

    def _post(self, timeout_s: float) -> None:
        self._body = self._body or self.attack.body()
        connection = self._connection = self._connection or http.client.HTTPConnection(*self.address)
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request("POST", self.attack.path, self._body, {"content-length": str(len(self._body))})
        self.num_bytes += len(self._body)
        response = connection.getresponse()
        response.read()
        self.answers[str(response.status)] += 1

    def _flood(self, timeout_s: float) -> None:
        with socket.create_connection(self.address, timeout=timeout_s) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
            for _ in range(1000):
                connection.sendall(b"x-a: b\r\n" * 8192)
                self.num_bytes += 8 * 8192
        self.answers["accepted 64 MB of headers"] += 1

    def _hold(self, timeout_s: float) -> None:
        if self.attack.kind == "none" or len(self._held) >= self.num_idle:
            sleep(min(timeout_s, 0.1))
            return
        self._held.append(socket.create_connection(self.address, timeout=timeout_s))
        if self.attack.kind == "unfinished_bodies":
            head = f"POST {self.attack.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n"
            self._held[-1].sendall(head.encode() + b"{")
        self.answers["held"] += 1


def wait_until_quiet(address: Address, *, asker: ProcessPoolExecutor) -> None:
    """Wait until the server has finished the work of the previous attack."""
    give_up_at = monotonic() + QUIET_WITHIN_S
    while monotonic() < give_up_at:
        if max(asker.submit(ask_for_health, address, ASK_EVERY_S).result()) * 1000 < QUIET_MS:
            return
        sleep(0.1)
    print(f"/health of {address} is still slow; continuing", file=sys.stderr)


def ask_for_health(address: Address, seconds: float) -> list[float]:
    """Return the latencies of requests sent at a fixed rate. Runs in another process."""

    async def ask() -> list[float]:
        asked: list[asyncio.Task[float]] = []
        began = perf_counter()
        while perf_counter() < began + seconds:
            asked.append(asyncio.create_task(health_s(address)))
            await asyncio.sleep(max(0.0, began + len(asked) * ASK_EVERY_S - perf_counter()))
        return list(await asyncio.gather(*asked))

    return asyncio.run(ask())


async def health_s(address: Address) -> float:
    """Return the seconds until `/health` responds with status 200, or `UNANSWERED_S` after any other status or a failure."""
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
    """Return percentiles in milliseconds of latencies given in seconds."""
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
