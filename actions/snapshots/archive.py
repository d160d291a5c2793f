"""Archive folders of a container through `tar`, in one pass, and restore them.

tar in the container ─► our hash of the tree ─► gzip ─► store, then read back and compared
"""

import hashlib
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec

from actions.snapshots.containers import CommandError, CommandRunner, ContainerRef
from actions.snapshots.models import RestoredPart, SnapshotPart
from actions.snapshots.store import SnapshotStore
from actions.snapshots.tree import BLOCK, FileTree, read_tree
from fallow.errors import FallowError

GZIP = 31
"""zlib's window bits for a gzip header and the largest window."""
LEVEL = 1
MOST_TREE = 64 << 30
"""Bytes of a current tree that is compared with a snapshot's."""
EXCLUDED_VOLUMES = {"secret", "configMap", "projected", "downwardAPI", "csi", "image"}
"""Volumes without work of the owner, or with secrets: never read."""


class ArchivedFolder(msgspec.Struct, frozen=True):
    """A folder to archive, and the folders below it that are left out."""

    path: str
    without: tuple[str, ...] = ()
    persistent: bool = False


def list_folders(
    pod: Mapping[str, Any], container: str, paths: Sequence[str]
) -> list[ArchivedFolder]:
    """Split the wanted folders at volumes: each part is archived once, secrets never.

    `persistent` is a folder on a claim, which outlives the pod.
    """
    spec = pod["spec"]
    kinds = {v["name"]: v.keys() - {"name"} for v in spec.get("volumes", ())}
    mounts: dict[str, set[str]] = {
        _normalize(m["mountPath"]): set(kinds.get(m["name"], ()))
        for c in spec["containers"]
        if c["name"] == container
        for m in c.get("volumeMounts", ())
    }
    folders: list[ArchivedFolder] = []
    for path in dict.fromkeys(_normalize(p) for p in paths):
        nested_mounts = {p for p in mounts if p.startswith(path.rstrip("/") + "/")}
        for root in (path, *sorted(nested_mounts)):
            kind = mounts.get(root) or _get_volume_kinds(root, mounts)
            if kind & EXCLUDED_VOLUMES:
                continue
            excluded = tuple(
                sorted(p for p in nested_mounts if p.startswith(root.rstrip("/") + "/"))
            )
            folders.append(ArchivedFolder(root, excluded, "persistentVolumeClaim" in kind))
    return list(dict.fromkeys(folders))


def _get_volume_kinds(path: str, mounts: Mapping[str, set[str]]) -> set[str]:
    """Return the kind of the volume of a folder: that of the nearest mount above."""
    mounts_above = [p for p in mounts if path.startswith(p.rstrip("/") + "/")]
    return mounts[max(mounts_above, key=len)] if mounts_above else set()


def _normalize(path: str) -> str:
    return "/" + path.strip("/")


def archive_folder(
    shell: CommandRunner,
    store: SnapshotStore,
    container: ContainerRef,
    folder: ArchivedFolder,
    key: str,
    *,
    max_bytes: int,
    exclude: Sequence[str] = (),
) -> SnapshotPart:
    """Archive one folder and read it back.

    Raises:
        FallowError: it is larger than `max_bytes`, the stream ended early, tar failed, or the data
            read back differ from the data sent.
    """
    digest, size = hashlib.sha256(), 0
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    command = ["tar", "-C", "/", "-cf", "-"]
    command += [f"--exclude={_get_relative_path(p)}" for p in folder.without]
    command += [f"--exclude={pattern}" for pattern in exclude]
    command += [_get_relative_path(folder.path) or "."]
    with store.write(key) as writer:

        def keep(piece: bytes) -> None:
            nonlocal size
            if piece:
                digest.update(piece)
                size += len(piece)
                writer.add(piece)

        with closing(_stream_archive(shell, container, command, 2 * max_bytes)) as pieces:
            tree = read_tree(pieces, lambda p: keep(compressor.compress(p)), max_bytes=max_bytes)
        keep(compressor.flush())
        writer.commit()
    part = SnapshotPart(
        kind="home",
        key=key,
        verified=False,
        bytes=size,
        sha256=digest.hexdigest(),
        tree=tree.hash,
        files=tree.files,
        namespace=container.namespace,
        pod=container.pod,
        container=container.container,
        path=folder.path,
        without=folder.without,
        persistent=folder.persistent,
    )
    return msgspec.structs.replace(part, verified=is_verified(store, part))


