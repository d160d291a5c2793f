"""A Prometheus that takes ranges of less than 32 days."""

from tests.field.front import build_error, refuse_longer
from tests.field.through_a_front import build_situation

REASON = (
    "queries with long day range (32d to 95d) are currently only supported for range type queries"
)

SITUATION = build_situation(refuse_longer(32 * 24, 422, build_error(REASON)), since="40d")
