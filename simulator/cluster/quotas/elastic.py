"""scheduler-plugins ElasticQuota: a guaranteed min, a cap max, and what others leave over."""

from collections.abc import Iterable, Mapping

import msgspec

from simulator.cluster.quotas.claims import Claim, Verdict


class ElasticQuota(msgspec.Struct, frozen=True):
    """A namespace's quota; a resource absent of `min` is 0, absent of `max` unlimited."""

    namespace: str
    min: Mapping[str, int]
    max: Mapping[str, int] = {}


class ElasticQuotas:
    """All ElasticQuotas and what is held of them."""

    def __init__(self, quotas: Iterable[ElasticQuota]) -> None:
        self.quotas = {quota.namespace: quota for quota in quotas}

    def configure(self, quotas: Iterable[ElasticQuota]) -> None:
        """Replace the quotas; what is held stays held."""
        raise NotImplementedError

    def hold(self, claim: Claim, since_s: float = 0.0) -> None:
        """Count a placed pod or gang."""
        raise NotImplementedError

    def release(self, uid: str) -> None:
        """Stop counting it."""
        raise NotImplementedError

    def admit(self, claim: Claim) -> Verdict:
        """Judge one claim; holds nothing. A namespace without a quota is always admitted."""
        raise NotImplementedError

    def may(self, claim: Claim, victim: str) -> bool:
        """Say whether a held claim yields to this one (`scheduler.preempting.victims`)."""
        raise NotImplementedError
