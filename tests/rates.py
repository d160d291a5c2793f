"""One rate for every GPU."""

from datetime import datetime
from decimal import Decimal

from fallow.tables import Batch


def every_gpu(usd_h: str) -> Batch:
    """Return the rate of an override: any GPU, so many dollars an hour, since 2020."""
    return Batch.of(
        "rate",
        {
            "source": ["settings"],
            "provider": ["override"],
            "region": [""],
            "zone": [""],
            "instance_type": [""],
            "gpu_model": [""],
            "cluster": [""],
            "term": ["on-demand"],
            "valid_from": [datetime(2020, 1, 1)],  # noqa: DTZ001
            "gpu_count": [1],
            "node_usd_h": [Decimal(usd_h)],
            "gpu_usd_h": [Decimal(usd_h)],
        },
    )
