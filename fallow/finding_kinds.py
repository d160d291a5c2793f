"""What analyzers declare of their findings: words, and the place in the waterfall.

An analyzer's package, its own or another distribution's, has `kinds.toml`: its title, the kinds of
its findings in words, a sentence and a unit for each key of their details, and what the waterfall
gives it. An analyzer without that file has readable names, and takes last.
"""

import logging
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from fallow.plugins import find_installed, is_own

logger = logging.getLogger(__name__)
FILE = "kinds.toml"


class WaterfallPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an analyzer stands in the waterfall, and why."""

    place: int
    takes: Literal["hours", "shares"]
    """Of hours in use: certain hours, or a share of those that are left."""
    why: str


class DetailWords(msgspec.Struct, frozen=True, array_like=True):
    """The sentence and the unit of a detail; an empty sentence = it is not shown."""

    sentence: str
    unit: str


class AnalyzerDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one analyzer says of its findings."""

    title: str
    only_owner: bool = False
    """Only the owner of a workload can follow its advice."""
    waterfall: WaterfallPlace | None = None
    kinds: Mapping[str, str] = {}
    details: Mapping[str, DetailWords] = {}


@cache
def read_declarations() -> Mapping[str, AnalyzerDeclaration]:
    """Return what the installed analyzers declare, by name, in the order of the waterfall."""
    declared = {name: _read_declaration(name) for name in find_installed("analyzers")}
    return dict(sorted(declared.items(), key=lambda item: get_rank(item[1])))


def get_rank(declaration: AnalyzerDeclaration | None) -> float:
    """Return an analyzer's place in the waterfall; without one it is the last."""
    if declaration is None or declaration.waterfall is None:
        return float("inf")
    return declaration.waterfall.place


@cache
def read_kinds() -> Mapping[str, str]:
    """Return the words of every kind of finding."""
    return {kind: words for d in read_declarations().values() for kind, words in d.kinds.items()}


def _read_declaration(name: str) -> AnalyzerDeclaration:
    package = find_installed("analyzers")[name].module.rpartition(".")[0]
    nothing = AnalyzerDeclaration(name.replace("-", " ").replace("_", " ").capitalize())
    if not package:
        return nothing
    try:
        text = files(package).joinpath(FILE).read_text(encoding="utf-8")
        return msgspec.convert(tomllib.loads(text), AnalyzerDeclaration)
    except FileNotFoundError:
        return nothing
    except Exception as error:
        if is_own("analyzers", name):
            raise
        logger.warning("%s of the analyzer %s cannot be read: %s", FILE, name, error)
        return nothing
