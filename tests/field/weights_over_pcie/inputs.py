"""PCIe is busy while all activity is 0; in the twin PCIe is quiet."""

from dataclasses import replace

from tests.field.history import scrape_job, scrape_node
from tests.field.site import IDLE
from tests.field.situation import Situation

REST = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 50.0}

SITUATION = Situation(
    kind="S",
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job(
            "a",
            {**REST, "DCGM_FI_PROF_PCIE_RX_BYTES": 2e9, "DCGM_FI_PROF_PCIE_TX_BYTES": 1e6},
            model="NVIDIA A30",
        ),
    ],
    findings={"ml/train": {"evidence": "suspected", "actionable": False}},
)
TWIN = replace(
    SITUATION,
    scrapes=[
        *scrape_node("a", 1),
        *scrape_job(
            "a",
            {**REST, "DCGM_FI_PROF_PCIE_RX_BYTES": 1e4, "DCGM_FI_PROF_PCIE_TX_BYTES": 1e4},
            model="NVIDIA A30",
        ),
    ],
    findings={"ml/train": {"evidence": "confirmed", "actionable": True}},
)
