"""Each state of the ledger has a colour of its own, also for the colour-blind."""

import itertools
import tomllib

import numpy as np
import numpy.typing as npt
import pytest

from dashboards.charts import STATE_COLOURS
from dashboards.serving import CONFIG
from fallow.models import STATES

Rgb = npt.NDArray[np.float64]
SIGHT = {
    # Machado, Oliveira, Fernandes 2009: severity 1, in linear sRGB.
    "trichromat": np.eye(3),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanope": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
TO_CONES = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
TO_LAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip
LEAST_DISTANCE, LEAST_FROM_PAGE = 0.085, 0.25
THEME = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"]


def to_linear(colour: str) -> Rgb:
    parts = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def to_oklab(rgb: Rgb) -> Rgb:
    """Return OKLab (Ottosson 2020)."""
    lab: Rgb = TO_LAB @ np.cbrt(TO_CONES @ np.clip(rgb, 0, 1))
    return lab


def test_every_state_has_a_colour() -> None:
    assert set(STATE_COLOURS) == set(STATES)


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_states_differ(sight: str) -> None:
    seen = {name: to_oklab(SIGHT[sight] @ to_linear(c)) for name, c in STATE_COLOURS.items()}
    near = {
        (one, other): float(np.linalg.norm(seen[one] - seen[other]))
        for one, other in itertools.combinations(seen, 2)
    }
    assert min(near.values()) >= LEAST_DISTANCE, min(near, key=lambda pair: near[pair])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_is_seen_on_both_pages(scheme: str, sight: str) -> None:
    behind = to_oklab(SIGHT[sight] @ to_linear(THEME[scheme]["backgroundColor"]))
    far = {
        name: float(np.linalg.norm(to_oklab(SIGHT[sight] @ to_linear(c)) - behind))
        for name, c in STATE_COLOURS.items()
    }
    assert min(far.values()) >= LEAST_FROM_PAGE, min(far, key=lambda name: far[name])
