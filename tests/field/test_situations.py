"""Situations of dumps, exposition texts and tables: a home a kind, one cluster each."""

import pytest

from tests.field.homes import Homes, check_situation, list_parameters

pytestmark = pytest.mark.timeout(1800)  # the first test of a kind makes its home


@pytest.mark.parametrize("name", list_parameters(lambda each: not each.scrapes and not each.waits))
def test_situation(name: str, homes: Homes) -> None:
    check_situation(homes, name)
