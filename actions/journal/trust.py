"""Trust in a policy: proved by a back-test, or given by hand; always in one text of it.

back-test met ─► trusted ─┐
`fallow policy trust` ────┴─► in force while the text is the same, until demoted or revoked
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from actions.journal import words
from actions.journal.record import Record, Trust
from actions.policy.budgets import Spent
from actions.policy.model import Policy
from fallow.errors import UsageError

BACKTEST, HAND = "backtest", "hand"
MOST_REASON = 500


class Standing(msgspec.Struct, frozen=True):
    """How far a policy of one text may go by what the journal says, and why.

    `how`: backtest, hand, demoted, or empty where it is not trusted.
    """

    policy: str
    how: str
    why: str
    by: str = ""
    at: datetime | None = None
    reason: str = ""


def trust_by_hand(record: Record, policy: Policy, by: str, reason: str) -> Trust:
    """Write down that a person trusts this text of a policy without a proof; return the trust.

    It ends when the text changes, when owners take back too much, or by `revoke`.

    Raises:
        UsageError: no person or no reason is given, or the policy only notifies.
    """
    if policy.mode != "enforce":
        raise UsageError(
            f"policy {policy.name} only notifies: there is nothing to trust it with",
            hint="set mode: enforce in its file first",
        )
    document = {"fingerprint": policy.fingerprint, "by": HAND, "reason": _reason(reason)}
    record.append(words.TRUSTED, policy.name, document, actor=_person(by))
    return record.trusted[policy.name]


def revoke(record: Record, name: str, by: str, reason: str = "") -> None:
    """Write down that a policy is trusted no more, however it came to be.

    Raises:
        UsageError: it is not trusted.
    """
    record.catch_up()
    if name not in record.trusted:
        raise UsageError(f"policy {name} is not trusted", hint="fallow policy list shows who is")
    said = {"reason": _reason(reason)} if reason.strip() else {}
    record.append(words.REVOKED, name, said, actor=_person(by))


def with_trust(spent: Spent, record: Record, policies: Sequence[Policy]) -> Spent:
    """Return what was spent together with which policies are trusted, and why others are not."""
    found = standings(record, policies).values()
    texts = {p.name: p.fingerprint for p in policies}
    trusted = {n for n, trust in record.trusted.items() if texts.get(n) == trust.fingerprint}
    return msgspec.structs.replace(
        spent,
        demoted=frozenset(record.demoted),
        trusted=frozenset(trusted),
        by_hand={s.policy: s.why for s in found if s.how == HAND},
        unproved={s.policy: s.why for s in found if not s.how},
    )


def standings(record: Record, policies: Iterable[Policy]) -> dict[str, Standing]:
    """Return how far each policy of these texts may go."""
    return {policy.name: standing(record, policy) for policy in policies}


def standing(record: Record, policy: Policy) -> Standing:
    """Return how far a policy of this text may go."""
    name, trust = policy.name, record.trusted.get(policy.name)
    if name in record.demoted:
        return Standing(name, "demoted", "owners took back more than it declares")
    if trust is None or trust.fingerprint != policy.fingerprint:
        return Standing(name, "", _unproved(record, policy, trust))
    if not trust.by_hand:
        return Standing(name, BACKTEST, f"its back-test of {trust.since:%Y-%m-%d}", at=trust.since)
    return Standing(name, HAND, trust.said, trust.by, trust.since, trust.reason)


def _unproved(record: Record, policy: Policy, earlier: Trust | None) -> str:
    replay = record.replays.get(policy.name)
    if replay is not None and replay.fingerprint == _enforced(policy).fingerprint:
        return f"back-test of {replay.at:%Y-%m-%d}: {replay.proof}"
    lapsed = "its text changed since it was trusted; " if earlier is not None else ""
    return f"{lapsed}no back-test of this text proved reversals within {policy.regret.rate:.1%}"


def _enforced(policy: Policy) -> Policy:
    return msgspec.structs.replace(policy, mode="enforce")


def _person(by: str) -> str:
    if not by.strip():
        raise UsageError("nobody is named who trusts", hint="give --by NAME")
    return by.strip()


def _reason(text: str) -> str:
    said = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if not said:
        raise UsageError("trust by hand needs a reason", hint='--reason "reviewed with SRE"')
    if len(said) > MOST_REASON:
        raise UsageError(f"the reason has {len(said)} characters; legal: {MOST_REASON} at most")
    return said
