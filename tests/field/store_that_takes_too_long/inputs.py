"""A Thanos whose store needs long for long windows."""

from tests.field.front import build_error, refuse_longer
from tests.field.through_a_front import build_situation

REASON = (
    "expanding series: proxy Series(): rpc error: code = Unknown desc = context deadline exceeded"
)

SITUATION = build_situation(refuse_longer(1, 422, build_error(REASON)))
