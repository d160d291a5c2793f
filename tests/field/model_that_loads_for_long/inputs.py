"""Scaled to zero while its model loads."""

from tests.field.resting import VLLM, build_situation, load, rest

READS = "container_fs_reads_bytes_total"
PARTS = [
    rest("loads", serving=load("loads", VLLM), host={READS: 150e6 * 60}),
    rest("rest", serving=load("rest", VLLM)),
]

SITUATION = build_situation("K", PARTS, {"loads": "no finding", "rest": ""})
