"""Which network addresses a tool may connect to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name for a port. Raises OSError if it has none."""

_NAT64 = IPv6Network("64:ff9b::/96")


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host name, as the resolver of this machine gives them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


def is_allowed(text: str, *, allow_private: bool) -> bool:
    """Whether a tool may connect to an address.

    Public addresses are allowed. Loopback and private addresses are allowed with `allow_private`. Link-local (where clouds
    serve credentials), multicast, reserved and unspecified addresses are never allowed. An IPv6 address that embeds an IPv4
    address counts as that address; the forms ::ffff:a.b.c.d, 6to4 and Teredo also need `allow_private`.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return _is_allowed_itself(IPv4Address(int(address) & 0xFFFFFFFF), allow_private=allow_private)
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if embedded:
            return allow_private and _is_allowed_itself(embedded, allow_private=True)
    return _is_allowed_itself(address, allow_private=allow_private)


def _is_allowed_itself(address: IPv4Address | IPv6Address, *, allow_private: bool) -> bool:
    if address.is_loopback:
        return allow_private
    if address.is_link_local or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    if isinstance(address, IPv6Address) and address.is_site_local:
        return allow_private
    return allow_private or (address.is_global and not address.is_private)
