"""Compare people who approve: by the subject of their sign-in, else by their names.

A name is an e-mail address or a user of an operating system. It may change, and several people may
share it. The subject (issuer and `sub` of the identity token) does not: OpenID Connect Core 5.7.
Rows of before, and people at the command line, have names only.
"""

from collections.abc import Iterable

import msgspec


class Approver(msgspec.Struct, frozen=True):
    """Who approved: the name, and the subject of the sign-in, empty where nobody signed in."""

    name: str
    subject: str = ""


def is_same_person(approver: Approver, other: Approver) -> bool:
    """Return whether two names may be one person's.

    Two subjects decide. Otherwise names do, and an e-mail address is the same as its local part:
    a person has the one name on pages and the other at the command line.
    """
    if approver.subject and other.subject:
        return approver.subject == other.subject
    return _to_user(approver.name) == _to_user(other.name)


def count_people(approvers: Iterable[Approver]) -> int:
    """Return how many different people approved, at least.

    A person with a subject and one without may be the same under two names: nobody can tell, so
    they count as one.
    """
    listed = list(approvers)
    subjects = {a.subject for a in listed if a.subject}
    names = {_to_user(a.name) for a in listed if not a.subject} - {""}
    return max(len(subjects), len(names))


def _to_user(name: str) -> str:
    return name.strip().casefold().partition("@")[0]
