"""A virtual environment with verl for tests of its code.

verl needs an older transformers than the tests use, and a GPU for training. The losses and the agent loop of verl run
without a GPU, and with the installed torch, transformers and datasets, which the environment finds through a .pth file.
Only verl, Ray (75 MB) and ten small packages are downloaded, once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environments import NoEnvironment, environment_in

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
    """Return the interpreter of the environment in `folder`. It is created if it is missing.

    The test is skipped if the packages cannot be installed.
    """
    try:
        return environment_in(folder / "verl==0.9.1", ("--no-deps", *REQUIREMENTS), beside_tests=True)
    except NoEnvironment as error:
        pytest.skip(str(error))
