"""Configure logs on stderr: for people on a terminal, JSON lines everywhere else."""

import logging
import sys
import traceback
from typing import TextIO

import structlog

from fallow.redaction import redact
from fallow.texts import spell_out


def configure(*, debug: bool = False) -> None:
    """Send the standard library's and structlog's events to stderr in one shape.

    Without --debug only warnings and worse are shown, except by the service, which also logs its
    normal work. structlog itself is loaded by the first event, not by every command (0.1 s).
    """
    handler = _Lazy()
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    logging.getLogger("fallow").setLevel(logging.DEBUG if debug else logging.INFO)
    for chatty in ("urllib3", "botocore", "asyncio", "kubernetes", "apscheduler"):
        logging.getLogger(chatty).setLevel(logging.INFO if debug else logging.WARNING)
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # it quotes parts of secret addresses


class _Lazy(logging.Handler):
    """Render each record through structlog, which is loaded at the first record."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter: logging.Formatter | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; a closed stderr is not an error."""
        try:
            if self._formatter is None:
                self._formatter = _build_formatter()
            line = redact(self._formatter.format(record))
            # On a terminal the values are spelled out before they are coloured.
            sys.stderr.write((line if sys.stderr.isatty() else spell_out(line)) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


def _spell_out_values(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {k: spell_out(v) if isinstance(v, str) else v for k, v in event.items()}


def _write_traceback(stream: TextIO, stack: structlog.typing.ExcInfo) -> None:
    stream.write(spell_out("".join(traceback.format_exception(*stack)), in_lines=True))


def _build_formatter() -> logging.Formatter:
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(exception_formatter=_write_traceback)
        shared.append(_spell_out_values)
    else:
        shared += [structlog.stdlib.add_logger_name, structlog.processors.dict_tracebacks]
        renderer = structlog.processors.JSONRenderer(default=str)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
