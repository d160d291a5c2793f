"""The schedulers' quota objects: how each is read as an account, and which fields a step writes.

The keys are the kinds in the `quota` table. Two CRDs are called `queues` and three `elasticquotas`:
the API group tells them apart.
"""

from actions.quota.systems import elastic_quota, kai, kueue, resource_quota, volcano
from actions.quota.systems.system import CountedResource, FieldChange, QuotaSystem

__all__ = ["SYSTEMS", "CountedResource", "FieldChange", "QuotaSystem"]

SYSTEMS: dict[str, QuotaSystem] = {
    system.kind: system
    for system in (
        resource_quota.SYSTEM,
        kueue.SYSTEM,
        volcano.SYSTEM,
        kai.SYSTEM,
        elastic_quota.PLUGINS,
        elastic_quota.KOORDINATOR,
        elastic_quota.NOS,
        elastic_quota.NOS_COMPOSITE,
    )
}
