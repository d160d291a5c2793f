"""Identify the user and the user's role: OIDC by Streamlit, roles from claims.

Without OIDC the dashboard serves on this machine's loopback only, and every user of the machine may
snooze and keep; `dashboard.approve_without_sign_in` lets them approve and undo too.
"""

import getpass
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec
import streamlit as st

from dashboards import active_settings
from dashboards.serving import is_loopback
from dashboards.text import escape
from fallow.settings import Settings
from fallow.settings.dashboard import OidcSettings

Role = Literal["viewer", "operator", "approver"]
EMAIL = "email"
ROLES: tuple[Role, ...] = get_args(Role)
"""Each role includes those before it: read; snooze and keep for others; approve and undo."""


class Person(msgspec.Struct, frozen=True):
    """The signed-in person: the name for the journal, and the highest role."""

    name: str
    role: Role
    local: bool = False
    subject: str = ""
    """Issuer and `sub` of the sign-in; empty without one. Unlike the name it never changes."""
    groups: tuple[str, ...] = ()
    """The content of the claim of roles: teams and namespaces with these names are the person's."""

    def may(self, role: Role) -> bool:
        """Return whether the person has a role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


def find_person(settings: Settings) -> Person | None:
    """Return the current person; None = no permission, and the page shows why and what to do."""
    oidc = settings.dashboard.oidc
    if not oidc.on:
        if not _bound_to_loopback():
            st.error(
                "**Nobody signs in here, so this page answers on its own machine only.** "
                "Start it with `fallow dashboard`, or set `dashboard.oidc`.",
                icon=":material/lock:",
            )
            return None
        return get_local_person()
    claims = get_claims()
    if claims is None or is_expired(claims, oidc, datetime.now(UTC)):
        st.title("Fallow")
        st.write("What the GPUs of this fleet cost, what is not used, and what was done about it.")
        st.button("Sign in", type="primary", icon=":material/login:", on_click=st.login)
        return None
    name = str(claims.get(oidc.name_claim) or claims.get("sub") or "")
    if is_unverified(claims, oidc):
        _refuse(
            f"**The e-mail address of {escape(name)} is not verified by the identity provider.** "
            "Until it is, it gives no role here. Confirm it there, then sign in again; where the "
            "provider sends no claim `email_verified`, see `dashboard.oidc.verified_email`."
        )
        return None
    role, subject = find_role(claims, oidc), get_subject(claims)
    if role is None or not name or not subject:
        _refuse(
            f"**{escape(name or 'You')} has no role here.** Ask whoever runs Fallow for one of the "
            f"values of the claim `{oidc.roles_claim}` that `dashboard.oidc` names as viewers, "
            "operators or approvers; then sign in again."
        )
        return None
    groups = tuple(sorted(list_groups(claims, oidc.roles_claim)))
    return Person(name, role, subject=subject, groups=groups)


def _refuse(text: str) -> None:
    """Show why a signed-in person sees nothing, and the way out."""
    st.title("Fallow")
    st.error(text, icon=":material/lock:")
    st.button("Sign out", icon=":material/logout:", on_click=st.logout)


def get_claims() -> Mapping[str, Any] | None:
    """Return the claims of the identity token in the cookie; None = no person is signed in."""
    return st.user.to_dict() if st.user.is_logged_in else None


def is_unverified(claims: Mapping[str, Any], oidc: OidcSettings) -> bool:
    """Return whether the settings read the e-mail address, and the provider did not verify it.

    Anybody may register an address that is not theirs: OpenID Connect Core 5.7. Some providers
    write the claim as text.
    """
    if EMAIL not in {oidc.name_claim, oidc.roles_claim} or not claims.get(EMAIL):
        return False
    verified = claims.get("email_verified")
    if verified is None:
        return oidc.verified_email
    return str(verified).casefold() != "true"


def get_subject(claims: Mapping[str, Any]) -> str:
    """Return issuer and `sub`, which together name one person for ever; empty without both."""
    parts = [claims.get("iss"), claims.get("sub")]
    return " ".join(map(str, parts)) if all(isinstance(p, str) and p for p in parts) else ""


def is_expired(claims: Mapping[str, Any], oidc: OidcSettings, now: datetime) -> bool:
    """Return whether a sign-in is older than the settings allow, or has no time."""
    issued = claims.get("iat")
    if not isinstance(issued, int | float):
        return True
    return now.timestamp() - issued > oidc.session.total_seconds()


def _bound_to_loopback() -> bool:
    return is_loopback(str(st.get_option("server.address") or ""))


def get_local_person() -> Person:
    """Return the person at this machine, where no sign-in is configured.

    Any program of the machine may open a page, so nobody approves unless the settings say so.
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        name = "local"
    may_approve = active_settings.get_settings().dashboard.approve_without_sign_in
    return Person(name, "approver" if may_approve else "operator", local=True)


def find_role(claims: Mapping[str, Any], oidc: OidcSettings) -> Role | None:
    """Return the highest role in the claims; None = none."""
    groups = {"viewer": oidc.viewers, "operator": oidc.operators, "approver": oidc.approvers}
    groups_claimed = list_groups(claims, oidc.roles_claim)
    roles_held = [role for role in ROLES if groups_claimed.intersection(groups[role])]
    return roles_held[-1] if roles_held else None


def list_groups(claims: Mapping[str, Any], claim: str) -> set[str]:
    """Return the texts in a claim: a list or one name.

    The claim may be a path with dots, such as `realm_access.roles`.
    """
    claim_value: Any = claims.get(claim)
    if claim_value is None:
        claim_value = claims
        for part in claim.split("."):
            claim_value = claim_value.get(part) if isinstance(claim_value, Mapping) else None
    names_listed = [claim_value] if isinstance(claim_value, str) else claim_value
    return (
        {g for g in names_listed if isinstance(g, str)}
        if isinstance(names_listed, list | tuple)
        else set()
    )
