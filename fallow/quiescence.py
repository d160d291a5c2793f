"""Define up to which use a pod's host is quiescent. Source: telemetry-and-waste.md#idle, K3."""

CPU_SHARE = 0.05
"""Cores per requested core at or below which a host is quiescent."""

BYTES_S = 10_000
"""Network or file system bytes per second from which a pod is active: read or written."""

IO_PRESSURE = 0.05
"""Share of time in which a task waited for I/O from which a pod is active, as `CPU_SHARE`."""
