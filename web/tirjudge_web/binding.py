"""Refuses to listen where others can reach a service that asks for no key."""

from __future__ import annotations

import ipaddress

from tirjudge.errors import TirjudgeError

KEYS_CREATE = "run `tirjudge keys create NAME` first"


class OpenBind(TirjudgeError, ValueError):
    """Others could reach a service that asks for no key."""


def check_bind(host: str, *, has_keys: bool, insecure_open: bool, remedy: str = KEYS_CREATE) -> None:
    """
    Args:
        host: the address to listen at.
        has_keys: whether callers need a key.
        insecure_open: whether the operator wants it open anyway.
        remedy: the option or command that makes callers need one.

    Raises:
        OpenBind: anybody who reaches that address could use the service.
    """
    if not (has_keys or insecure_open or is_loopback(host)):
        raise OpenBind(f"--host: others can reach {host}, and there are no keys; {remedy}, or give --insecure-open")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address. A name other than localhost counts as one that others reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
