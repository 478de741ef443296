"""What the sandbox's measurements look at on the host: canaries, and the footprint of a pool and of its programs."""

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


# ------------------------------------------------------------------------------------------------------------- footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What this process, and all below it, hold at a moment."""

    num_processes: int
    """Below this one, zombies too."""
    num_threads: int
    """Of this process."""
    num_fds: int
    """Of this process."""
    num_fds_below: int
    rss_mb: float
    """Of this process."""
    pss_below_mb: float | None
    """Of all below it, shared pages counted once; None where the kernel does not let us look."""
    num_mounts: int
    """In this process's namespace and in the others below it."""
    num_namespaces: int
    """That a process below holds, or a descriptor of one, beyond this process's own."""
    num_cgroups: int
    """Directories of control groups, of this process's pools."""

    @classmethod
    def now(cls, *, with_pss: bool = True) -> Footprint:
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
    """The processes below one; complete for orphans too where `adopt_orphans` was called."""
    return [process.pid for process in psutil.Process(pid).children(recursive=True)]


def adopt_orphans() -> None:
    """From now on a process below whose parent dies becomes a child of this one, so that it cannot get out of sight."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def reap_adopted() -> None:
    """Bury the dead among our children. Only for those that nobody else will: it takes their exit status away."""
    for child in psutil.Process().children():
        with contextlib.suppress(OSError):
            os.waitpid(child.pid, os.WNOHANG)


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time of processes and of all their children that ended."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(psutil.Process(pid).cpu_times()[:4])
    return total


def pss_mb(pids: Iterable[int]) -> float | None:
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            try:
                total += psutil.Process(pid).memory_full_info().pss
            except psutil.AccessDenied:
                return None
    return round(total / 2**20, 2)


def cgroups(pid: int) -> set[str]:
    """Directories of control groups that the pools of a process made: they carry its pid."""
    return {
        os.path.join(folder, name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(f"tirjudge-{pid}-")
    }


def private_mb(pids: Iterable[int]) -> float:
    """Memory that the processes share with nobody's file, MiB; quick."""
    total = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = psutil.Process(pid).memory_info()
            total += memory.rss - memory.shared
    return total / 2**20


def shared_memory_mb() -> float:
    """Of the whole machine: tmpfs, memory files, shared mappings."""
    return psutil.virtual_memory().shared / 2**20


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # it has just ended, or is not ours to look into
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
    """Each mount namespace once."""
    tables = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            tables[os.readlink(f"/proc/{pid}/ns/mnt")] = Path(f"/proc/{pid}/mountinfo").read_text().count("\n")
    return sum(tables.values())


# -------------------------------------------------------------------------------------------------------------- canaries


class Canaries:
    """Things of the host that attacks are told of, and that none may reach: a file, a process, sockets, a secret.

    Readable and reachable for everybody, so that nothing but the sandbox is in the way.
    """

    def __init__(self, *, uid: int | None = None) -> None:
        """Plants them.

        Args:
            uid: of the process and the file; None: ours.
        """
        self.tag = secrets.token_hex(6)
        self.secret = f"tirjudge-canary-{secrets.token_hex(12)}"
        os.environ["TIRJUDGE_CANARY"] = self.secret
        self.folder = Path(tempfile.mkdtemp(prefix="canary_"))
        self.folder.chmod(0o755)
        self.file = self.folder / "host.txt"
        self._content = f"CANARY-FILE {self.secret}\n"
        self.file.write_text(self._content)
        if uid is not None:
            os.chown(self.file, uid, uid)
        command = [getattr(sys, "_base_executable", None) or sys.executable, "-ISc", "input()"]
        if uid is not None:
            command = ["sleep", "1000000"]  # the interpreter may be out of the user's reach
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, user=uid, group=uid)
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
        """What stands for what in a case."""
        return {
            "FILE": str(self.file),
            "PID": str(self._process.pid),
            "PORT": str(self.port),
            "ABS": self.abstract_name,
            "SECRET": self.secret,
            "TAG": self.tag,
        }

    def touched(self, code: str = "") -> list[str]:
        """What was done to them, and to the host's files, since they were planted or last looked at.

        Args:
            code: of the program that ran: a new file on the host counts if its name is from there, or its owner is ours.
        """
        found = []
        if not self.file.exists() or self.file.read_text() != self._content or os.listdir(self.folder) != ["host.txt"]:
            found.append("the canary file was changed")
        if self._process.poll() is not None or "\nState:\tT" in self._proc("status"):
            found.append("the canary process was killed or stopped")
        elif self._proc("limits") != self._limits:
            found.append("the canary process has other limits")
        found += self._visitors()
        if _interpreter_state() != self._interpreter:
            found.append("the interpreter's files were changed")
            self._interpreter = _interpreter_state()
        files = _host_files()
        found += [f"a file on the host: {path}" for path in sorted(files - self._files) if _is_of_program(path, code)]
        self._files = files
        return found

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def _visitors(self) -> list[str]:
        found = []
        for name, listener in (("TCP", self._tcp), ("abstract", self._unix)):
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                found.append(f"somebody connected to the {name} canary")
        with contextlib.suppress(BlockingIOError):
            self._udp.recv(64)
            found.append("somebody sent to the UDP canary")
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        for listener in (self._tcp, self._udp, self._unix):
            listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        del os.environ["TIRJUDGE_CANARY"]


@contextlib.contextmanager
def planted_canaries(*, uid: int | None = None) -> Iterator[Canaries]:
    canaries = Canaries(uid=uid)
    try:
        yield canaries
    finally:
        canaries.close()


def _interpreter_state() -> list[object]:
    """Mode, size and time of the standard library's folders, and what lies in them."""
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
    """Others use this machine too: its name (up to the first digit) is from the program, or its owner is a program's."""
    stem = re.match(r"\D*", os.path.basename(path))
    named = stem is not None and len(stem[0]) >= 4 and stem[0] in code
    try:
        owner = os.lstat(path).st_uid
    except OSError:  # gone again
        return False
    return named or owner >= 200_000
