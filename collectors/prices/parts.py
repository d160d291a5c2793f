"""Split a node's price into the prices of its GPUs, cores and memory."""

from decimal import ROUND_DOWN, Decimal

import msgspec

CPU_BASE = Decimal("0.031611")
"""USD per core-hour, OpenCost's default base price (its default pricing file)."""
MEMORY_BASE = Decimal("0.004237")
"""USD per GiB-hour, OpenCost's default base price."""
GPU_BASE = Decimal("0.95")
"""USD per GPU-hour, OpenCost's default: one price for every model."""
QUANTUM = Decimal("0.00000001")
"""Money has eight decimals (`fallow.tables`)."""


class PriceParts(msgspec.Struct, frozen=True):
    """The parts of one node's hourly price in USD; their sum is the price, exactly."""

    gpus: int
    vcpu: Decimal
    memory_gib: Decimal
    gpu: Decimal
    cpu: Decimal
    memory: Decimal

    @property
    def total(self) -> Decimal:
        """Return the node's price in USD per hour."""
        return self.gpu + self.cpu + self.memory

    @property
    def gpu_usd_h(self) -> Decimal:
        """Return USD per GPU-hour of the GPU part, to eight decimals."""
        return (self.gpu / self.gpus).quantize(QUANTUM)

    @property
    def cpu_usd_h(self) -> Decimal | None:
        """Return USD per core-hour, null for a node without cores."""
        return (self.cpu / self.vcpu).quantize(QUANTUM) if self.vcpu else None

    @property
    def memory_usd_h(self) -> Decimal | None:
        """Return USD per GiB-hour, null for a node without memory."""
        return (self.memory / self.memory_gib).quantize(QUANTUM) if self.memory_gib else None


def split(
    node_usd_h: Decimal,
    gpus: int,
    vcpu: Decimal,
    memory_gib: Decimal,
    *,
    gpu_base: Decimal = GPU_BASE,
    cpu_base: Decimal = CPU_BASE,
    memory_base: Decimal = MEMORY_BASE,
) -> PriceParts:
    """Split a node's price (USD/h) in proportion to amounts times base prices.

    OpenCost's normalisation (OpenCost specification, appendix A): the parts keep the ratio of
    their base prices and are scaled until they sum to the node's price. Cores and memory are
    rounded down to eight decimals; the GPUs take the remainder, so that the sum is exact.
    """
    weights = gpus * gpu_base, vcpu * cpu_base, memory_gib * memory_base
    scale = node_usd_h / sum(weights)
    cpu = (weights[1] * scale).quantize(QUANTUM, ROUND_DOWN)
    memory = (weights[2] * scale).quantize(QUANTUM, ROUND_DOWN)
    return PriceParts(gpus, vcpu, memory_gib, node_usd_h - cpu - memory, cpu, memory)
