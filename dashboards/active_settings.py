"""Hold the settings in force: those of the command line, else as every command loads them."""

from datetime import datetime

from fallow.demo_marker import read_now
from fallow.settings import Settings, load

_settings: list[Settings] = []


def use_settings(settings: Settings) -> None:
    """Use these settings from now on."""
    _settings[:] = [settings]


def get_settings() -> Settings:
    """Return the settings in force.

    Raises:
        SettingsError: they are not legal.
    """
    if not _settings:
        use_settings(load().settings)
    return _settings[0]


def get_now() -> datetime:
    """Return the current time of the fleet, UTC: of a demo its fleet's, as the CLI has it.

    Raises:
        SettingsError: the settings are not legal.
    """
    return read_now(get_settings().home)
