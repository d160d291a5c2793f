"""Price commitments: what reserved capacity costs per hour, and how much of it was used."""

from collections.abc import Callable, Sequence
from datetime import datetime

from collectors.prices.parts import QUANTUM
from collectors.prices.rate_card import batch, get_utc_now
from fallow.errors import UsageError
from fallow.settings.prices import ReservedCapacity
from fallow.tables import Batch
from fallow.window import Window


class Commitments:
    """A site's commitments as a price source: rows with term `reserved`."""

    def __init__(
        self, commitments: Sequence[ReservedCapacity], clock: Callable[[], datetime] = get_utc_now
    ) -> None:
        """Take the commitments that may overlap in time.

        Raises:
            UsageError: one of them ends before it starts.
        """
        for each in commitments:
            if each.end <= each.start:
                raise UsageError(f"commitment {each.name!r} ends before it starts")
        self._commitments = tuple(commitments)
        self._clock = clock

    def rates(self, window: Window) -> Batch:
        """Return the `rate` rows of the commitments that run in the window."""
        return batch(
            {
                "source": f"commitment {c.name}",
                "provider": c.provider,
                "region": c.region,
                "instance_type": c.instance_type,
                "gpu_model": c.gpu_model,
                "term": "reserved",
                "valid_from": c.start,
                "valid_to": c.end,
                "as_of": self._clock(),
                "gpu_count": c.gpus_per_node,
                "nodes": c.nodes,
                "node_usd_h": c.usd_per_node_hour,
                "gpu_usd_h": (c.usd_per_node_hour / c.gpus_per_node).quantize(QUANTUM),
                "reference": f"commitment {c.name}",
            }
            for c in self._commitments
            if c.start < window.end and c.end > window.start
        )
