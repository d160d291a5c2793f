"""Keep what was derived from the journal's rows in a file, so that readers fold only newer rows.

The file lies beside the journal (`journal.sqlite.checkpoint`). The journal has its SHA-256 in a row
of its own, so the file is as hard to forge as a row. One that is damaged, of other code, or of
another journal is not used; all rows are read then, and a later one replaces it.
"""

import hashlib
import os
from contextlib import suppress
from functools import cache
from importlib.resources import files

import msgspec

from actions.journal import event_types
from actions.journal.log import Journal
from fallow.errors import FallowError
from fallow.system.input_files import UnreadableFileError, read_input

EVERY = 10_000
"""Rows after which a process that writes the journal also writes a checkpoint."""
SUFFIX = ".checkpoint"
MOST_BYTES = 1 << 30
_SOURCES = (
    ("actions.journal", "action_state.py"),
    ("actions.journal", "derivation.py"),
    ("actions.journal", "permissions.py"),
    ("actions.journal", "event_types.csv"),
    ("fallow", "action_models.py"),
    ("fallow", "case_identity.py"),
)


class Checkpoint(msgspec.Struct, frozen=True):
    """The derived state at a row with that row's hash; `code` is what derived it."""

    code: str
    seq: int
    hash: str
    state: msgspec.Raw


def read_checkpoint(journal: Journal) -> Checkpoint | None:
    """Return the checkpoint of a journal; None = there is none that may be used.

    A journal that is open for writing is checked up to that row: nothing acts by rows that somebody
    changed since.

    Raises:
        WarehouseError: a link before it is broken.
    """
    try:
        body = read_input(journal.path.with_name(journal.path.name + SUFFIX), most=MOST_BYTES)
    except UnreadableFileError:
        return None
    digest = hashlib.sha256(body).hexdigest()
    if not any(
        row.document.get("digest") == digest for row in journal.entries(event_types.CHECKPOINT)
    ):
        return None
    try:
        checkpoint = msgspec.msgpack.decode(body, type=Checkpoint)
    except msgspec.MsgspecError:
        return None
    if checkpoint.code != hash_code() or not journal.has_row(checkpoint.seq, checkpoint.hash):
        return None
    if journal.writable:
        journal.check_links(checkpoint.seq)
    return checkpoint


def write_checkpoint(journal: Journal, seq: int, row_hash: str, state: bytes) -> None:
    """Store the state at a row and journal its hash; a failure leaves the journal as it is."""
    body = msgspec.msgpack.encode(Checkpoint(hash_code(), seq, row_hash, msgspec.Raw(state)))
    path = journal.path.with_name(journal.path.name + SUFFIX)
    near = path.with_name(f"{path.name}.{os.getpid()}")
    with suppress(OSError, FallowError):
        try:
            near.write_bytes(body)
            near.replace(path)
        finally:
            near.unlink(missing_ok=True)
        document = {"digest": hashlib.sha256(body).hexdigest(), "seq": seq}
        journal.append(event_types.CHECKPOINT, event_types.FLEET, document)


@cache
def hash_code() -> str:
    """Return a hash of the code that derives the state: another code derives another one."""
    digest = hashlib.sha256()
    for package, name in _SOURCES:
        digest.update(files(package).joinpath(name).read_bytes())
    return digest.hexdigest()
