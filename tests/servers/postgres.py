"""A PostgreSQL of the tests' own on a free port; another user's when root runs the tests."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BIN = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


class Server:
    """One server; every test makes a database of its own."""

    def __init__(self, bin_: Path, folder: Path) -> None:
        self.bin, self.folder = bin_, folder
        self.user = "postgres" if os.geteuid() == 0 else None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    def run(self, name: str, *words: str) -> None:
        """Run one of PostgreSQL's programs as the user who may."""
        subprocess.run(
            [str(self.bin / name), *words],
            check=True,
            user=self.user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Start it."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.run("pg_ctl", "-D", "db", "-w", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a crash would."""
        self.run("pg_ctl", "-D", "db", "-w", "-m", "immediate", "stop")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let its processes stand still meanwhile: connections stay open and nothing answers."""
        main = (self.folder / "db" / "postmaster.pid").read_text().split()[0]
        forks = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        processes = [int(word) for word in (main, *forks)]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def catalog(self, name: str) -> str:
        """Make a database; return what `warehouse.catalog` says to mean it."""
        self.run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "fallow", name)
        return f"postgres:dbname={name} host=127.0.0.1 port={self.port} user=fallow"

    def make_reader(self, name: str) -> str:
        """Make a role that may only read a catalog; return what `read_catalog` says to mean it."""
        grants = (
            "CREATE ROLE fallow_reader LOGIN",
            "GRANT USAGE ON SCHEMA public TO fallow_reader",
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO fallow_reader",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO fallow_reader",
        )
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "fallow", "-d", name)
        self.run("psql", *address, *(word for sql in grants for word in ("-c", sql)))
        return f"postgres:dbname={name} host=127.0.0.1 port={self.port} user=fallow_reader"


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server meanwhile; skip the test where there is none to run."""
    if BIN is None or not (BIN / "initdb").exists():
        pytest.skip("no postgresql here (Debian: apt-get install postgresql)")
    # Not under pytest's folders: those are closed to other users, and long for a socket's path.
    folder = Path(tempfile.mkdtemp(prefix="fallow-pg-"))
    made = Server(BIN, folder)
    if made.user:
        if not any(entry.pw_name == made.user for entry in pwd.getpwall()):
            pytest.skip("root may not run PostgreSQL and there is no user postgres")
        shutil.chown(folder, made.user)
    try:
        made.run("initdb", "-D", "db", "-U", "fallow", "-A", "trust", "-N")
        made.start()
        yield made
        made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
