"""Processes in state D on NFS."""

from tests.field.resting import build_situation, rest

PRESSURE = "container_pressure_io_waiting_seconds_total"
PARTS = [
    rest("waits", kind="Notebook", host={PRESSURE: 60}),
    rest("calm", kind="Notebook", host={PRESSURE: 0.2}),
]

SITUATION = build_situation("K", PARTS, {"waits": "no finding", "calm": ""})
