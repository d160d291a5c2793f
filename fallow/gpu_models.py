"""Resolve GPU models: the canonical model of a driver's model string (`gpu_models.csv`)."""

import re
from functools import cache

import msgspec

from fallow.resources import read_table


class GpuModel(msgspec.Struct, frozen=True):
    """Facts about one GPU model; watts are priors until enough samples of the fleet exist.

    Source: vendor data sheets for memory and TDP; idle watts from "The Model Parking Tax"
    (arXiv 2605.23918: a CUDA context adds 26-66 W) and estimates for older models.
    """

    gpu_model: str
    pattern: str
    vendor: str
    arch: str
    memory_gib: float
    tdp_w: float
    idle_bare_w: float
    idle_context_w: float
    mig_slices: int | None


@cache
def read_gpu_models() -> tuple[GpuModel, ...]:
    """Return every known model; the first whose pattern matches wins."""
    return tuple(
        GpuModel(
            row["gpu_model"],
            row["pattern"],
            row["vendor"],
            row["arch"],
            float(row["memory_gib"]),
            float(row["tdp_w"]),
            float(row["idle_bare_w"]),
            float(row["idle_context_w"]),
            int(row["mig_slices"]) if row["mig_slices"] else None,
        )
        for row in read_table("fallow", "gpu_models.csv")
    )


@cache
def find_gpu_model(model: str | None) -> GpuModel | None:
    """Return the model that a driver's or a label's string names, or None.

    Label spellings write hyphens for spaces: `NVIDIA-H100-80GB-HBM3`.
    """
    if not model:
        return None
    spaced = model.replace("-", " ").replace("_", " ")
    for candidate in read_gpu_models():
        if re.search(candidate.pattern, spaced):
            return candidate
    return None


def get_least_power_w(model: str | None) -> float:
    """Return the watts below which a model's power is no reading: half of those of an unused GPU.

    A sensor that is broken reads 0; a GPU that is on never uses so little. 0 for unknown models.
    """
    gpu_model = find_gpu_model(model)
    return gpu_model.idle_bare_w / 2 if gpu_model else 0.0


def get_model_name(text: str | None) -> str | None:
    """Return the one name of a GPU model: the canonical one, else the text as a label writes it.

    For a model that the table does not have, the driver's name (`Acme Quark 7`) and the node
    label's (`Acme-Quark-7`) give the same result.
    """
    if not text or not text.strip():
        return None
    gpu_model = find_gpu_model(text)
    return gpu_model.gpu_model if gpu_model else re.sub(r"[\s_]+", "-", text.strip())


def parse_models(text: str | None) -> tuple[str, ...]:
    """Return the canonical GPU models of names with `|` or commas between them, each once.

    A name without a memory size is each size: a pod that asks for `A100` gets any A100.
    """
    return tuple(sorted({name for word in re.split(r"[|,]", text or "") for name in _expand(word)}))


def _expand(word: str) -> set[str]:
    family = f"{word.strip().upper()}-"
    sizes = {model.gpu_model for model in read_gpu_models() if model.gpu_model.startswith(family)}
    name = get_model_name(word)
    return sizes or ({name} if name else set())
