"""The objectives of a service: from its owner's annotation, else from the site's settings.

fallow.dev/slo: e2e<=2s@99%, ttft<=300ms@95%
"""

import re
from collections.abc import Sequence

from fallow.errors import UsageError
from fallow.settings.service_levels import Objective
from fallow.window import parse_duration

SLO = "fallow.dev/slo"
_OBJECTIVE = re.compile(r"([\w.:-]+)\s*<=\s*([\w.]+)\s*@\s*([\d.]+)\s*%")


def parse_objectives(text: str) -> list[Objective]:
    """Parse an annotation.

    Raises:
        UsageError: it cannot be parsed.
    """
    try:
        return [_parse_objective(part.strip()) for part in text.split(",")]
    except (ValueError, UsageError) as error:
        raise UsageError(
            f"{SLO} is {text!r}: not like e2e<=2s@99%, ttft<=300ms@95% (50% to below 100%)"
        ) from error


def _parse_objective(text: str) -> Objective:
    match = _OBJECTIVE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    metric, within, share = match.groups()
    return Objective(
        metric=metric, within=parse_duration(within), target=round(float(share) / 100, 9)
    )


def find_objectives(
    settings: Sequence[Objective], namespace: str, workload: str, metrics: Sequence[str]
) -> list[Objective]:
    """Return the settings' objective of each metric: the most specific, of several the last."""
    by_metric: dict[str, Objective] = {}
    for objective in sorted(settings, key=lambda o: (bool(o.workload), bool(o.namespace))):
        ours = objective.namespace in {"", namespace} and objective.workload in {"", workload}
        if ours and objective.metric in metrics:
            by_metric[objective.metric] = objective
    return list(by_metric.values())