def is_verified(store: SnapshotStore, part: SnapshotPart) -> bool:
    """Read a stored archive back and return whether it equals what was sent."""
    digest = hashlib.sha256()
    try:
        tree = read_tree(_unpack_archive(store.blocks(part.key), digest.update))
    except (FallowError, FileNotFoundError, zlib.error):
        return False
    return digest.hexdigest() == part.sha256 and tree.has_hash(part.tree)


def restore_part(
    shell: CommandRunner, store: SnapshotStore, part: SnapshotPart, container: ContainerRef
) -> RestoredPart:
    """Restore one archive to a running container, and compare the trees.

    Files on a claim are only compared: there the owner may have newer files.
    """
    if not is_verified(store, part):
        return RestoredPart(
            part, "failed", "the archive is not what was stored: nothing was written"
        )
    try:
        if part.persistent:
            is_same = read_current_tree(shell, container, part).has_hash(part.tree)
            return RestoredPart(
                part, "kept" if is_same else "left", "" if is_same else "changed since"
            )
        pieces = _unpack_archive(store.blocks(part.key), lambda _piece: None)
        for _ in shell.run(container, ["tar", "-C", "/", "-xpf", "-"], pieces):
            pass
        tree = read_current_tree(shell, container, part)
    except FallowError as error:
        return RestoredPart(part, "failed", str(error))
    if tree.has_hash(part.tree):
        return RestoredPart(part, "restored")
    return RestoredPart(part, "failed", f"{tree.files} files there, {part.files} were kept")


def read_current_tree(
    shell: CommandRunner, container: ContainerRef, part: SnapshotPart
) -> FileTree:
    """Return the current tree of a part's folder."""
    command = ["tar", "-C", "/", "-cf", "-"]
    command += [f"--exclude={_get_relative_path(p)}" for p in part.without]
    command.append(_get_relative_path(part.path) or ".")
    with closing(_stream_archive(shell, container, command, MOST_TREE)) as pieces:
        return read_tree(pieces)


def keep_packages(
    shell: CommandRunner, store: SnapshotStore, container: ContainerRef, key: str
) -> SnapshotPart | None:
    """Store the list of installed packages; None = the container has neither pip nor conda."""
    outputs = []
    for command in (["python", "-m", "pip", "freeze", "--all"], ["conda", "list", "--explicit"]):
        try:
            outputs.append(b"# " + " ".join(command).encode() + b"\n")
            outputs.append(b"".join(shell.run(container, command)))
        except CommandError:
            outputs.pop()
    text = b"".join(outputs)
    if not text:
        return None
    return keep_bytes(store, key, text, "environment", container)


def keep_bytes(
    store: SnapshotStore, key: str, data: bytes, kind: Any, container: ContainerRef | None = None
) -> SnapshotPart:
    """Store a few bytes and read them back."""
    with store.write(key) as writer:
        writer.add(data)
        writer.commit()
    return SnapshotPart(
        kind=kind,
        key=key,
        verified=b"".join(store.blocks(key)) == data,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        **({} if container is None else msgspec.structs.asdict(container)),
    )


def _stream_archive(
    shell: CommandRunner, container: ContainerRef, command: list[str], most_bytes: int
) -> Generator[bytes, None, None]:
    """Yield a command's output; a generator always, so that it can be closed early."""
    yield from shell.run(container, command, most_bytes=most_bytes)


def _unpack_archive(
    blocks: Iterator[bytes], on_block: Callable[[bytes], object]
) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(GZIP)
    for block in blocks:
        on_block(block)
        packed = block
        # A block of zeros is a thousand times as large unpacked: it comes in pieces.
        while piece := decompressor.decompress(packed, BLOCK):
            yield piece
            packed = decompressor.unconsumed_tail
    if not decompressor.eof:
        raise FallowError("the archive is not whole: it ends early")
    if piece := decompressor.flush():
        yield piece


def _get_relative_path(path: str) -> str:
    return path.strip("/")
