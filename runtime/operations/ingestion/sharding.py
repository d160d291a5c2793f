"""Divide the settings' targets among shards: each collector reads its own part."""

from fallow.settings import Settings
from fallow.shards import Shard
from runtime.operations.ingestion.collection import SOURCES

PRICES = "prices"
"""The target that stands for a cluster's prices: the shard that owns it reads them."""


def list_targets(settings: Settings) -> list[str]:
    """Return every target that is collected, once.

    These are the exporters, trainers and notebook servers, and Kubernetes and Prometheus as one
    target each. NVML is not among them: it reads the machine of its own process.
    """
    return list(
        dict.fromkeys(
            [
                *settings.exporters.targets,
                *settings.exporters.trainers,
                *settings.jupyter.servers,
                *(["kubernetes"] if settings.kubernetes.enabled else []),
                *([settings.prometheus.url] if settings.prometheus.url else []),
            ]
        )
    )


def select_targets(settings: Settings, shard: Shard) -> Settings:
    """Return the settings with the targets of one shard only."""
    exporters, jupyter = settings.exporters, settings.jupyter
    kubernetes, prometheus = settings.kubernetes, settings.prometheus
    url = prometheus.url if shard.owns(prometheus.url) else ""
    enabled = kubernetes.enabled and shard.owns("kubernetes")
    changes = {
        "exporters": {
            "targets": [target for target in exporters.targets if shard.owns(target)],
            "trainers": [target for target in exporters.trainers if shard.owns(target)],
        },
        "jupyter": {"servers": [server for server in jupyter.servers if shard.owns(server)]},
        "kubernetes": {"enabled": enabled},
        "prometheus": {"url": url},
    }
    unknown = set(changes) ^ {s.section for s in SOURCES.values() if not s.is_here}
    if unknown:
        raise RuntimeError(f"sources without a rule of division: {', '.join(sorted(unknown))}")
    own = {
        name: getattr(settings, name).model_copy(update=values) for name, values in changes.items()
    }
    others = {name: part for name, part in settings.plugins.items() if shard.owns(name)}
    return settings.model_copy(update={**own, "plugins": others})
