"""The capabilities of the installed executors: a policy may name only these."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from fallow.plugins import find_installed, load


class Capabilities(msgspec.Struct, frozen=True):
    """Words allowed in `act` of a policy, with the verbs that each stands for."""

    verbs_by_word: Mapping[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, executors: Iterable[Any]) -> "Capabilities":
        """Return what executors (their classes) can do: capabilities first, then single verbs."""
        by_word: dict[str, set[str]] = {}
        classes = list(executors)
        for executor in classes:
            for capability in executor.capabilities:
                by_word.setdefault(capability, set()).update(executor.verbs)
        for executor in classes:
            for verb in executor.verbs:
                by_word.setdefault(verb, {verb})
        return cls({word: tuple(sorted(verbs)) for word, verbs in sorted(by_word.items())})

    def verbs(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return the verbs that words stand for; a word without an executor stands for none."""
        return tuple(sorted({v for word in words for v in self.verbs_by_word.get(word, ())}))


@cache
def find_installed_capabilities() -> Capabilities:
    """Return the capabilities that are installed here."""
    return Capabilities.of(load("executors", name) for name in find_installed("executors"))
