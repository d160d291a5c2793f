"""Print the admission policies of a site, of its own policies and of its journal."""

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from actions import executors
from actions.admission.manifests import build_manifests
from actions.admission.scopes import (
    list_role_writes,
    read_own_scopes,
    read_scopes,
    read_standing_scopes,
)
from actions.policy.model import Policy
from fallow.action_models import Action
from fallow.errors import UsageError
from fallow.settings import Settings

ACCOUNTS = ("fallow", "fallow-actor")
"""The accounts of the chart: of the one workload, and of the actor where roles are split."""
HEAD = """\
# Written by `fallow policy admission` from the policies of this site. Write it again after
# every change of them.
# It binds {accounts}, and no other account or person.
# Not visible here, and so checked by Fallow alone: evidence, owner, queue, GPU model, duration,
# budgets, and pod labels in requests of a subresource.
"""


def write_page(
    settings: Settings,
    policies: Sequence[Policy],
    standing: Iterable[Action],
    accounts: Sequence[str] = (),
) -> str:
    """Return the manifests as YAML.

    Raises:
        UsageError: an account is not written as NAMESPACE/NAME.
    """
    accounts = accounts or list_accounts(settings)
    for account in accounts:
        if account.count("/") != 1 or not all(account.split("/")):
            raise UsageError(
                f"{account!r} is no service account; legal: NAMESPACE/NAME",
                hint=f"fallow policy admission --account {list_accounts(settings)[0]}",
            )
    documents = list_documents(settings, policies, standing, accounts)
    head = HEAD.format(accounts=", ".join(accounts))
    return head + yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, width=1000)


def list_accounts(settings: Settings) -> list[str]:
    """Return the accounts that the chart makes for the actor, as NAMESPACE/NAME."""
    return [f"{settings.actions.lease.namespace}/{name}" for name in ACCOUNTS]


def list_documents(
    settings: Settings,
    policies: Sequence[Policy],
    standing: Iterable[Action],
    accounts: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the manifests: of policies, of the actor's own objects, and of actions in force."""
    installed = executors.load_executors()
    scopes = (
        *read_own_scopes(settings.actions),
        *read_scopes(policies, installed, settings.cluster),
        *read_standing_scopes(standing),
    )
    fingerprints = ", ".join(f"{policy.name} {policy.fingerprint}" for policy in policies)
    return build_manifests(list_role_writes(installed), scopes, accounts, fingerprints)
