"""A job evicted while it prepares."""

from tests.field.resting import build_situation, rest

PARTS = [
    rest("prepares", kind="Job", host={"container_fs_reads_bytes_total": 80e6 * 60}),
    rest("rest", kind="Job"),
]

SITUATION = build_situation("K", PARTS, {"prepares": "no finding", "rest": ""})
