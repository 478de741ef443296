"""Which switch of a kernel keeps namespaces away is named alone, with what sets it back."""

import os
import shlex
import subprocess

import pytest

from tirjudge_sandbox.fork_server import isolated_python
from tirjudge_sandbox.remedies import remedy_for_namespaces


@pytest.fixture
def advice(tmp_path):
    """What is advised under a kernel that says this of itself."""

    def advised(**says: str) -> str:
        for name, text in says.items():
            file = tmp_path / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return remedy_for_namespaces(kernel=tmp_path)

    return advised


def test_namespaces_that_are_switched_off(advice):
    found = advice(sys__user__max_user_namespaces="0", sys__kernel__apparmor_restrict_unprivileged_userns="1")
    assert "sysctl -w user.max_user_namespaces=" in found
    assert "AppArmor" not in found


def test_namespaces_for_root_alone(advice):
    found = advice(sys__user__max_user_namespaces="9000", sys__kernel__unprivileged_userns_clone="0")
    assert "sysctl -w kernel.unprivileged_userns_clone=1" in found


@pytest.mark.parametrize(
    "says",
    [
        {"sys__kernel__apparmor_restrict_unprivileged_userns": "1", "self__attr__current": "unconfined"},
        {"self__attr__apparmor__current": "some-service (enforce)"},
    ],
)
def test_the_profile_that_is_advised_is_for_the_file_that_programs_run_in(advice, says):
    found = advice(sys__user__max_user_namespaces="9000", sys__kernel__unprivileged_userns_clone="1", **says)
    writes = found.split("`")[1].partition(" > ")[0]
    profile = subprocess.run(shlex.split(writes), check=True, capture_output=True, text=True).stdout
    assert (
        f"profile tirjudge {os.path.realpath(isolated_python('probe')[0])} flags=(unconfined) {{\n  userns,\n}}"
        in profile
    )


@pytest.mark.parametrize("label", ["docker-default (enforce)", "cri-containerd.apparmor.d (enforce)"])
def test_in_a_container_its_own_options_are_named(advice, label):
    found = advice(sys__kernel__apparmor_restrict_unprivileged_userns="1", self__attr__current=label)
    assert "--security-opt seccomp=unconfined --security-opt apparmor=unconfined" in found
    assert "appArmorProfile: {type: Unconfined}" in found
    assert "apparmor_parser" not in found


def test_where_no_switch_is_set(advice):
    found = advice(sys__user__max_user_namespaces="9000", self__attr__current="unconfined")
    assert "CAP_SYS_ADMIN" in found
