"""A fleet's exposition text as dcgm-exporter prints it: 8 GPUs a node, 25 fields, 326 B a line."""

import random

FIELDS = (
    ("DCGM_FI_DEV_SM_CLOCK", 300, 1980, "d"),
    ("DCGM_FI_DEV_MEM_CLOCK", 2619, 2620, "d"),
    ("DCGM_FI_DEV_MEMORY_TEMP", 30, 95, "d"),
    ("DCGM_FI_DEV_GPU_TEMP", 25, 85, "d"),
    ("DCGM_FI_DEV_POWER_USAGE", 60, 700, "f"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 10**9, 10**12, "d"),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 0, 2, "d"),
    ("DCGM_FI_DEV_GPU_UTIL", 0, 101, "d"),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", 0, 101, "d"),
    ("DCGM_FI_DEV_ENC_UTIL", 0, 1, "d"),
    ("DCGM_FI_DEV_DEC_UTIL", 0, 1, "d"),
    ("DCGM_FI_DEV_XID_ERRORS", 0, 1, "d"),
    ("DCGM_FI_DEV_FB_FREE", 0, 81559, "d"),
    ("DCGM_FI_DEV_FB_USED", 0, 81559, "d"),
    ("DCGM_FI_DEV_FB_RESERVED", 400, 500, "d"),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 0, 1, "d"),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1, "d"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0, 1, "f"),
    ("DCGM_FI_PROF_SM_ACTIVE", 0, 1, "f"),
    ("DCGM_FI_PROF_SM_OCCUPANCY", 0, 1, "f"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0, 1, "f"),
    ("DCGM_FI_PROF_DRAM_ACTIVE", 0, 1, "f"),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 0, 1, "f"),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", 0, 10**10, "d"),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", 0, 10**10, "d"),
)
GPUS = 8


def render_node(node: int, scrape: int) -> bytes:
    """Return one node's exposition at one scrape: same series, other values."""
    values = random.Random(node * 7919 + scrape)
    labels = [_render_labels(node, gpu) for gpu in range(GPUS)]
    lines: list[str] = []
    for name, low, high, kind in FIELDS:
        lines += [
            f"# HELP {name} One field of the shipped list as the exporter explains it.",
            f"# TYPE {name} gauge",
        ]
        for text in labels:
            value = low + values.random() * (high - low)
            lines.append(f"{name}{text} {int(value) if kind == 'd' else f'{value:.6f}'}")
    return ("\n".join(lines) + "\n").encode()


def _render_labels(node: int, gpu: int) -> str:
    uuid = f"{node:08x}-{gpu:04x}-4c1e-9a57-{node * GPUS + gpu:012x}"
    job = (node * GPUS + gpu) // 4
    return (
        f'{{gpu="{gpu}",UUID="GPU-{uuid}",pci_bus_id="00000000:{gpu + 24:02X}:00.0",'
        f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-{node:05d}",'
        f'DCGM_FI_DRIVER_VERSION="570.133.20",container="trainer",namespace="team-{job % 40:02d}",'
        f'pod="pretrain-{job:06d}-worker-{node % 16}"}}'
    )
