"""The rules between pods for which no placement checks nodes (`pod.constraints`)."""

RULES = {
    "ports": "it takes a port of its node",
    "apart": "it must stand apart from other pods",
    "beside": "it must stand beside other pods",
    "spread": "it is spread over parts of the cluster",
}
"""By name, as the collector stores them, in words."""
