"""The schedulers' quota objects: how each is read as an account, and which fields a step writes.

Keyed by the kinds that the `quota` table has. Two CRDs are called `queues` and three
`elasticquotas`: it is the API group that tells them apart.
"""

from actions.quota.systems import elastic, kai, kueue, plain, volcano
from actions.quota.systems.system import Field, Part, System

__all__ = ["SYSTEMS", "Field", "Part", "System"]

SYSTEMS: dict[str, System] = {
    system.kind: system
    for system in (
        plain.SYSTEM,
        kueue.SYSTEM,
        volcano.SYSTEM,
        kai.SYSTEM,
        elastic.PLUGINS,
        elastic.KOORDINATOR,
        elastic.NOS,
        elastic.NOS_COMPOSITE,
    )
}
