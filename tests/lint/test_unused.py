"""The lint of unused code reports what nothing names, and exceptions that excuse nothing."""

from pathlib import Path

from tests.lint import unused

MODULE = '''
"""A module."""

import msgspec


class Sample(msgspec.Struct):
    """A record."""

    device: str
    LIMIT = 3


class Plugin:
    """Loaded by its entry point."""


def never_called() -> Sample:
    """Return a record."""
    return Sample("gpu-0")
'''


def test_what_nothing_names_is_reported_but_no_field_and_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(MODULE)
    items = unused.list_unused(tmp_path, ("package",), {"Plugin"})
    assert [(item.kind, item.name) for item in items] == [
        ("variable", "LIMIT"), ("function", "never_called"),
    ]  # fmt: skip
    assert items[1].path == "package/module.py"


def test_entry_points_name_what_they_load() -> None:
    text = """
[project.scripts]
fallow = "runtime.cli:main"
[project.entry-points."fallow.analyzers"]
idle = "analyzers.idle:IdleAnalyzer"
"""
    assert unused.entry_points(text) == {"main", "IdleAnalyzer"}


def test_an_exception_excuses_by_pattern_and_must_excuse_something() -> None:
    items = [
        unused.Unused("a/b.py", 7, "method", "do_GET"),
        unused.Unused("a/c.py", 9, "class", "X"),
    ]
    exceptions = [
        unused.Allowed("a/b.py", "do_*", "the server calls it"),
        unused.Allowed("a/*", "Gone", "it was deleted"),
    ]
    assert list(unused.check(items, exceptions)) == [
        "a/c.py:9: unused class 'X'",
        "allowed_unused.csv: a/*,Gone: used or gone by now; remove this line",
    ]


def test_every_exception_has_a_reason() -> None:
    assert all(exception.reason for exception in unused.read_exceptions())
