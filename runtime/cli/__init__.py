"""Run the command line: `fallow` and `kubectl fallow` start `runtime.cli:main`.

stdout is data, stderr is diagnostics. A failure is one line about what failed, on what, and what to
do next, plus an exit code (`fallow.errors`). A traceback needs --debug or FALLOW_DEBUG.
"""

import errno
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from fallow.redaction import redact
from fallow.system.private_files import keep_files_private
from fallow.texts import make_printable, spell_out

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.excepthook = _print_traceback
    threading.excepthook = _print_thread_traceback
    keep_files_private()
    code = run(words)
    if any(thread.daemon for thread in threading.enumerate()):
        from runtime.service.process_end import end_process  # noqa: PLC0415  (few commands do)

        end_process(code)  # such a thread may be amid a query, of an API or of a job that hangs
    sys.exit(code)


def run(words: Sequence[str]) -> int:
    """Run one command and return its exit code; an error is one line on stderr."""
    import typer  # noqa: PLC0415  (a module imports in a blink; the parser only when it runs)

    from fallow.errors import FallowError  # noqa: PLC0415
    from runtime.cli.app import build  # noqa: PLC0415

    called = _get_program_name()
    try:
        code = build()(list(words), standalone_mode=False, prog_name=called)
    except FallowError as error:
        if _is_debug(words):
            raise
        return _print_error(error.message, error.hint, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _print_error("interrupted", None, INTERRUPTED)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        unknown = message.startswith("No such command")
        command = _command_words(words)[: -1 if unknown else None]
        help_command = " ".join([called, *command, "--help"])
        return _print_error(message, f"see {help_command}", error.exit_code)
    except Exception as error:  # the last resort: one line, never a traceback
        if _is_debug(words):
            raise
        return _print_unexpected(error)
    if code == INTERRUPTED:
        return _print_error("interrupted", None, INTERRUPTED)
    return code if isinstance(code, int) else 0


def _print_unexpected(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        file = f"{error.filename}: " if error.filename else ""
        return _print_error(f"{file}{error.strerror}", "free some space, run it again", 75)
    text = " ".join(str(error).split()) or type(error).__name__
    hint = "run with --debug to see where; it is a defect of Fallow"
    return _print_error(f"{type(error).__name__}: {text}", hint, 1)


def _print_traceback(
    kind: type[BaseException], error: BaseException, stack: TracebackType | None
) -> None:
    """Print a traceback without the passwords that the messages of other packages have."""
    text = "".join(traceback.format_exception(kind, error, stack))
    sys.stderr.write(spell_out(redact(text), in_lines=True))


def _print_thread_traceback(failure: threading.ExceptHookArgs) -> None:
    if failure.exc_value is not None and failure.exc_type is not SystemExit:
        _print_traceback(failure.exc_type, failure.exc_value, failure.exc_traceback)


def _get_program_name() -> str:
    """Return the words by which the user started Fallow: kubectl runs the script kubectl-fallow."""
    script = Path(sys.argv[0]).stem if sys.argv else ""
    return "kubectl fallow" if script == "kubectl-fallow" else "fallow"


def _is_debug(words: Sequence[str]) -> bool:
    return "--debug" in words or os.environ.get("FALLOW_DEBUG", "") not in ("", "0")


def _command_words(words: Sequence[str]) -> list[str]:
    """Return the leading words that name the command, up to the first option."""
    groups = {"import": 2, "baseline": 2, "config": 2, "warehouse": 2, "plugins": 2, "policy": 2}
    plain = [w for w in words if w.isidentifier()]
    return plain[: groups.get(plain[0], 1)] if plain else []


def _print_error(message: str, hint: str | None, code: int) -> int:
    colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    red, plain = ("\x1b[31m", "\x1b[0m") if colour else ("", "")
    line = " ".join(make_printable(redact(message)).split())
    print(f"{red}fallow: {line}{plain}", file=sys.stderr)  # noqa: T201  (stderr is diagnostics)
    if hint:
        print(f"hint: {make_printable(redact(hint))}", file=sys.stderr)  # noqa: T201
    return code
