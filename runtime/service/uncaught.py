"""Write uncaught exceptions and warnings as events of the log, not as text between its lines."""

import logging
import sys
import threading

log = logging.getLogger("fallow.uncaught")


def log_uncaught() -> None:
    """Log what threads and finalizers raise and what libraries warn of; a terminal stays as is."""
    if sys.stderr.isatty():
        return
    threading.excepthook = _log_thread
    sys.unraisablehook = _log_unraisable
    logging.captureWarnings(capture=True)


def _log_thread(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is None or failure.exc_type is SystemExit:
        return
    name = failure.thread.name if failure.thread is not None else None
    exception = (failure.exc_type, failure.exc_value, failure.exc_traceback)
    log.error("a thread ended by an exception", exc_info=exception, extra={"in_thread": name})


def _log_unraisable(failure: "sys.UnraisableHookArgs") -> None:
    log.error(
        "an exception that nothing could handle",
        exc_info=failure.exc_value,
        extra={"raised_in": repr(failure.object)},
    )
