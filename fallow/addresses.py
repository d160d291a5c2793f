"""Addresses of a network."""

from ipaddress import ip_address


def is_ip(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
