"""Who is looking, and what they may do: OIDC by Streamlit, roles from claims.

Without OIDC the dashboard answers on this machine's loopback only, and whoever is on the machine
may do there what its command line may do.
"""

import getpass
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

Role = Literal["viewer", "operator", "approver"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may: read; snooze and keep for others; approve and undo."""


class Person(msgspec.Struct, frozen=True):
    """Who is signed in: the name that the journal will show, and the highest role."""

    name: str
    role: Role
    local: bool = False

    def may(self, role: Role) -> bool:
        """Return whether the person has a role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


def local() -> Person:
    """Return the person at this machine, where no sign-in is configured."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        name = "local"
    return Person(name, "approver", local=True)


def role_of(claims: Mapping[str, Any], claim: str, groups: Mapping[str, list[str]]) -> Role | None:
    """Return the highest role that claims give; None = none.

    `claim` may be a path with dots, such as `realm_access.roles`; its value a list or one name.
    """
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    said = {found} if isinstance(found, str) else {g for g in found or () if isinstance(g, str)}
    held = [role for role in ROLES if said.intersection(groups.get(role, []))]
    return held[-1] if held else None
