"""Attacks by programs, and what they can see. The fixture checks that the pool is usable after each."""

import asyncio
import os
import socket
import subprocess
import sys
import textwrap

import pytest

from tirjudge.types import Outcome
from tirjudge_sandbox import SandboxPool


async def output(pool, code, *, limits=None, **bindings):
    """Run a program, check that it succeeds, and return its output."""
    result = await pool.run(textwrap.dedent(code), bindings=bindings, limits=limits)
    assert result.outcome is Outcome.OK, result
    return result.stdout.strip()


@pytest.fixture
def bystander():
    """A process outside the sandbox, which programs try to attack."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    assert process.poll() is None, "a program killed it"
    process.communicate()


# ------------------------------------------------------------------------------------------------------------------ files


async def test_host_files_cannot_be_read(pool, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the key is 1234")
    secret.chmod(0o644)
    code = """
        for path in (target, "/etc/passwd", "/etc/shadow", "/etc/hostname", "/usr/bin/env"):
            try:
                print("READ", path, open(path, "rb").read(9))
            except OSError as error:
                pass
        print("done")
    """
    assert await output(pool, code, target=str(secret)) == "done"


async def test_a_link_to_a_host_file_cannot_be_followed(pool, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the key is 1234")
    code = """
        import os
        try:
            os.symlink(target, "way_out")
            print(open("way_out").read())
        except OSError:
            print("held")
    """
    assert await output(pool, code, target=str(secret)) == "held"


async def test_nothing_outside_tmp_can_be_written(pool):
    code = """
        import os, sys
        places = ["/", "/etc", "/usr", "/dev", "/root", "/home", "/var/tmp", "/run", "/dev/shm", os.path.dirname(os.__file__)]
        for place in places:
            if os.path.realpath(place) == "/tmp":
                continue
            try:
                open(place + "/planted", "w")
                print("WROTE", place)
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"


async def test_the_interpreter_cannot_be_changed(pool):
    before = os.stat(os.__file__)
    code = """
        import os
        attempts = {
            "chmod": lambda: os.chmod(os.__file__, 0o777),
            "chmod by descriptor": lambda: os.fchmod(os.open(os.__file__, os.O_RDONLY), 0o777),
            "times": lambda: os.utime(os.__file__, (1, 1)),
            "truncate": lambda: os.truncate(os.__file__, 0),
            "truncate while reading": lambda: os.open(os.__file__, os.O_RDONLY | os.O_TRUNC),
            "rename": lambda: os.rename(os.__file__, os.__file__ + "x"),
            "unlink": lambda: os.unlink(os.__file__),
            "owner": lambda: os.chown(os.__file__, 1, 1),
            "attribute": lambda: os.setxattr(os.__file__, "user.planted", b"1"),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
                print("CHANGED", name)
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"
    after = os.stat(os.__file__)
    assert (after.st_mode, after.st_size, after.st_mtime) == (before.st_mode, before.st_size, before.st_mtime)


async def test_proc_and_sys_cannot_be_read(pool):
    code = """
        import glob
        for path in ("/proc/self/environ", "/proc/1/environ", "/proc/self/maps", "/proc/kallsyms", "/proc/self/mem",
                     "/sys/kernel/notes", "/sys/fs/cgroup/cgroup.procs", *glob.glob("/proc/[0-9]*/cmdline")):
            try:
                print("READ", path, open(path, "rb").read(1))
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"


async def test_only_harmless_devices_can_be_opened(pool):
    code = """
        import glob
        for path in ("/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/ptmx", "/dev/vda", "/dev/sda", "/dev/net/tun"):
            try:
                open(path, "rb", buffering=0)
                print("OPENED", path)
            except OSError:
                pass
        print(len(open("/dev/urandom", "rb").read(8)))
    """
    assert await output(pool, code) == "8"


