"""Judge by quotas, and by quotas together with what a queue may borrow."""

from collections.abc import Mapping
from typing import Protocol

from capacity.placement.fleet_state import WorkloadKey
from capacity.quota.room import BorrowAnswer, QuotaAnswer


class QuotaJudge(Protocol):
    """Says whether quotas let devices in; `capacity.quota.room.QuotaRoom` is one."""

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return whether a cluster's quotas let these devices in; `needs` is by resource."""
        ...

    def find_lenders(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> BorrowAnswer:
        """Return whether a queue may borrow what it lacks of its own quota, and from whom."""
        ...


class BorrowedQuota:
    """Quotas that let in also what a queue may borrow of its cohort."""

    def __init__(self, quotas: QuotaJudge) -> None:
        self._quotas = quotas

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return whether these devices are let in, borrowed ones included."""
        own = self._quotas.admits(cluster, namespace, queue, needs)
        if own.admitted or queue is None:
            return own
        loan = check_loan(self._quotas, (cluster, namespace, "", ""), queue, needs)
        return QuotaAnswer(loan.admitted, loan.why)

    def find_lenders(
        self, cluster: str, namespace: str, queue: str, needs: Mapping[str, float]
    ) -> BorrowAnswer:
        """Return the answer of the quotas themselves."""
        return self._quotas.find_lenders(cluster, namespace, queue, needs)


class RaisedQuota(BorrowedQuota):
    """Quotas as they would be if those that refuse were raised."""

    def admits(
        self, cluster: str, namespace: str, queue: str | None, needs: Mapping[str, float]
    ) -> QuotaAnswer:
        """Return what the quotas say; a refusal by an amount counts as raised."""
        own = self._quotas.admits(cluster, namespace, queue, needs)
        return QuotaAnswer(True) if own.admitted is False and not own.is_final else own


def check_loan(
    quotas: QuotaJudge, key: WorkloadKey, queue: str, needs: Mapping[str, float]
) -> BorrowAnswer:
    """Return whether its namespace's limits and its cohort let a queue borrow what it lacks."""
    cluster, namespace, _, _ = key
    limit = quotas.admits(cluster, namespace, None, needs)
    if not limit.admitted:
        return BorrowAnswer(limit.admitted, limit.why)
    return quotas.find_lenders(cluster, namespace, queue, needs)
