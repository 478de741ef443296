"""Container levels: options of the containers, and their life cycle. The tests for all levels cover the programs in
them. This file needs Docker, and an image in TIRJUDGE_TEST_IMAGE."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tirjudge.errors import SandboxUnavailable
from tirjudge.types import Outcome
from tirjudge_sandbox import IsolationLevel, Limits, SandboxPool
from tirjudge_sandbox.containers import LABEL, owner_label
from tirjudge_sandbox.frames import LENGTHS, report_frame, report_from
from tirjudge_sandbox.protocol import Ending, Printed, ProgramReport, StoppedBy

needs_docker = pytest.mark.slow

LIMITS = Limits(cpu_s=20, wall_s=40)


@pytest.fixture
def level(level):
    """Skip the levels that are not containers."""
    if not level.needs_image:
        pytest.skip("not a container level")
    return level


@pytest.fixture
def daemon(image):
    docker = pytest.importorskip("docker")
    with contextlib.closing(docker.from_env(timeout=30)) as client:
        yield client


def ours(daemon, pid=None):
    """Return the containers of a process. None: this process."""
    return daemon.containers.list(all=True, filters={"name": f"tirjudge-{pid or os.getpid()}-"}, ignore_removed=True)


def wait_until_none(daemon, pid=None):
    end = time.monotonic() + 60
    while ours(daemon, pid):
        assert time.monotonic() < end, "a container still exists"
        time.sleep(0.1)


@needs_docker
def test_containers_are_tested(image):
    """This test is skipped if containers are not tested, so that the test report mentions it."""


# ---------------------------------------------------------------------------------------------------------------- options


@needs_docker
async def test_a_container_has_no_privileges_network_or_mounts(level, image, daemon):
    async with SandboxPool(slots=2, level=level):
        (container,) = ours(daemon)
        host = container.attrs["HostConfig"]
        assert host["ReadonlyRootfs"]
        assert host["AutoRemove"]
        assert host["NetworkMode"] == host["IpcMode"] == "none"
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["Memory"] == host["MemorySwap"] > 0
        assert host["PidsLimit"] > 0
        assert not host["Privileged"]
        assert container.attrs["Mounts"] == []
        assert host["Runtime"] == ("runsc" if level is IsolationLevel.GVISOR else "runc")
        if level is IsolationLevel.DOCKER:
            assert not host["CapAdd"]
            assert not container.attrs["Config"]["User"].startswith("0")
    assert not ours(daemon)


@needs_docker
async def test_programs_cannot_write_in_a_container(level):
    code = """
        import os
        print(os.getuid() == 0, os.getgroups() in ([], [os.getgid()]))
        for place, _, _ in os.walk("/"):
            try:
                open(f"{place}/planted", "w")
                print("WROTE", place)
            except OSError:
                pass
    """
    async with SandboxPool(slots=1, limits=LIMITS, level=level) as pool:
        result = await pool.run(textwrap.dedent(code))
    assert result.stdout == "False True\n", result


@needs_docker
async def test_programs_can_read_only_python_in_the_image(level):
    code = """
        import os
        for path in ("/etc/passwd", "/etc/hostname", "/proc/1/environ", "/proc/self/status", "/sys/kernel", "/bin/sh",
                     "/tmp/tirjudge.zip", "/.dockerenv/x", "/dev/ptmx", "/dev/fuse", "/dev/net/tun"):
            try:
                print("READ", path, open(path, "rb", buffering=0).read(9))
            except OSError:
                pass
        import decimal, sqlite3, xml.dom.minidom, numpy, sympy
        print(len(open("/dev/urandom", "rb").read(8)), open(os.devnull, "w").write("gone"))
    """
    async with SandboxPool(slots=1, limits=LIMITS, level=level) as pool:
        result = await pool.run(textwrap.dedent(code))
    assert result.stdout == "8 4\n", result


@needs_docker
async def test_attachments_and_files_are_refused(level, tmp_path):
    async with SandboxPool(slots=1, level=level) as pool:
        with pytest.raises(ValueError, match="attachments: programs cannot read host files"):
            await pool.run("print(1)", attachments={"here": tmp_path})
        with pytest.raises(ValueError, match="files: programs have no private directory"):
            await pool.run("print(1)", files={"a": b""})


# ------------------------------------------------------------------------------------------------------------- life cycle


@needs_docker
async def test_a_dead_container_is_replaced(level, image, daemon):
    async with SandboxPool(slots=2, limits=LIMITS, level=level) as pool:
        running = asyncio.create_task(pool.run("while True: pass"))
        await asyncio.sleep(1)
        ours(daemon)[0].kill()
        with pytest.raises(SandboxUnavailable, match="container is gone"):
            await running
        assert [(await pool.run("print(1)")).stdout for _ in range(3)] == ["1\n"] * 3
        assert pool.stats().num_restarts == 1
        assert len(ours(daemon)) == 1
    assert not ours(daemon)


@needs_docker
async def test_a_container_that_does_not_answer_is_replaced(level, image, daemon):
    async with SandboxPool(slots=1, limits=Limits(wall_s=5), level=level) as pool:
        container = ours(daemon)[0]
        container.pause()
        async with asyncio.timeout(120):
            with pytest.raises(SandboxUnavailable, match="no answer in time"):
                await pool.run("print(1)")
        assert (await pool.run("print(2)")).stdout == "2\n"
        assert container.id not in [other.id for other in ours(daemon)]
    assert not ours(daemon)


@needs_docker
async def test_each_preset_has_a_container_and_all_are_removed(level, image, daemon):
    async with SandboxPool(slots=2, limits=LIMITS, level=level) as pool:
        results = await asyncio.gather(*(pool.run(f"import {name}; print(1)") for name in ("math", "numpy", "sympy")))
        assert [(result.stdout, result.preset) for result in results] == [
            ("1\n", "stdlib"),
            ("1\n", "numpy"),
            ("1\n", "sympy"),
        ]
        assert len(ours(daemon)) == 3
    assert not ours(daemon)


@needs_docker
async def test_only_selected_packages_of_the_image_are_offered(level):
    async with SandboxPool(slots=1, limits=LIMITS, level=level, packages=["numpy"]) as pool:
        assert (await pool.run("import sympy")).error == "ModuleNotFoundError: No module named 'sympy'"
        assert (await pool.run("import numpy; print(1)")).preset == "numpy"


@needs_docker
def test_no_container_survives_a_killed_pool(level, image, daemon, tmp_path):
    script = f"""
        import asyncio
        from tirjudge_sandbox import SandboxPool, Limits
        async def main():
            async with SandboxPool(slots=2, level="{level}", image="{image}", limits=Limits(cpu_s=60, wall_s=60)) as pool:
                run = asyncio.gather(pool.run("while True: pass"), pool.run("import time; time.sleep(60)"))
                await asyncio.sleep(1)
                print("running", flush=True)
                await run
        asyncio.run(main())
    """
    (tmp_path / "pool.py").write_text(textwrap.dedent(script))
    with subprocess.Popen([sys.executable, tmp_path / "pool.py"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        assert len(ours(daemon, process.pid)) == 1
        process.send_signal(signal.SIGKILL)
    wait_until_none(daemon, process.pid)


@needs_docker
def test_a_container_of_a_dead_pool_is_removed_by_the_next_pool(image, daemon):
    async def start_pool() -> None:
        async with SandboxPool(slots=1, level=IsolationLevel.DOCKER, image=image):
            pass

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        labels = {LABEL: owner_label(process.pid)}
        options = {"detach": True, "network_mode": "none", "stdin_open": True, "auto_remove": True}
        name = f"tirjudge-{process.pid}-test"
        daemon.containers.run(image, ["python3", "-c", "input()"], name=name, labels=labels, **options)
        asyncio.run(start_pool())
        assert len(ours(daemon, process.pid)) == 1
        process.communicate()
    asyncio.run(start_pool())
    wait_until_none(daemon, process.pid)


@needs_docker
def test_cancelling_the_start_leaves_no_container(level, image, daemon):
    async def start_and_cancel(after_s: float) -> None:
        start = asyncio.create_task(SandboxPool(slots=1, level=level).start())
        await asyncio.sleep(after_s)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    for after_s in (0.01, 0.05, 0.15):
        asyncio.run(start_and_cancel(after_s))
        assert not ours(daemon)


# -------------------------------------------------------------------------------------------------- choice of the level


@needs_docker
async def test_with_an_image_the_strongest_level_is_chosen(level, image):
    async with SandboxPool(slots=1, image=image) as pool:
        assert IsolationLevel(pool.level).at_least(level)
        assert pool.level == IsolationLevel.GVISOR or level is not IsolationLevel.GVISOR


@needs_docker
async def test_the_error_for_a_missing_image_names_it(image):
    with pytest.raises(SandboxUnavailable, match="the daemon has no image tirjudge-test:no-such-tag"):
        await SandboxPool(level="docker", image="tirjudge-test:no-such-tag").start()


@needs_docker
def test_an_unreachable_daemon_is_reported_with_advice(image, tmp_path):
    (tmp_path / "program.py").write_text("print(1)")
    code = "from tirjudge.cli import main; main()"
    arguments = ["sandbox", "run", tmp_path / "program.py", "--level", "docker", "--image", image]
    environment = os.environ | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 70
    assert "the daemon cannot be reached" in done.stderr
    assert "DOCKER_HOST" in done.stderr


@pytest.mark.parametrize("name", ["gvisor", "docker"])
async def test_container_levels_need_an_image(name):
    with pytest.raises(SandboxUnavailable, match="no image was given"):
        await SandboxPool(level=name).start()


def test_docker_counts_as_equally_strong_as_landlock():
    assert IsolationLevel.DOCKER.at_least(IsolationLevel.LANDLOCK)
    assert not IsolationLevel.DOCKER.at_least(IsolationLevel.NAMESPACES)
    assert IsolationLevel.GVISOR.at_least(IsolationLevel.NAMESPACES_CGROUP)


# ------------------------------------------------------------------------------------------------ frames from a container

REPORT = ProgramReport(
    ending=Ending(wait_status=9, stopped_by=StoppedBy.CPU, cpu_s=1.5, wall_s=2.0, max_rss_kb=3),
    stdout=Printed(100, b"head", b"tail"),
    stderr=Printed(2, b"ab", b""),
    files={},
)


def parts(frame: bytes) -> tuple[dict, bytes]:
    num_header, num_body = LENGTHS.unpack(frame[: LENGTHS.size])
    header = frame[LENGTHS.size : LENGTHS.size + num_header]
    assert len(frame) == LENGTHS.size + num_header + num_body
    return json.loads(header), frame[LENGTHS.size + num_header :]


def test_a_report_survives_encoding_and_decoding():
    header, body = parts(report_frame(7, REPORT))
    assert header["request"] == 7
    assert report_from(header, body) == REPORT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
ENDING = json.loads(REPORT.ending.to_packet())


@settings(max_examples=40, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from([*ENDING, "extra"]), JSON),
    lengths=JSON | st.just([[100, 4, 4], [2, 2, 0]]),
    body=st.binary(max_size=20),
)
def test_a_hostile_frame_is_a_report_or_a_value_error(changes, lengths, body):
    header = {"request": 1, "ending": json.dumps(ENDING | changes), "lengths": lengths}
    with contextlib.suppress(ValueError):
        report = report_from(header, body)
        assert os.WIFSIGNALED(report.ending.wait_status) in (True, False)
        assert len(report.stdout.head + report.stdout.tail + report.stderr.head) <= len(body)
        assert Outcome(Outcome.OK).is_ok