async def test_only_the_standard_descriptors_are_open(pool):
    code = """
        import os
        for descriptor in range(3, 4096):
            try:
                os.fstat(descriptor)
                print("OPEN", descriptor)
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"


# ---------------------------------------------------------------------------------------------------------------- network


async def test_sockets_and_connections_are_refused(pool):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = """
            import socket
            for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
                    try:
                        socket.socket(family, kind)
                        print("SOCKET", family, kind)
                    except OSError:
                        pass
            try:
                socket.create_connection(("127.0.0.1", int(port)), timeout=1)
                print("CONNECTED")
            except OSError:
                print("held")
        """
        assert await output(pool, code, port=str(server.getsockname()[1])) == "held"


async def test_a_socket_pair_cannot_reach_other_sockets(pool):
    name = f"\0tirjudge-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(name)
        server.setblocking(False)
        code = r"""
            import socket
            a, b = socket.socketpair()
            a.send(b"x")
            print(b.recv(1))
            for attempt in (
                lambda: a.sendto(b"out", name),
                lambda: a.connect(name),
                lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
            ):
                try:
                    print("OUT", attempt())
                except OSError:
                    pass
        """
        assert await output(pool, code, name=name) == "b'x'"
        with pytest.raises(BlockingIOError):
            server.recv(10)


async def test_dangerous_system_calls_are_refused(pool):
    """io_uring, bpf, ptrace, namespaces and others: the filter refuses them before the kernel looks at the
    arguments."""
    code = """
        import ctypes, errno, platform
        x86 = platform.machine() == "x86_64"
        names = {
            "io_uring_setup": (425, 425), "bpf": (321, 280), "ptrace": (101, 117), "unshare": (272, 97), "setns": (308, 268),
            "userfaultfd": (323, 282), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
            "mount": (165, 40), "pivot_root": (155, 41), "process_vm_readv": (310, 270), "pidfd_getfd": (438, 438),
            "memfd_create": (319, 279), "shmget": (29, 194), "mq_open": (240, 180), "init_module": (175, 105),
            "open_by_handle_at": (304, 265), "kcmp": (312, 272), "personality": (135, 92), "execve": (59, 221),
            "inotify_init1": (294, 26), "seccomp": (317, 277), "capset": (126, 91), "flock": (73, 32),
            "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "sendmsg": (46, 211), "recvmsg": (47, 212),
            "landlock_create_ruleset": (444, 444), "landlock_restrict_self": (446, 446), "setresuid": (117, 147),
            "setresgid": (119, 149), "setsid": (112, 157), "umount2": (166, 39), "move_mount": (429, 429),
            "open_tree": (428, 428), "fsopen": (430, 430), "mount_setattr": (442, 442), "tkill": (200, 130),
            "rt_sigqueueinfo": (129, 138), "prctl": (157, 167),
        }
        libc = ctypes.CDLL(None, use_errno=True)
        for name, numbers in names.items():
            ctypes.set_errno(0)
            result = libc.syscall(numbers[0 if x86 else 1], 0, 0, 0, 0, 0)
            if result != -1 or ctypes.get_errno() != errno.EPERM:
                print("REACHED", name, result, ctypes.get_errno())
        print("done")
    """
    assert await output(pool, code) == "done"


# -------------------------------------------------------------------------------------------------------------- processes


async def test_a_fork_bomb_is_an_error_of_the_program(pool):
    result = await pool.run("import os\nwhile True:\n    os.fork()")
    assert result.outcome is Outcome.ERROR
    # Where forks are allowed, several processes fail concurrently and overwrite each other's output.
    assert "PermissionError" in result.stderr or "BlockingIOError" in result.stderr


async def test_subprocesses_and_exec_are_refused(pool):
    code = """
        import os, subprocess, sys
        for attempt in (
            lambda: subprocess.run([sys.executable, "-c", "print(1)"]),
            lambda: os.execv(sys.executable, ["python"]),
            lambda: os.posix_spawn("/bin/sh", ["sh"], {}),
            lambda: os.forkpty(),
        ):
            try:
                print("STARTED", attempt())
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"


