"""Advice for kernels that forbid user namespaces: it names the setting and the command that changes it."""

import os
import shlex
import subprocess

import pytest

from tirjudge_sandbox.fork_server import isolated_python
from tirjudge_sandbox.remedies import remedy_for_namespaces


@pytest.fixture
def advice(tmp_path):
    """Function that returns the advice for a kernel with the given contents of files in /proc."""

    def advised(**contents: str) -> str:
        for name, text in contents.items():
            file = tmp_path / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        return remedy_for_namespaces(kernel=tmp_path)

    return advised


def test_disabled_namespaces_are_enabled_with_sysctl(advice):
    found = advice(sys__user__max_user_namespaces="0", sys__kernel__apparmor_restrict_unprivileged_userns="1")
    assert "sysctl -w user.max_user_namespaces=" in found
    assert "AppArmor" not in found


def test_namespaces_that_only_root_may_create_are_allowed_with_sysctl(advice):
    found = advice(sys__user__max_user_namespaces="9000", sys__kernel__unprivileged_userns_clone="0")
    assert "sysctl -w kernel.unprivileged_userns_clone=1" in found


@pytest.mark.parametrize(
    "contents",
    [
        {"sys__kernel__apparmor_restrict_unprivileged_userns": "1", "self__attr__current": "unconfined"},
        {"self__attr__apparmor__current": "some-service (enforce)"},
    ],
)
def test_the_apparmor_profile_is_for_the_interpreter_of_programs(advice, contents):
    found = advice(sys__user__max_user_namespaces="9000", sys__kernel__unprivileged_userns_clone="1", **contents)
    writes = found.split("`")[1].partition(" > ")[0]
    profile = subprocess.run(shlex.split(writes), check=True, capture_output=True, text=True).stdout
    assert (
        f"profile tirjudge {os.path.realpath(isolated_python('probe')[0])} flags=(unconfined) {{\n  userns,\n}}"
        in profile
    )


@pytest.mark.parametrize("label", ["docker-default (enforce)", "cri-containerd.apparmor.d (enforce)"])
def test_in_a_container_the_options_of_the_container_are_named(advice, label):
    found = advice(sys__kernel__apparmor_restrict_unprivileged_userns="1", self__attr__current=label)
    assert "--security-opt seccomp=unconfined --security-opt apparmor=unconfined" in found
    assert "appArmorProfile: {type: Unconfined}" in found
    assert "apparmor_parser" not in found


def test_without_a_known_setting_the_advice_is_general(advice):
    found = advice(sys__user__max_user_namespaces="9000", self__attr__current="unconfined")
    assert "CAP_SYS_ADMIN" in found
