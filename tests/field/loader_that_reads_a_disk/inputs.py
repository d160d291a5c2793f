"""A loader that reads a local disk."""

from tests.field.resting import build_situation, rest

READS = "container_fs_reads_bytes_total"
PARTS = [
    rest("reads", kind="Notebook", host={READS: 150e6 * 60}),
    rest("log", kind="Notebook", host={READS: 5e3 * 60}),
]

SITUATION = build_situation("K", PARTS, {"reads": "no finding", "log": ""})
