"""A Mimir whose queriers read an hour."""

from tests.field.front import build_error, refuse_longer
from tests.field.through_a_front import build_situation

REASON = (
    "expanding series: the query time range exceeds the limit (query length: 6h1m9.796s, "
    "limit: 1h0m0s) (err-mimir-max-query-length)"
)

SITUATION = build_situation(refuse_longer(1, 422, build_error(REASON)))
