"""What the sandbox measurements observe on the host: the footprint of a pool and its programs, and canaries."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_WATCHED = [
    "/",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/run",
    "/dev",
    "/etc",
    "/home",
    "/root",
    "/opt",
    "/usr",
    "/usr/lib",
    "/var",
]
"""Folders in which a new file is a breach."""


# ------------------------------------------------------------------------------------------------------------- footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Resources that this process and its descendants hold at one moment."""

    num_processes: int
    """Descendants of this process, including zombies."""
    num_threads: int
    """Threads of this process."""
    num_fds: int
    """Open descriptors of this process."""
    num_fds_below: int
    """Open descriptors of the descendants."""
    rss_mb: float
    """Resident memory of this process, in MiB."""
    pss_below_mb: float | None
    """Memory of the descendants in MiB, with shared pages counted once. None: the kernel denies access."""
    num_mounts: int
    """Mounts in the mount namespaces of this process and its descendants."""
    num_namespaces: int
    """Namespaces that descendants are in or have descriptors of, without the namespaces of this process."""
    num_cgroups: int
    """Control group directories of this process's pools."""

    @classmethod
    def now(cls, *, with_pss: bool = True) -> Footprint:
        """Measure the resources now. `with_pss` measures `pss_below_mb` too, which is slow with many processes."""
        below = descendants(os.getpid())
        return cls(
            num_processes=len(below),
            num_threads=len(_entries("/proc/self/task")),
            num_fds=len(_entries("/proc/self/fd")),
            num_fds_below=sum(len(_entries(f"/proc/{pid}/fd")) for pid in below),
            rss_mb=round(psutil.Process().memory_info().rss / 2**20, 2),
            pss_below_mb=pss_mb(below) if with_pss else None,
            num_mounts=_num_mounts([os.getpid(), *below]),
            num_namespaces=len(_namespaces(below) - _namespaces([os.getpid()])),
            num_cgroups=len(cgroups(os.getpid())),
        )


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants. Orphans are included if `adopt_orphans` was called."""
    try:
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parent dies (a child subreaper, see prctl(2))."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def reap_adopted() -> None:
    """Reap zombie children. Call it only when no other code waits for a child: the exit statuses are lost."""
    for child in psutil.Process().children():
        with contextlib.suppress(OSError):
            os.waitpid(child.pid, os.WNOHANG)


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time of processes and of their ended children."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(psutil.Process(pid).cpu_times()[:4])
    return total


def pss_mb(pids: Iterable[int]) -> float | None:
    """Return the memory of processes in MiB, with shared pages counted once. None: the kernel denies access."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                total += psutil.Process(pid).memory_full_info().pss
            except psutil.AccessDenied:
                return None
    return round(total / 2**20, 2)


