"""One engine with continuous batching and a prefix cache, step by step.

Requests join and leave between steps, never within one. Steps that are alike (nobody joins, nobody ends, no prompt is
computed) are taken together, and an arrival cuts such a run off at the end of the step that it falls into, so the times
are those of single steps at a fraction of their number.

A sequence is admitted when there is room for all that it will become. An engine that does not know this admits more, and
takes some of them back; the room for sequences is the same.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from tirjudge_server.planning.calendar import Calendar
from tirjudge_server.planning.steps import StepCost


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What one engine takes."""

    max_sequences: int
    """In the batch."""
    kv_tokens: int
    """In the cache, of sequences in the batch and of those that may come back."""
    prefill_tokens: int
    """Computed in one step, those of the sequences that decode included."""
    block_tokens: int = 16
    """A cached prefix is found again up to a whole number of these."""
    shared_prefix_tokens: int = 0
    """Begin every prompt, and are always in the cache."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One turn on its way through an engine."""

    session: int
    prompt_tokens: int
    output_tokens: int
    done: Callable[[], None]
    is_follow_up: bool = False
    """Not the first of its session: goes ahead of those that are."""
    num_computed: int = 0
    """Of the prompt, the cached ones included."""
    room: int = 0
    """In the cache, while it runs."""
    owner: object = None
    """Whose turn it is, for whoever has to ask again."""