async def test_a_daemon_does_not_survive_its_program(own_pool, staying):
    code = """
        import os, time
        try:
            if os.fork() == 0:
                try:
                    os.setsid()
                except OSError:
                    pass
                while True:
                    time.sleep(1)
        except OSError:
            pass
    """
    before = await staying(slots=2)
    for _ in range(2):  # the program ends with the outcome ok, not at the wall limit
        await output(own_pool, code)
    assert await staying(slots=2) == before


async def test_no_other_process_can_be_signalled(pool, bystander):
    code = """
        import os, signal
        hit = []
        for pid in {int(victim), os.getppid(), -1, -int(victim), 0, *range(2, 200)} - {os.getpid()}:
            try:
                os.kill(pid, signal.SIGTERM)
                hit.append(pid)
            except OSError:
                pass
        print(hit)
    """
    assert await output(pool, code, victim=str(bystander.pid)) == "[]"


async def test_io_signals_cannot_be_sent_to_other_processes(pool, bystander):
    code = """
        import fcntl, os, signal, socket
        a, b = socket.socketpair()
        try:
            fcntl.fcntl(a, fcntl.F_SETOWN, int(victim))
            fcntl.fcntl(a, 10, signal.SIGKILL)
            print("AIMED")
        except OSError:
            print("held")
    """
    assert await output(pool, code, victim=str(bystander.pid)) == "held"


async def test_limits_of_other_processes_cannot_be_set_and_own_limits_cannot_be_raised(pool, bystander):
    code = """
        import os, resource
        for pid in (os.getppid(), int(victim)):
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))
                print("SET", pid)
            except OSError:
                pass
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                print("RAISED", kind)
            except (OSError, ValueError):
                pass
        print("done")
    """
    code = code.replace("(os.getppid(), int(victim))", "{os.getppid(), int(victim)} - {0}")
    assert await output(pool, code, victim=str(bystander.pid)) == "done"


