"""End a process of ours when the process that started it is gone, however that ended."""

import os
import signal
import sys
import threading


def end_with_parent() -> None:
    """End this process with SIGTERM once its stdin ends: its parent holds the other side of it.

    A service that is killed cannot stop its dashboard, which would keep the port for ever.
    """
    threading.Thread(target=_wait, args=(sys.stdin.fileno(),), daemon=True).start()


def _wait(stdin: int) -> None:
    while os.read(stdin, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
