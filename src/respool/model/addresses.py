"""Parses HOST:PORT, and recognises loopback and wildcard addresses."""

import ipaddress

from respool.model.errors import SettingsError


def parse_address(name: str, text: str) -> tuple[str, int]:
    """Split HOST:PORT; an IPv6 host is in brackets.

    Raises:
        SettingsError: the text does not have that form.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    protocol, slashes, _ = host.partition("://")
    if slashes and protocol:
        shown = f"{protocol[:20]}://"
        raise SettingsError(f"{name} = {text!r} is not HOST:PORT: give it without {shown}")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise SettingsError(f"{name} = {text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host, int(port)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """True for the address of all interfaces, `0.0.0.0` or `::` in any spelling."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # The operating system accepts 0 and 0.0 for 0.0.0.0.
        return not host.replace(".", "").strip("0")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_unspecified


def format_address(host: str, port: int) -> str:
    """HOST:PORT; an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_host(address: str) -> str:
    """A peer's address as rules and limits see it: an IPv4 address mapped into IPv6 is IPv4, and has no zone.

    Otherwise a rule about 10.0.0.1 would not apply to the same machine as ::ffff:10.0.0.1.
    """
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or parsed)
