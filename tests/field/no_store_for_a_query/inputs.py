"""Three days of a Thanos that has six hours."""

from tests.field.through_a_front import answer_before_the_store, build_situation

_NONE = (
    '{{"status":"success","data":{{"resultType":"{kind}","result":[]}},'
    '"warnings":["No StoreAPIs matched for this query"]}}'
)

SITUATION = build_situation(
    answer_before_the_store(lambda kind: (200, _NONE.format(kind=kind).encode())), since="3d"
)
