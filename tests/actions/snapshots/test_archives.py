"""Archives of a container's folders: streamed, hashed, read back, given back."""

import io
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.snapshots import archive
from actions.snapshots.containers import CommandError, ContainerRef, KubernetesRunner
from actions.snapshots.store import FolderStore
from actions.snapshots.tree import TooLarge, read_tree
from fallow.errors import FallowError, RefusedError, TemporaryError
from tests.actions.snapshots.lab import CLAIM, HOME, Lab

FOLDER = archive.ArchivedFolder(HOME)
MOST = 1 << 30


def write(lab: Lab) -> None:
    """Fill the home with what real ones hold: links, odd names, modes, empty folders, megabytes."""
    (lab.home / "work" / "empty").mkdir(parents=True)
    (lab.home / "work" / "notes.ipynb").write_text('{"cells": []}')
    (lab.home / "work" / "näme with\nnewline").write_bytes(b"\x00\xff")
    (lab.home / "model.bin").write_bytes(random.Random(1).randbytes(3 << 20))
    (lab.home / "run.sh").write_text("#!/bin/sh\n")
    (lab.home / "run.sh").chmod(0o750)
    (lab.home / "latest").symlink_to("work/notes.ipynb")
    (lab.home / "again.sh").hardlink_to(lab.home / "run.sh")


