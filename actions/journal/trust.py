"""Trust in a policy: proved by a back-test, or given by hand; always for one text of the policy.

back-test met ─► trusted ─┐
`fallow policy trust` ────┴─► in force while the text is the same, until demoted or revoked
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from actions.journal import event_types
from actions.journal.permissions import PolicyTrust
from actions.journal.state import JournalState
from actions.policy.budgets import BudgetUsage
from actions.policy.model import Policy
from fallow.errors import UsageError
from fallow.texts import make_printable

BACKTEST, HAND = "backtest", "hand"
MOST_REASON = 500


class TrustState(msgspec.Struct, frozen=True):
    """How far a policy of one text may go by the journal, and why.

    `how`: backtest, hand, demoted, or empty where it is not trusted.
    """

    policy: str
    how: str
    why: str
    by: str = ""
    at: datetime | None = None
    reason: str = ""


def trust_by_hand(record: JournalState, policy: Policy, by: str, reason: str) -> PolicyTrust:
    """Record that a person trusts this text of a policy without a proof; return the trust.

    It ends when the text changes, when owners reverse too many actions, or by `revoke`.

    Raises:
        UsageError: no person or no reason is given, or the policy only notifies.
    """
    if policy.mode != "enforce":
        raise UsageError(
            f"policy {policy.name} only notifies: there is nothing to trust it with",
            hint="set mode: enforce in its file first",
        )
    document = {"fingerprint": policy.fingerprint, "by": HAND, "reason": _require_reason(reason)}
    record.append(event_types.TRUSTED, policy.name, document, actor=_require_name(by))
    return record.trusted[policy.name]


def revoke(record: JournalState, name: str, by: str, reason: str = "") -> None:
    """Record that a policy is trusted no more, whatever the trust was based on.

    Raises:
        UsageError: it is not trusted.
    """
    record.catch_up()
    if name not in record.trusted:
        raise UsageError(f"policy {name} is not trusted", hint="fallow policy list shows who is")
    document = {"reason": _require_reason(reason)} if reason.strip() else {}
    record.append(event_types.REVOKED, name, document, actor=_require_name(by))


def add_trust(usage: BudgetUsage, record: JournalState, policies: Sequence[Policy]) -> BudgetUsage:
    """Return the budget usage with the trusted policies, and why others are not trusted."""
    states = read_trust_states(record, policies).values()
    texts = {p.name: p.fingerprint for p in policies}
    trusted = {n for n, trust in record.trusted.items() if texts.get(n) == trust.fingerprint}
    return msgspec.structs.replace(
        usage,
        demoted=frozenset(record.demoted),
        trusted=frozenset(trusted),
        by_hand={s.policy: s.why for s in states if s.how == HAND},
        unproved={s.policy: s.why for s in states if not s.how},
    )


def read_trust_states(record: JournalState, policies: Iterable[Policy]) -> dict[str, TrustState]:
    """Return how far each policy of these texts may go."""
    return {policy.name: read_trust_state(record, policy) for policy in policies}


def read_trust_state(record: JournalState, policy: Policy) -> TrustState:
    """Return how far a policy of this text may go."""
    name, trust = policy.name, record.trusted.get(policy.name)
    if name in record.demoted:
        return TrustState(name, "demoted", "owners took back more than it declares")
    if trust is None or trust.fingerprint != policy.fingerprint:
        return TrustState(name, "", _explain_unproved(record, policy, trust))
    if not trust.by_hand:
        return TrustState(
            name, BACKTEST, f"its back-test of {trust.since:%Y-%m-%d}", at=trust.since
        )
    return TrustState(name, HAND, trust.text, trust.by, trust.since, trust.reason)


def _explain_unproved(record: JournalState, policy: Policy, earlier: PolicyTrust | None) -> str:
    replay = record.replays.get(policy.name)
    if replay is not None and replay.fingerprint == _build_enforced_policy(policy).fingerprint:
        return f"back-test of {replay.at:%Y-%m-%d}: {replay.proof}"
    prefix = "its text changed since it was trusted; " if earlier is not None else ""
    return f"{prefix}no back-test of this text proved reversals within {policy.reversals.rate:.1%}"


def _build_enforced_policy(policy: Policy) -> Policy:
    return msgspec.structs.replace(policy, mode="enforce")


def _require_name(by: str) -> str:
    if not by.strip():
        raise UsageError("the person who trusts it is not named", hint="give --by NAME")
    return by.strip()


def _require_reason(text: str) -> str:
    reason = " ".join(make_printable(text).split())
    if not reason:
        raise UsageError("trust by hand needs a reason", hint='--reason "reviewed with SRE"')
    if len(reason) > MOST_REASON:
        raise UsageError(f"the reason has {len(reason)} characters; legal: {MOST_REASON} at most")
    return reason
