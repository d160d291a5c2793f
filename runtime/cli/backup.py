"""`fallow backup` and `fallow restore`."""

import shlex
from typing import Annotated

import typer

from runtime.cli.options import CommandRun
from runtime.service.backup.restoring import restore_backup
from runtime.service.backup.writing import write_backup


def backup(
    run: CommandRun,
    destination: Annotated[
        str, typer.Argument(metavar="DEST", help="an empty folder, or s3://bucket/prefix")
    ],
    *,
    without_warehouse: Annotated[
        bool,
        typer.Option(
            "--without-warehouse", help="leave catalog, data and archive out: they have a backup"
        ),
    ] = False,
) -> None:
    """Copy a home as it is, beside the running service.

    Catalog, data, archive, rows that wait for them, journal, snapshots, deliveries, baselines and
    policies; not the settings, which may have secrets. The manifest is written last: without it,
    it is no backup.
    """
    manifest, sha256 = write_backup(
        run.settings(), destination, run.now, warehouse=not without_warehouse
    )
    for part in manifest.uncovered:
        run.say(f"not in this backup: {part.part}; back up {part.remedy}")
    parts: dict[str, list[int]] = {}
    for file in manifest.files:
        parts.setdefault(file.name.partition("/")[0], []).append(file.bytes)
    run.data(
        [{"part": part, "files": len(sizes), "bytes": sum(sizes)} for part, sizes in parts.items()],
        noun="backup",
        at=manifest.at,
        anchor=manifest.anchor,
        manifest_sha256=sha256,
    )
    if manifest.anchor:
        run.say(f"journal: {manifest.anchor}")
    run.say(
        "every file was read back; keep this command elsewhere than the backup, it proves the "
        f"manifest: fallow restore {shlex.quote(destination)} --manifest-sha256 {sha256}"
    )


def restore(
    run: CommandRun,
    source: Annotated[str, typer.Argument(metavar="SRC", help="the folder or prefix of a backup")],
    *,
    manifest_sha256: Annotated[
        str,
        typer.Option(
            "--manifest-sha256",
            metavar="HEX",
            help="what `fallow backup` printed: another manifest is refused",
        ),
    ] = "",
) -> None:
    """Restore a backup into the empty places of the settings.

    Nothing is overwritten. A catalog of PostgreSQL goes into the empty database that
    warehouse.catalog names. Before anything is written, every name is checked and every file is
    compared with its checksum; then the warehouse and the journal are verified.
    Nothing acts until `fallow reconcile` and `fallow thaw`: undo and keep work.
    """
    result = restore_backup(run.settings(), source, run.now, manifest_sha256=manifest_sha256)
    manifest = result.manifest
    for part in manifest.uncovered:
        run.say(f"not in this backup: {part.part}; restore {part.remedy}")
    if result.policies:
        run.say(f"policies are in {result.policies}: set actions.policies, or compare with yours")
    if not manifest_sha256:
        run.say(
            "nothing proves who wrote the manifest: who may write the backup may change it with its"
            " checksums. --manifest-sha256, as `fallow backup` printed it, proves it"
        )
    run.say(
        f"restored {len(manifest.files)} files of {manifest.at:%Y-%m-%d %H:%M} UTC, every one as "
        "its manifest says; frozen until `fallow reconcile` and `fallow thaw`"
    )
