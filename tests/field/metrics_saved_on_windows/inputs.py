"""The same text in four encodings."""

import gzip

from tests.field.site import list_lines
from tests.field.situation import Situation


def _write(uuid: str) -> str:
    return "\r\n".join([*list_lines(uuid, "win"), ""])


COUNTS = "select cluster, device, count(gpu_util_pct) as n from sample group by all order by device"

SITUATION = Situation(
    kind="I",
    texts=[
        b"\xef\xbb\xbf" + _write("GPU-utf8").encode(),
        _write("GPU-utf16").encode("utf-16"),
        gzip.compress(_write("GPU-gzip").encode()),
    ],
    answers={COUNTS: [{"device": f"GPU-{name}", "n": 72} for name in ("gzip", "utf16", "utf8")]},
)