async def test_shared_files_cannot_be_locked(pool):
    code = """
        import fcntl, os
        file = open(os.__file__)
        for attempt in (lambda: fcntl.flock(file, fcntl.LOCK_SH), lambda: fcntl.lockf(file, fcntl.LOCK_SH)):
            try:
                attempt()
                print("LOCKED")
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"


async def test_privileges_cannot_be_used_or_regained(pool):
    code = """
        import os
        for attempt in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot("/"), lambda: os.nice(-5),
                        lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), lambda: os.mknod("node")):
            try:
                attempt()
                print("DID")
            except OSError:
                pass
        print("done")
    """
    assert await output(pool, code) == "done"


async def test_a_segfault_is_a_crash(pool):
    result = await pool.run("import ctypes\nprint('before')\nctypes.string_at(0)")
    assert (result.outcome, result.signal, result.exit_code) == (Outcome.CRASH, 11, None)
    assert result.stdout == "before\n"
    assert result.error == "Crash: killed by SIGSEGV"


async def test_a_call_of_another_architecture_ends_the_program_or_is_refused(pool):
    code = """
        import ctypes, platform
        if platform.machine() == "x86_64":
            print(ctypes.CDLL(None).syscall(0x40000000 + 39))
        else:
            print(-1)
    """
    assert await output(pool, code) == "-1"


# ------------------------------------------------------------------------------------------------------------------ state


async def test_the_environment_of_the_service_is_not_inherited(level, monkeypatch):
    monkeypatch.setenv("TIRJUDGE_TEST_SECRET", "4321")
    async with SandboxPool(slots=1, level=level) as pool:
        text = await output(pool, "import os; print(sorted(os.environ), sorted(os.environb.values()))")
    assert "SECRET" not in text
    assert "4321" not in text


async def test_a_programs_files_and_changes_do_not_reach_the_next(pool):
    change = """
        import builtins, json, os, sys
        builtins.planted = json.planted = True
        os.environ["PLANTED"] = "1"
        sys.path.append("/planted")
        os.umask(0)
        try:
            open("/tmp/planted", "w").write("x")
        except OSError:
            pass
    """
    look = """
        import builtins, json, os, sys
        print(hasattr(builtins, "planted"), hasattr(json, "planted"), "PLANTED" in os.environ, "/planted" in sys.path,
              os.path.exists("/tmp/planted"), os.umask(0) == 0)
    """
    for _ in range(2):
        await output(pool, change)
        assert await output(pool, look) == "False False False False False False"
    assert "planted" not in os.listdir("/tmp")


async def test_texts_of_one_program_are_not_in_the_memory_of_the_next(level):
    look = """
        import gc
        values = [str(value) for thing in gc.get_objects() if isinstance(thing, dict) for value in thing.values()]
        print(sum("violet" + "-7731" in value for value in values))
    """
    async with SandboxPool(slots=1, level=level) as pool:
        await pool.run("kept = 'violet' '-7731'", bindings={"text": "violet-7731"})
        assert await output(pool, look) == "0"


async def test_random_numbers_differ_between_programs(pool):
    seen = {await output(pool, "import random, uuid; print(random.random(), uuid.uuid4())") for _ in range(4)}
    assert len(seen) == 4


async def test_sets_are_printed_in_the_same_order_by_all_pools(level):
    seen = set()
    for _ in range(2):
        async with SandboxPool(slots=1, level=level) as pool:
            seen.add(await output(pool, "print({'a', 'b', 'c', 'd', 'e', 'f', 'g'})"))
    assert len(seen) == 1


async def test_no_module_of_the_judge_is_loaded(pool):
    code = (
        "import sys; print({name.split('.')[0] for name in sys.modules} & {'tirjudge', 'pydantic', 'httpx2', 'numpy'})"
    )
    assert await output(pool, code) == "set()"


# ----------------------------------------------------------------------------------------------------------------- output


async def test_a_forged_result_is_only_text(pool):
    forged = '{"failure": "", "wait_status": 0, "stopped_by": ""}'
    result = await pool.run(
        f"import os\nos.write(1, {forged.encode()!r})\nos.write(2, b'started')\nraise SystemExit(3)"
    )
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.ERROR, 3, forged)


async def test_an_immediate_exit_keeps_its_exit_code(pool):
    assert (await pool.run("import os; os._exit(0)")).outcome is Outcome.OK
    assert (await pool.run("import os; os._exit(7)")).exit_code == 7


async def test_closing_the_standard_descriptors_is_an_error_of_the_program(pool):
    result = await pool.run("import os\nos.closerange(0, 3)\nprint('gone')")
    assert result.outcome is Outcome.ERROR
    assert result.stdout == ""


async def test_wiping_the_interpreter_does_not_turn_an_error_into_success(pool):
    code = """
        import sys, os, builtins
        frame = sys._getframe().f_back
        while frame:
            for name in list(frame.f_globals):
                frame.f_globals[name] = None
            frame = frame.f_back
        os._exit = None
        sys.modules.clear()
        raise ValueError
    """
    assert (await pool.run(textwrap.dedent(code))).outcome is Outcome.ERROR


async def test_an_exception_that_cannot_be_printed_is_an_error(pool):
    result = await pool.run("class E(Exception):\n    def __str__(self): raise RuntimeError\nraise E")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert "E" in result.error


async def test_concurrent_programs_do_not_see_each_others_files(pool):
    code = """
        import os, time
        try:
            open(f"/tmp/mine-{who}", "w")
        except OSError:
            pass
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            try:
                found = [name for name in os.listdir("/tmp") if name.startswith("mine-") and name != f"mine-{who}"]
            except OSError:
                found = []
            if found:
                print("SAW", found)
                break
            time.sleep(0.01)
        print("done")
    """
    assert await asyncio.gather(*(output(pool, code, who=who) for who in "ab")) == ["done", "done"]
