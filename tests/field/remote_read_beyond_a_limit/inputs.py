"""A Mimir whose remote read and whose queries reach an hour."""

from tests.field.front import build_error, refuse_longer
from tests.field.through_a_front import build_situation

REASON = (
    "the query time range exceeds the limit (query length: 6h0m0s, limit: 1h0m0s) "
    "(err-mimir-max-query-length)"
)
_LONG = refuse_longer(1, 422, build_error(REASON))


def _answer(path: str, status: int, body: bytes) -> tuple[int, bytes]:
    return (500, REASON.encode()) if path.endswith("/read") else _LONG(path, status, body)


SITUATION = build_situation(_answer)
