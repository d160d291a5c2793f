"""Archive folders of a container through `tar`, in one pass, and give them back.

tar in the container ─► our hash of the tree ─► gzip ─► store, then read back and compared
"""

import hashlib
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec

from actions.snapshots.containers import CommandError, Place, Shell
from actions.snapshots.nouns import Part, Restored
from actions.snapshots.store import Store
from actions.snapshots.tree import Tree, read_tree
from fallow.errors import FallowError

GZIP = 31
"""zlib's word for a gzip header and the largest window."""
LEVEL = 1
NEVER = {"secret", "configMap", "projected", "downwardAPI", "csi", "image"}
"""Volumes that hold no work of the owner, or secrets: never read."""


class Folder(msgspec.Struct, frozen=True):
    """A folder to archive, and the folders below it that are left out."""

    path: str
    without: tuple[str, ...] = ()
    persistent: bool = False


def folders(pod: Mapping[str, Any], container: str, wanted: Sequence[str]) -> list[Folder]:
    """Cut the wanted folders where volumes begin: each is archived once, secrets never.

    `persistent` is a folder on a claim, which outlives the pod.
    """
    spec = pod["spec"]
    kinds = {v["name"]: v.keys() - {"name"} for v in spec.get("volumes", ())}
    mounts: dict[str, set[str]] = {
        _clean(m["mountPath"]): set(kinds.get(m["name"], ()))
        for c in spec["containers"]
        if c["name"] == container
        for m in c.get("volumeMounts", ())
    }
    out: list[Folder] = []
    for path in dict.fromkeys(_clean(p) for p in wanted):
        below = {p for p in mounts if p.startswith(path.rstrip("/") + "/")}
        for root in (path, *sorted(below)):
            kind = mounts.get(root) or _around(root, mounts)
            if kind & NEVER:
                continue
            nested = tuple(sorted(p for p in below if p.startswith(root.rstrip("/") + "/")))
            out.append(Folder(root, nested, "persistentVolumeClaim" in kind))
    return list(dict.fromkeys(out))


def _around(path: str, mounts: Mapping[str, set[str]]) -> set[str]:
    """Return the kind of the volume a folder lies on: that of the nearest mount above."""
    above = [p for p in mounts if path.startswith(p.rstrip("/") + "/")]
    return mounts[max(above, key=len)] if above else set()


def _clean(path: str) -> str:
    return "/" + path.strip("/")


def take(
    shell: Shell,
    store: Store,
    place: Place,
    folder: Folder,
    key: str,
    *,
    most: int,
    exclude: Sequence[str] = (),
) -> Part:
    """Archive one folder and read it back.

    Raises:
        FallowError: it is larger than `most` bytes, the stream broke off, tar failed, or what was
            read back is not what was sent.
    """
    digest, packed = hashlib.sha256(), 0
    squeeze = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP)
    command = ["tar", "-C", "/", "-cf", "-"]
    command += [f"--exclude={_relative(p)}" for p in folder.without]
    command += [f"--exclude={word}" for word in exclude]
    command += [_relative(folder.path) or "."]
    with store.write(key) as writer:

        def keep(piece: bytes) -> None:
            nonlocal packed
            if piece:
                digest.update(piece)
                packed += len(piece)
                writer.add(piece)

        with closing(_streamed(shell, place, command)) as pieces:
            tree = read_tree(pieces, lambda p: keep(squeeze.compress(p)), most=most)
        keep(squeeze.flush())
        writer.commit()
    part = Part(
        what="home",
        key=key,
        verified=False,
        bytes=packed,
        sha256=digest.hexdigest(),
        tree=tree.hash,
        files=tree.files,
        namespace=place.namespace,
        pod=place.pod,
        container=place.container,
        path=folder.path,
        without=folder.without,
        persistent=folder.persistent,
    )
    return msgspec.structs.replace(part, verified=verified(store, part))


def verified(store: Store, part: Part) -> bool:
    """Read an archive back from where it lies and tell whether it is what was sent."""
    digest = hashlib.sha256()
    try:
        tree = read_tree(_unpacked(store.blocks(part.key), digest.update))
    except (FallowError, FileNotFoundError, zlib.error):
        return False
    return digest.hexdigest() == part.sha256 and tree.hash == part.tree


def restore(shell: Shell, store: Store, part: Part, place: Place) -> Restored:
    """Give one archive back to a running container, and compare the trees.

    What lies on a claim is only compared: there the owner may have newer files.
    """
    if not verified(store, part):
        return Restored(part, "failed", "the archive is not what was stored: nothing was written")
    try:
        if part.persistent:
            same = now(shell, place, part).hash == part.tree
            return Restored(part, "kept" if same else "left", "" if same else "changed since")
        pieces = _unpacked(store.blocks(part.key), lambda _piece: None)
        for _ in shell.run(place, ["tar", "-C", "/", "-xpf", "-"], pieces):
            pass
        tree = now(shell, place, part)
    except FallowError as error:
        return Restored(part, "failed", str(error))
    if tree.hash == part.tree:
        return Restored(part, "restored")
    return Restored(part, "failed", f"{tree.files} files there, {part.files} were kept")


def now(shell: Shell, place: Place, part: Part) -> Tree:
    """Return the tree of a part's folder as it is now."""
    command = ["tar", "-C", "/", "-cf", "-"]
    command += [f"--exclude={_relative(p)}" for p in part.without]
    with closing(_streamed(shell, place, [*command, _relative(part.path) or "."])) as pieces:
        return read_tree(pieces)


def freeze(shell: Shell, store: Store, place: Place, key: str) -> Part | None:
    """Keep the list of installed packages; None = the container has neither pip nor conda."""
    said = []
    for command in (
        ["python", "-m", "pip", "freeze", "--all"],
        ["conda", "list", "--explicit"],
    ):
        try:
            said.append(b"# " + " ".join(command).encode() + b"\n")
            said.append(b"".join(shell.run(place, command)))
        except CommandError:
            said.pop()
    text = b"".join(said)
    if not text:
        return None
    return keep_bytes(store, key, text, "environment", place)


def keep_bytes(store: Store, key: str, data: bytes, what: Any, place: Place | None = None) -> Part:
    """Keep a few bytes and read them back."""
    with store.write(key) as writer:
        writer.add(data)
        writer.commit()
    return Part(
        what=what,
        key=key,
        verified=b"".join(store.blocks(key)) == data,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        **({} if place is None else msgspec.structs.asdict(place)),
    )


def _streamed(shell: Shell, place: Place, command: list[str]) -> Generator[bytes, None, None]:
    """Yield a command's output; a generator always, so that it can be closed early."""
    yield from shell.run(place, command)


def _unpacked(blocks: Iterator[bytes], seen: Callable[[bytes], object]) -> Iterator[bytes]:
    unpack = zlib.decompressobj(GZIP)
    for block in blocks:
        seen(block)
        if out := unpack.decompress(block):
            yield out
    if not unpack.eof:
        raise FallowError("the archive is not whole: it ends early")
    if out := unpack.flush():
        yield out


def _relative(path: str) -> str:
    return path.strip("/")
