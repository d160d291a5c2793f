"""A VictoriaMetrics that reads only so many samples for a query."""

from tests.field.front import build_error, refuse_longer
from tests.field.through_a_front import build_situation

REASON = (
    "error occured during search: cannot fetch query results from vmstorage nodes: cannot process "
    "MetricBlock #1: cannot select more than -search.maxSamplesPerQuery=1000000000 samples; "
    "possible solutions: to increase the -search.maxSamplesPerQuery; to reduce time range"
)

SITUATION = build_situation(refuse_longer(1, 422, build_error(REASON, "422")))
