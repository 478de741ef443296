"""Refuse to serve on an address that other machines can reach if no API key is required."""

from __future__ import annotations

import ipaddress

from tirjudge.errors import TirjudgeError

KEYS_CREATE = "run `tirjudge keys create NAME` first"
"""Default remedy of `check_bind`."""


class OpenBind(TirjudgeError, ValueError):
    """A service without API keys would be reachable from other machines."""


def check_bind(host: str, *, has_keys: bool, insecure_open: bool, remedy: str = KEYS_CREATE) -> None:
    """Check that a service without API keys is reachable only from this machine.

    Args:
        host: address to listen on.
        has_keys: whether callers need an API key.
        insecure_open: whether the operator allows callers without a key.
        remedy: the option or command that sets up keys, for the error message.

    Raises:
        OpenBind: other machines can reach the address, and no key is needed.
    """
    if not (has_keys or insecure_open or is_loopback(host)):
        raise OpenBind(
            f"--host: other machines can reach {host}, and no API key is required; {remedy}, or give --insecure-open"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. False for any name but localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