def cgroups(pid: int) -> set[str]:
    """Return the control group directories that the pools of a process created. Their names contain its pid."""
    return {
        os.path.join(folder, name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(f"tirjudge-{pid}-")
    }


def private_mb(pids: Iterable[int]) -> float:
    """Return the unshared memory of processes, in MiB. This is fast."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = psutil.Process(pid).memory_info()
            total += memory.rss - memory.shared
    return total / 2**20


def shared_memory_mb() -> float:
    """Return the shared memory of the whole machine in MiB: tmpfs, memory files and shared mappings."""
    return psutil.virtual_memory().shared / 2**20


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # the process has ended, or access is denied
        return []


def _namespaces(pids: Iterable[int]) -> set[str]:
    found = set()
    for pid in pids:
        for folder in ("ns", "fd"):
            for name in _entries(f"/proc/{pid}/{folder}"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/{folder}/{name}")
                    if re.fullmatch(r"(cgroup|ipc|mnt|net|pid|time|user|uts):\[\d+\]", target):
                        found.add(target)
    return found


def _num_mounts(pids: Iterable[int]) -> int:
    """Return the number of mounts, counting each mount namespace once."""
    tables = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            tables[os.readlink(f"/proc/{pid}/ns/mnt")] = Path(f"/proc/{pid}/mountinfo").read_text().count("\n")
    return sum(tables.values())


# -------------------------------------------------------------------------------------------------------------- canaries


class Canaries:
    """A file, a process, sockets and a secret on the host that no attack may reach.

    Attacks receive their names. Every user may read or reach them, so that only the sandbox stops an attack.
    """

    def __init__(self) -> None:
        self.tag = secrets.token_hex(6)
        self.secret = f"tirjudge-canary-{secrets.token_hex(12)}"
        os.environ["TIRJUDGE_CANARY"] = self.secret
        self.folder = Path(tempfile.mkdtemp(prefix="canary_"))
        self.folder.chmod(0o755)
        self.file = self.folder / "host.txt"
        self._content = f"CANARY-FILE {self.secret}\n"
        self.file.write_text(self._content)
        command = [getattr(sys, "_base_executable", None) or sys.executable, "-ISc", "input()"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self._limits = self._proc("limits")
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self.abstract_name = f"canary_{self.tag}"
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(f"\0{self.abstract_name}")
        self._unix.listen()
        for listener in (self._tcp, self._udp, self._unix):
            listener.setblocking(False)
        self._interpreter = _interpreter_state()
        self._files = _host_files()

    @property
    def values(self) -> dict[str, str]:
        """Placeholder in a case -> the value that replaces it."""
        return {
            "FILE": str(self.file),
            "PID": str(self._process.pid),
            "PORT": str(self.port),
            "ABS": self.abstract_name,
            "SECRET": self.secret,
            "TAG": self.tag,
        }

    def touched(self, code: str = "") -> list[str]:
        """Return what changed on the host since the previous call, one line per change.

        Args:
            code: Source of the programs that ran. A new file on the host counts if its name occurs in the code, or if its
                owner is a user of the sandbox.
        """
        found = []
        if not self.file.exists() or self.file.read_text() != self._content or os.listdir(self.folder) != ["host.txt"]:
            found.append("the canary file was changed")
        if self._process.poll() is not None or "\nState:\tT" in self._proc("status"):
            found.append("the canary process was killed or stopped")
        elif self._proc("limits") != self._limits:
            found.append("the resource limits of the canary process were changed")
        found += self._visitors()
        if _interpreter_state() != self._interpreter:
            found.append("the interpreter's files were changed")
            self._interpreter = _interpreter_state()
        files = _host_files()
        found += [
            f"a new file on the host: {path}" for path in sorted(files - self._files) if _is_of_program(path, code)
        ]
        self._files = files
        return found

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def _visitors(self) -> list[str]:
        found = []
        for name, listener in (("TCP", self._tcp), ("abstract", self._unix)):
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                found.append(f"a connection reached the {name} canary")
        with contextlib.suppress(BlockingIOError):
            self._udp.recv(64)
            found.append("a datagram reached the UDP canary")
        return found

    def close(self) -> None:
        """Remove the canaries."""
        self._process.kill()
        self._process.communicate()
        for listener in (self._tcp, self._udp, self._unix):
            listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        del os.environ["TIRJUDGE_CANARY"]


@contextlib.contextmanager
def planted_canaries() -> Iterator[Canaries]:
    """Plant canaries, and remove them after the block."""
    canaries = Canaries()
    try:
        yield canaries
    finally:
        canaries.close()


def _interpreter_state() -> list[object]:
    """Return metadata of the standard library, and the files that can load code at interpreter startup."""
    library = os.path.dirname(os.__file__)
    folders = [folder for folder in (library, f"{library}/site-packages", *sys.path) if os.path.isdir(folder)]
    files = [
        name for folder in {library, *folders} for name in os.listdir(folder) if name.endswith((".pth", "custom.py"))
    ]
    source = os.stat(os.__file__)
    return [sorted(files), source.st_mode, source.st_size, source.st_mtime, os.stat(library).st_mtime]


def _host_files() -> set[str]:
    return {os.path.join(folder, name) for folder in _WATCHED for name in _entries(folder)}


def _is_of_program(path: str, code: str) -> bool:
    """Whether a file was created by a program in the sandbox, and not by another process on this machine.

    True if the name up to the first digit occurs in the code, or if the owner is a user of the sandbox.
    """
    stem = re.match(r"\D*", os.path.basename(path))
    named = stem is not None and len(stem[0]) >= 4 and stem[0] in code
    try:
        owner = os.lstat(path).st_uid
    except OSError:  # the file is gone
        return False
    return named or owner >= 200_000
