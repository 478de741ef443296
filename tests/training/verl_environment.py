"""An environment that verl's own code can be imported in, beside ours.

verl wants older versions of transformers than we test with, and a GPU to train. Its arithmetic and its agent loop need
neither: they run on the torch, transformers and datasets that are here already, which the environment sees through a
.pth file. Only verl, Ray (75 MB) and eight small packages are downloaded, once.
"""

from __future__ import annotations

import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

REQUIREMENTS = (
    "verl==0.9.1",
    "ray==2.60.0",
    "tensordict==0.10.0",
    "hydra-core==1.3.8",
    "omegaconf==2.4.0",
    "antlr4-python3-runtime==4.9.3",
    "codetiming==1.4.0",
    "cachetools==8.0.1",
    "torchdata==0.11.0",
    "msgpack==1.2.4",
    "orjson==3.13.0",
    "pyvers==0.2.3",
)


def verl_python(folder: Path) -> Path:
    """The interpreter of the environment in `folder`, made if it was not there; skips the test where it cannot be had."""
    target, done = folder / "verl==0.9.1", folder / "verl==0.9.1.done"
    python = target / "bin" / "python"
    if done.exists() and done.read_text() == "\n".join(REQUIREMENTS):
        return python
    venv.create(target, with_pip=True, clear=True)
    options = ["--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", "--no-deps"]
    command = [str(python), "-m", "pip", "install", *options, *REQUIREMENTS]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"verl cannot be had: {(installed.stderr.strip().splitlines() or ['no reason'])[-1]}")
    (packages,) = target.glob("lib/python*/site-packages")
    # After what the environment has itself, and with the .pth files that are there: ours may be installed by one.
    ours = sysconfig.get_path("purelib")
    (packages / "zz-beside.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    done.write_text("\n".join(REQUIREMENTS))
    return python
