"""A mail server and a webhook for each test that asks for one."""

from collections.abc import Iterator

import pytest

from tests.delivery.receivers import Clock, Hook, Post, hooked, posted


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands at NOW."""
    return Clock()


@pytest.fixture
def post() -> Iterator[Post]:
    """Run an SMTP server on a free port."""
    with posted() as made:
        yield made


@pytest.fixture
def hook() -> Iterator[Hook]:
    """Run a webhook on a free port."""
    with hooked() as made:
        yield made
