"""Three days of a Thanos that has six hours and gives no partial answers."""

from tests.field.front import build_error
from tests.field.through_a_front import answer_before_the_store, build_situation

_NONE = build_error(
    "expanding series: proxy Series(): rpc error: code = Aborted desc = "
    "No StoreAPIs matched for this query"
)

SITUATION = build_situation(answer_before_the_store(lambda _: (422, _NONE)), since="3d")
