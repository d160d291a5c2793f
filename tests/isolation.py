"""Give each file of tests the globals of a fresh process, so that no test depends on their order.

What a command sets once for its whole process, tests set many times in one: the log's levels and
handlers, what uncaught errors print, remembered secrets, settings in force, the environment.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actions.gates.registry import CHECKS
from fallow import redaction
from fallow.system import private_files

Levels = dict[str, tuple[int, bool, bool]]


@contextmanager
def own_globals() -> Iterator[None]:
    """Restore the globals of this process at the end."""
    secrets, umasks = set(redaction._values), list(private_files._umasks)
    checks, environment, folder = dict(CHECKS), dict(os.environ), Path.cwd()
    levels, handlers = _read_levels(), list(logging.getLogger().handlers)
    hooks = sys.excepthook, threading.excepthook
    in_force = _read_settings_in_force()
    mask = os.umask(0)
    os.umask(mask)
    yield
    redaction._values.clear()
    redaction._values.update(secrets)
    redaction._compile_values.cache_clear()
    private_files._umasks[:] = umasks
    os.umask(mask)
    CHECKS.clear()
    CHECKS.update(checks)
    _restore_environment(environment)
    os.chdir(folder)
    _restore_logging(levels, handlers)
    sys.excepthook, threading.excepthook = hooks
    if (module := sys.modules.get("dashboards.active_settings")) is not None:
        module._settings[:] = in_force


def _read_levels() -> Levels:
    loggers = {"": logging.getLogger(), **logging.Logger.manager.loggerDict}
    return {
        name: (logger.level, logger.propagate, logger.disabled)
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
    }


def _restore_logging(levels: Levels, handlers: list[logging.Handler]) -> None:
    fresh = (logging.NOTSET, True, False)
    for name in _read_levels():
        if name in levels or name.startswith("fallow"):  # a library may set its own once
            logger = logging.getLogger(name)
            logger.level, logger.propagate, logger.disabled = levels.get(name, fresh)
    logging.Logger.manager._clear_cache()  # type: ignore[attr-defined]
    root = logging.getLogger()
    # pytest puts handlers of its own there and takes them away: only those of ours are left.
    root.handlers[:] = [
        handler
        for handler in root.handlers
        if handler in handlers or type(handler).__module__.startswith("_pytest")
    ]


def _restore_environment(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment) - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update({k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST"})


def _read_settings_in_force() -> list[object]:
    module = sys.modules.get("dashboards.active_settings")
    return list(module._settings) if module is not None else []