class BatchedEngine:
    """Turns in, callbacks out.

    Raises:
        ValueError: from `submit`, a sequence that can never fit.
    """

    def __init__(self, calendar: Calendar, *, cost: StepCost, limits: EngineLimits) -> None:
        self._calendar, self._cost, self._limits = calendar, cost, limits
        self._follow_ups: deque[Job] = deque()
        self._new: deque[Job] = deque()
        self._prefilling: deque[Job] = deque()
        self._decoding: list[tuple[int, int, Job]] = []
        """Heap of (step at which it ends, number, job)."""
        self._cached: OrderedDict[int, int] = OrderedDict()
        """Session -> tokens that its last turn left, the longest unused first."""
        self._num_cached_tokens = 0
        self._num_reserved = 0
        self._context_tokens = 0
        """Of all that decode."""
        self._step = 0
        self._num_entered = 0
        self._version = 0
        """Of the announced end of a run of steps."""
        self._began: float | None = None
        """None: no run of steps is under way."""
        self._run_steps = 0
        self._first_s = self._growth_s = 0.0
        """Seconds of the first step of the run, and by how much each further one is longer than the one before."""
        self._chunks: list[tuple[Job, int]] = []
        self._is_ending = False
        self.is_up = True
        self.busy_s = 0.0
        self.sequence_s = 0.0
        """Seconds times sequences in the batch."""
        self.num_decoded = 0
        self.num_prompt_tokens = 0
        self.num_prefix_tokens = 0
        """Prompt tokens that were found in the cache."""

    def submit(self, job: Job) -> None:
        """Put a turn into the queue."""
        if self._room_for(job) > self._limits.kv_tokens:
            raise ValueError(
                f"a sequence of {job.prompt_tokens} + {job.output_tokens} tokens never fits into a cache of "
                f"{self._limits.kv_tokens}"
            )
        (self._follow_ups if job.is_follow_up else self._new).append(job)
        if self._began is None and not self._is_ending:
            self._begin()
        else:
            self._cut_run()

    @property
    def num_present(self) -> int:
        """Turns in the batch and in the queue."""
        return len(self._follow_ups) + len(self._new) + len(self._prefilling) + len(self._decoding)

    def fail(self) -> list[Job]:
        """Lose everything; the turns that were here, each to be begun again elsewhere."""
        lost = [*self._prefilling, *(job for _, _, job in self._decoding), *self._follow_ups, *self._new]
        for queue in (self._prefilling, self._decoding, self._follow_ups, self._new, self._cached, self._chunks):
            queue.clear()
        self._num_cached_tokens = self._num_reserved = self._context_tokens = 0
        self._version += 1
        self._began, self.is_up = None, False
        return lost

    def restart(self) -> None:
        """Take turns again, with an empty cache."""
        self.is_up = True

    def _room_for(self, job: Job) -> int:
        block = self._limits.block_tokens
        return -(-(job.prompt_tokens + job.output_tokens) // block) * block

    def _admit(self) -> None:
        """From the queue into the batch, while there is room; follow-ups first."""
        while len(self._prefilling) + len(self._decoding) < self._limits.max_sequences:
            queue = self._follow_ups or self._new
            if not queue:
                return
            room = self._room_for(queue[0])
            if self._num_reserved + room > self._limits.kv_tokens:
                return
            self._join(queue.popleft(), room=room)

    def _join(self, job: Job, *, room: int) -> None:
        block, held = self._limits.block_tokens, self._cached.pop(job.session, 0)
        self._num_cached_tokens -= held
        found = max(held, self._limits.shared_prefix_tokens) // block * block
        job.num_computed, job.room = min(found, job.prompt_tokens - 1), room
        self._num_reserved += room
        while self._num_reserved + self._num_cached_tokens > self._limits.kv_tokens:
            self._num_cached_tokens -= self._cached.popitem(last=False)[1]
        self.num_prompt_tokens += job.prompt_tokens
        self.num_prefix_tokens += job.num_computed
        self._prefilling.append(job)

    def _begin(self) -> None:
        """A run of steps that are alike, if there is anything to do."""
        self._admit()
        num = len(self._decoding)
        if self._prefilling:
            self._run_steps, self._chunks = 1, self._next_chunks(self._limits.prefill_tokens - num)
        elif num:
            self._run_steps, self._chunks = self._decoding[0][0] - self._step, []
        else:
            return
        self._first_s = self._cost.decode_s(num_sequences=num, context_tokens=self._context_tokens) + sum(
            self._cost.prefill_s(num_tokens=chunk, start=job.num_computed) for job, chunk in self._chunks
        )
        self._growth_s = num * self._cost.per_context_token_s
        self._began = self._calendar.now
        self._announce()

    def _seconds(self, steps: int) -> float:
        """Of the first so many steps of the run."""
        return steps * self._first_s + self._growth_s * steps * (steps - 1) / 2

    def _steps_begun(self, seconds: float) -> int:
        """How many steps of the run have begun so long after its beginning: the last one is being computed."""
        half = self._first_s - self._growth_s / 2
        if self._growth_s * seconds < 1e-9 * half * half:
            return int(seconds / self._first_s) + 1
        return int((math.sqrt(half * half + 2 * self._growth_s * seconds) - half) / self._growth_s) + 1

    def _next_chunks(self, budget: int) -> list[tuple[Job, int]]:
        """What of which prompt the next step computes, oldest first; at least one token."""
        chunks, left = [], max(1, budget)
        for job in self._prefilling:
            chunk = min(left, job.prompt_tokens - job.num_computed)
            chunks.append((job, chunk))
            left -= chunk
            if left <= 0:
                break
        return chunks

    def _announce(self) -> None:
        assert self._began is not None
        self._version += 1
        version = self._version
        self._calendar.at(self._began + self._seconds(self._run_steps), lambda: self._end(version))

    def _cut_run(self) -> None:
        """End the run after the step that is being computed, if somebody could join."""
        is_full = len(self._decoding) >= self._limits.max_sequences
        if self._began is None or self._run_steps <= 1 or is_full or self._first_s <= 0:
            return
        head = (self._follow_ups or self._new)[0]
        if self._num_reserved + self._room_for(head) > self._limits.kv_tokens:
            return
        steps = self._steps_begun(self._calendar.now - self._began)
        if steps < self._run_steps:
            self._run_steps = steps
            self._announce()

    def _end(self, version: int) -> None:
        if version != self._version or self._began is None:
            return
        seconds, num = self._seconds(self._run_steps), len(self._decoding)
        self.busy_s += seconds
        self.sequence_s += seconds * (num + len(self._prefilling))
        self.num_decoded += self._run_steps * num
        self._step += self._run_steps
        self._context_tokens += self._run_steps * num
        self._began, self._is_ending = None, True
        finished = self._take_finished()
        for job, chunk in self._chunks:
            job.num_computed += chunk
        while self._prefilling and self._prefilling[0].num_computed >= self._prefilling[0].prompt_tokens:
            finished += self._start_decoding(self._prefilling.popleft())
        for job in finished:
            job.done()
        self._is_ending = False
        self._begin()

    def _take_finished(self) -> list[Job]:
        finished = []
        while self._decoding and self._decoding[0][0] <= self._step:
            job = heappop(self._decoding)[2]
            self._context_tokens -= job.prompt_tokens + job.output_tokens
            self._leave(job)
            finished.append(job)
        return finished

    def _start_decoding(self, job: Job) -> list[Job]:
        """The step that computed the end of a prompt gave the first token too."""
        self.num_decoded += 1
        if job.output_tokens <= 1:
            self._leave(job)
            return [job]
        self._num_entered += 1
        self._context_tokens += job.prompt_tokens + 1
        heappush(self._decoding, (self._step + job.output_tokens - 1, self._num_entered, job))
        return []

    def _leave(self, job: Job) -> None:
        self._num_reserved -= job.room
        held = job.prompt_tokens + job.output_tokens
        self._cached[job.session] = held
        self._num_cached_tokens += held
        while self._num_reserved + self._num_cached_tokens > self._limits.kv_tokens:
            self._num_cached_tokens -= self._cached.popitem(last=False)[1]

    def drop(self, session: int) -> None:
        """Forget a session that does not come back; it would be the next to go, and only takes part in the order."""
        self._num_cached_tokens -= self._cached.pop(session, 0)