def pack_links(first: str, second: str, content: bytes = b"x") -> bytes:
    """Return a tar stream of one file with two names, in the order of some file system."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        file = tarfile.TarInfo(first)
        file.size = len(content)
        tar.addfile(file, io.BytesIO(content))
        link = tarfile.TarInfo(second)
        link.type, link.linkname = tarfile.LNKTYPE, first
        tar.addfile(link)
    return packed.getvalue()


def test_which_of_two_hard_links_a_file_system_lists_first_does_not_matter() -> None:
    kept, there = (read_tree(iter([pack_links(*n)])) for n in (("a", "b"), ("b", "a")))
    assert kept.hash == there.hash
    assert there.has_hash(kept.hash)
    assert kept.stream_hash != there.stream_hash
    assert kept.has_hash(kept.stream_hash), "as snapshots of earlier versions have it"
    other = read_tree(iter([pack_links("a", "b", b"y")]))
    assert not other.has_hash(kept.hash)
    assert not read_tree(iter([pack_links("a", "c")])).has_hash(kept.hash)


def test_an_archive_is_read_back_whole_and_given_back_equal(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    write(lab)
    store = FolderStore(lab.kept)

    part = archive.archive_folder(lab.shell, store, place, FOLDER, "a/home.tar.gz", max_bytes=MOST)

    assert part.verified
    assert part.files == 4  # the hard link is a link
    shutil.rmtree(lab.home)
    lab.home.mkdir()
    assert archive.restore_part(lab.shell, store, part, place).result == "restored"
    assert (lab.home / "model.bin").read_bytes() == random.Random(1).randbytes(3 << 20)
    assert (lab.home / "run.sh").stat().st_mode & 0o777 == 0o750
    assert (lab.home / "latest").readlink() == Path("work/notes.ipynb")
    assert (lab.home / "work" / "empty").is_dir()
    assert (lab.home / "work" / "näme with\nnewline").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize(
    "change",
    [
        lambda home: (home / "work" / "notes.ipynb").write_text("{}"),
        lambda home: (home / "run.sh").chmod(0o700),
        lambda home: (home / "new").touch(),
        lambda home: (home / "latest").unlink(),
        lambda home: (home / "work" / "empty").rmdir(),
    ],
    ids=["content", "mode", "more", "less", "folder"],
)
def test_any_change_of_the_tree_changes_its_hash(
    lab: Lab, place: ContainerRef, change: object
) -> None:
    lab.pod()
    write(lab)
    part = archive.archive_folder(
        lab.shell, FolderStore(lab.kept), place, FOLDER, "home", max_bytes=MOST
    )
    assert archive.read_current_tree(lab.shell, place, part).hash == part.tree

    change(lab.home)  # type: ignore[operator]

    assert archive.read_current_tree(lab.shell, place, part).hash != part.tree


def test_more_than_the_cap_is_no_snapshot_and_leaves_nothing(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    (lab.home / "big").write_bytes(bytes(4 << 20))

    with pytest.raises(TooLarge, match="more than 1048576 bytes"):
        archive.archive_folder(
            lab.shell, FolderStore(lab.kept), place, FOLDER, "home", max_bytes=1 << 20
        )

    assert [p for p in lab.kept.rglob("*") if p.is_file()] == []


def test_a_stream_that_breaks_off_is_no_snapshot_and_leaves_nothing(
    lab: Lab, place: ContainerRef
) -> None:
    lab.pod()
    write(lab)
    lab.machine.cut_after = 1 << 20

    with pytest.raises(TemporaryError, match="broke off"):
        archive.archive_folder(
            lab.shell, FolderStore(lab.kept), place, FOLDER, "home", max_bytes=MOST
        )

    assert [p for p in lab.kept.rglob("*") if p.is_file()] == []


def test_a_tar_that_fails_is_no_snapshot(lab: Lab, place: ContainerRef) -> None:
    lab.pod()

    with pytest.raises(CommandError, match=r"tar ended with 2: .*nowhere"):
        archive.archive_folder(
            lab.shell,
            FolderStore(lab.kept),
            place,
            archive.ArchivedFolder("/nowhere"),
            "x",
            max_bytes=MOST,
        )


@pytest.mark.parametrize("damage", [b"", b"short", None], ids=["empty", "cut", "flipped"])
def test_a_damaged_archive_is_not_verified_and_writes_nothing(
    lab: Lab, place: ContainerRef, damage: bytes | None
) -> None:
    lab.pod()
    write(lab)
    store = FolderStore(lab.kept)
    part = archive.archive_folder(lab.shell, store, place, FOLDER, "home", max_bytes=MOST)
    data = bytearray((lab.kept / "home").read_bytes())
    data[len(data) // 2] ^= 1
    (lab.kept / "home").write_bytes(bytes(data) if damage is None else damage)
    shutil.rmtree(lab.home)
    lab.home.mkdir()

    assert not archive.is_verified(store, part)
    restored = archive.restore_part(lab.shell, store, part, place)

    assert restored.result == "failed"
    assert list(lab.home.iterdir()) == []


def test_a_claim_keeps_its_files_and_newer_ones_are_left_alone(
    lab: Lab, place: ContainerRef
) -> None:
    lab.pod(volumes=[CLAIM], mounts=[{"name": "home", "mountPath": HOME}])
    write(lab)
    store = FolderStore(lab.kept)
    folder = archive.ArchivedFolder(HOME, persistent=True)
    part = archive.archive_folder(lab.shell, store, place, folder, "home", max_bytes=MOST)

    assert archive.restore_part(lab.shell, store, part, place).result == "kept"
    (lab.home / "work" / "notes.ipynb").write_text("newer")
    assert archive.restore_part(lab.shell, store, part, place).result == "left"
    assert (lab.home / "work" / "notes.ipynb").read_text() == "newer"


def test_folders_are_cut_where_volumes_begin_and_secrets_are_never_read() -> None:
    pod = {
        "spec": {
            "volumes": [
                {"name": "work", "persistentVolumeClaim": {"claimName": "w"}},
                {"name": "token", "secret": {"secretName": "t"}},
                {"name": "tmp", "emptyDir": {}},
            ],
            "containers": [
                {
                    "name": "nb",
                    "volumeMounts": [
                        {"name": "work", "mountPath": f"{HOME}/work"},
                        {"name": "token", "mountPath": f"{HOME}/.aws"},
                        {"name": "tmp", "mountPath": f"{HOME}/work/scratch"},
                    ],
                }
            ],
        }
    }

    assert archive.list_folders(pod, "nb", [HOME + "/"]) == [
        archive.ArchivedFolder(HOME, (f"{HOME}/.aws", f"{HOME}/work", f"{HOME}/work/scratch")),
        archive.ArchivedFolder(f"{HOME}/work", (f"{HOME}/work/scratch",), persistent=True),
        archive.ArchivedFolder(f"{HOME}/work/scratch"),
    ]
    assert archive.list_folders(pod, "nb", [f"{HOME}/.aws"]) == []
    assert archive.list_folders(pod, "nb", [f"{HOME}/work/deep"]) == [
        archive.ArchivedFolder(f"{HOME}/work/deep", persistent=True)
    ]


def test_packages_are_kept_as_the_tools_list_them(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    lab.machine.says["python", "-m", "pip", "freeze", "--all"] = (b"torch==2.9.0\n", 0)

    part = archive.keep_packages(lab.shell, FolderStore(lab.kept), place, "packages")

    assert part is not None
    assert part.verified
    text = (lab.kept / "packages").read_text()
    assert text == "# python -m pip freeze --all\ntorch==2.9.0\n"


def test_a_container_without_packages_has_no_list(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    assert archive.keep_packages(lab.shell, FolderStore(lab.kept), place, "packages") is None


@pytest.mark.parametrize(
    ("where", "error", "said"),
    [
        (ContainerRef("lab", "nb-9", "notebook"), RefusedError, "not found"),
        (ContainerRef("lab", "nb-0", "other"), RefusedError, "container other is not valid"),
        (ContainerRef("lab", "nb-0", "proxy"), TemporaryError, "container not found"),
    ],
    ids=["no pod", "no container", "not running"],
)
def test_a_container_that_is_not_there_is_one_clear_line(
    lab: Lab, where: ContainerRef, error: type[FallowError], said: str
) -> None:
    lab.pod()
    with pytest.raises(error, match=said):
        list(lab.shell.run(where, ["tar"]))


def test_who_may_not_exec_is_told_so(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    lab.server.access.deny("create", "pods/exec")
    with pytest.raises(RefusedError, match=r"pods.*forbidden"):
        list(lab.shell.run(place, ["tar"]))


def test_a_server_that_is_away_is_temporary(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    lab.server.close()
    with pytest.raises(TemporaryError, match="exec in lab/nb-0"):
        list(lab.shell.run(place, ["tar"]))


def test_a_key_that_is_taken_is_refused(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    store = FolderStore(lab.kept)
    archive.archive_folder(lab.shell, store, place, FOLDER, "home", max_bytes=MOST)
    before = (lab.kept / "home").read_bytes()
    with pytest.raises(RefusedError, match="never overwritten"):
        archive.archive_folder(lab.shell, store, place, FOLDER, "home", max_bytes=MOST)
    assert (lab.kept / "home").read_bytes() == before


def test_what_is_kept_is_for_its_owner_alone(lab: Lab, place: ContainerRef) -> None:
    lab.pod()
    archive.archive_folder(lab.shell, FolderStore(lab.kept), place, FOLDER, "home", max_bytes=MOST)
    assert (lab.kept / "home").stat().st_mode & 0o077 == 0


names = st.text("abc/. é\n", min_size=1, max_size=6).map(
    lambda t: "/".join(p for p in t.split("/") if p.strip(".")) or "x"
)


@given(files=st.dictionaries(names, st.binary(max_size=300), max_size=6), cut=st.integers(1, 400))
def test_the_hash_does_not_depend_on_how_the_stream_is_cut(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], cut: int
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for name, content in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:  # a file and a folder of one name
            continue
    data = _tar(root)

    def pieces() -> Iterator[bytes]:
        yield from (data[n : n + cut] for n in range(0, len(data), cut))

    seen = bytearray()
    tree = read_tree(pieces(), seen.extend)

    assert tree == read_tree(iter([data]))
    assert bytes(seen) == data
    assert tree.files == sum(p.is_file() for p in root.rglob("*"))


def _tar(root: Path) -> bytes:
    return subprocess.run(
        ["tar", "-C", str(root), "-cf", "-", "."], capture_output=True, check=True
    ).stdout


def test_what_is_no_tar_is_refused(lab: Lab) -> None:
    del lab
    with pytest.raises(FallowError, match="the archive is not whole"):
        read_tree(iter([b"no tar at all" * 100]))


def test_a_command_that_hangs_is_given_up(lab: Lab, place: ContainerRef) -> None:
    from kubernetes import client

    lab.pod()
    configuration = client.Configuration()
    configuration.host = lab.server.url
    shell = KubernetesRunner(client.ApiClient(configuration), timeout_s=0.2)
    with pytest.raises(TemporaryError, match=r"said nothing for 0\.2 s"):
        list(shell.run(place, ["tar", "-C", "/", "-tf", "-"], None))
