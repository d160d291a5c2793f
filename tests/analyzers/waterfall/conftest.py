"""A ledger that every example of a property fills anew."""

from collections.abc import Iterator

import pytest

from tests.analyzers.conftest import Memory


@pytest.fixture(scope="module")
def ledger() -> Iterator[Memory]:
    """Return one engine for a whole property: making it costs more than an example."""
    memory = Memory()
    yield memory
    memory.engine.close()
