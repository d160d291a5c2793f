"""A file of tests leaves no global behind that another file's tests would meet."""

import logging
import os
import sys
import threading
from pathlib import Path

import pytest

from actions.gates import registry
from dashboards import active_settings
from fallow import redaction
from fallow.settings import Settings
from fallow.system import private_files
from runtime.cli import logs
from tests.isolation import own_globals


def test_what_a_command_sets_for_its_process_is_restored(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FALLOW_HOME", raising=False)
    folder, hooks = Path.cwd(), (sys.excepthook, threading.excepthook)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    checks, in_force = dict(registry.CHECKS), list(active_settings._settings)
    with own_globals():
        logs.configure(debug=True)
        logging.getLogger("fallow").disabled = True
        redaction.remember_secrets(["a-token-of-this-test"])
        assert redaction.redact("a-token-of-this-test") != "a-token-of-this-test"
        active_settings.use_settings(settings)
        private_files.keep_files_private()
        registry.register_gate("a gate of this test")(lambda _case: iter(()))
        os.environ["FALLOW_HOME"] = "elsewhere"
        os.chdir(tmp_path)
        sys.excepthook = lambda *_: None
        threading.excepthook = lambda *_: None
    assert (root.level, logging.getLogger("fallow").level) == (level, logging.NOTSET)
    assert not logging.getLogger("fallow").disabled
    assert not [h for h in root.handlers if h not in handlers]
    assert redaction.redact("a-token-of-this-test") == "a-token-of-this-test"
    assert active_settings._settings == in_force
    assert private_files._umasks == []
    assert checks == registry.CHECKS
    assert "FALLOW_HOME" not in os.environ
    assert Path.cwd() == folder
    assert (sys.excepthook, threading.excepthook) == hooks
