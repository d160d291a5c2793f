"""Addresses of a network, and names of hosts."""

from ipaddress import ip_address

LOOPBACK_HOSTS = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104  (compared only)
"""What every machine calls itself: it tells no two of them apart."""


def is_ip(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


POD = "pod/"
"""Before the name of an exporter's pod among the addresses of nodes."""


def fold_host(name: str) -> str:
    """Return a host's name as DNS compares it: without case and without the root's dot."""
    return name.lower().rstrip(".")


def is_same_host(name: str, other: str) -> bool:
    """Return whether two folded names are one host's: equal, or one is the other's short form."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")
