"""The settings in force: those that the command line gave, else as every command loads them."""

from fallow.settings import Settings, load

_given: list[Settings] = []


def use(settings: Settings) -> None:
    """Take these settings from now on."""
    _given[:] = [settings]


def settings() -> Settings:
    """Return the settings in force.

    Raises:
        SettingsError: they are not legal.
    """
    if not _given:
        use(load().settings)
    return _given[0]
