"""A Mimir whose tenant may ask for an hour."""

from tests.field.front import build_error, refuse_longer
from tests.field.through_a_front import build_situation

REASON = (
    "the total query time range exceeds the limit (query length: 6h0m0s, limit: 1h0m0s) "
    "(err-mimir-max-total-query-length)"
)

SITUATION = build_situation(refuse_longer(1, 400, build_error(REASON, "bad_data")))
