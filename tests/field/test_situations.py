"""Situations of dumps, exposition texts and tables: one home, one cluster each."""

import pytest

from tests.field.homes import Home, check_situation, list_parameters


@pytest.mark.parametrize("name", list_parameters(lambda situation: not situation.scrapes))
def test_situation(name: str, home: Home) -> None:
    check_situation(home, name)
