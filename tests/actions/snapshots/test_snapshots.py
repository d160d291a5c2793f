"""A snapshot as a whole: manifests, volumes, homes and packages, and the way back."""

import json
import random
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.snapshots import Snapshot, archive
from actions.snapshots.containers import ContainerRef
from actions.snapshots.models import PART_KINDS
from actions.snapshots.store import BucketStore, FolderStore
from fallow.action_models import Change, Target
from fallow.errors import RefusedError, TemporaryError
from fallow.settings.groups import S3
from tests.actions.snapshots.lab import CLAIM, HOME, Lab
from tests.servers import s3

SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1"
MOUNT = [{"name": "home", "mountPath": HOME}]


def with_claim(lab: Lab, *, provisioner: str = "csi.example.com", classes: bool = True) -> None:
    lab.post(
        "/apis/storage.k8s.io/v1/storageclasses",
        {"metadata": {"name": "fast"}, "provisioner": provisioner},
    )
    for name, driver in (("a-other", "other.example.com"), ("fast", "csi.example.com")):
        if classes:
            lab.post(
                f"{SNAPSHOTS}/volumesnapshotclasses",
                {"metadata": {"name": name}, "driver": driver, "deletionPolicy": "Retain"},
            )
    lab.post(
        "/api/v1/namespaces/lab/persistentvolumeclaims",
        {"metadata": {"name": "home-ann"}, "spec": {"storageClassName": "fast"}},
    )


def ready(lab: Lab, **status: Any) -> None:
    """Answer as the snapshot controller: every VolumeSnapshot gets a status."""
    for item in lab.site.items(f"{SNAPSHOTS}/namespaces/lab/volumesnapshots"):
        path = f"{SNAPSHOTS}/namespaces/lab/volumesnapshots/{item['metadata']['name']}"
        lab.patch(f"{path}/status", {"status": status})


def test_everything_is_kept_verified_and_indexed(lab: Lab) -> None:
    with_claim(lab)
    held = lab.pod(volumes=[CLAIM], mounts=MOUNT)
    (lab.home / "a.txt").write_text("a")
    lab.machine.says["conda", "list", "--explicit"] = (b"https://example/torch.conda\n", 0)
    snapshotter = lab.snapshotter()
    snapshotter._sleep = lambda _s: ready(lab, readyToUse=True, restoreSize="10Gi")

    made = snapshotter.take(lab.intent(held), PART_KINDS)

    assert made.missing == ()
    assert made.verified
    assert {p.kind for p in made.parts} == set(PART_KINDS)
    assert [p.persistent for p in made.parts if p.kind == "home"] == [True]
    index = next(lab.kept.rglob("snapshot.json"))
    assert index.parent == lab.kept / "lab" / "lab" / "Notebook" / "nb" / made.id
    again = msgspec.json.decode(index.read_bytes(), type=Snapshot, strict=False)
    assert again == made
    wanted = lab.site.items(f"{SNAPSHOTS}/namespaces/lab/volumesnapshots")
    assert [a["spec"] for a in wanted] == [
        {
            "volumeSnapshotClassName": "fast",
            "source": {"persistentVolumeClaimName": "home-ann"},
        }
    ]
    assert snapshotter.verified(made)


def test_manifests_hold_the_touched_objects_as_they_were(lab: Lab) -> None:
    held = lab.pod()
    path = "/apis/kubeflow.org/v1/namespaces/lab/notebooks/nb"
    lab.post(path.removesuffix("/nb"), {"metadata": {"name": "nb"}, "spec": {"template": {}}})
    plain = lab.intent(held)
    change = Change(plain.target, "PATCH", path, {"metadata": {"annotations": {"x": "y"}}})
    intent = msgspec.structs.replace(plain, changes=(change,), undo=(change,))

    made = lab.snapshotter().take(intent, {"manifest"})

    assert made.verified
    kept = json.loads(next(lab.kept.rglob("manifests.json")).read_bytes())
    assert kept["objects"][path]["metadata"]["name"] == "nb"
    assert [p["metadata"]["uid"] for p in kept["pods"]] == [held.uid]
    assert kept["undo"][0]["path"] == path


def test_what_is_kept_comes_back_and_the_trees_are_equal(lab: Lab) -> None:
    held = lab.pod()
    (lab.home / "work").mkdir()
    (lab.home / "work" / "a.ipynb").write_text("precious")
    made = lab.snapshotter().take(lab.intent(held), {"home"})
    assert made.verified
    shutil.rmtree(lab.home)
    lab.home.mkdir()  # the new pod's empty folder

    back = lab.snapshotter().restore(made, made.target)

    assert [r.result for r in back] == ["restored"]
    assert (lab.home / "work" / "a.ipynb").read_text() == "precious"


def test_a_pod_with_a_new_name_gets_the_files_of_the_old_one(lab: Lab, tmp_path: Path) -> None:
    held = lab.pod("web-abc12")
    (lab.home / "a").write_text("a")
    made = lab.snapshotter().take(lab.intent(held), {"home"})
    lab.site.pool.request("DELETE", f"{lab.site.url}/api/v1/namespaces/lab/pods/web-abc12")
    lab.machine.root = tmp_path / "new"
    (lab.machine.root / HOME.strip("/")).mkdir(parents=True)
    lab.pod("web-xyz99")

    back = lab.snapshotter().restore(made, made.target)

    assert [r.result for r in back] == ["restored"]
    assert (lab.machine.root / HOME.strip("/") / "a").read_text() == "a"


def test_no_running_pod_is_said_and_nothing_is_written(lab: Lab) -> None:
    held = lab.pod()
    made = lab.snapshotter().take(lab.intent(held), {"home"})
    lab.patch("/api/v1/namespaces/lab/pods/nb-0/status", {"status": {"phase": "Succeeded"}})
    back = lab.snapshotter().restore(made, made.target)
    assert [(r.result, r.why) for r in back] == [
        ("failed", "no running pod to give it back to"),
    ]


@pytest.mark.parametrize(
    ("prepare", "what", "said"),
    [
        (lambda lab: with_claim(lab, classes=False), "volume", "no VolumeSnapshotClass for driver"),
        (lambda _lab: None, "volume", "claim lab/home-ann is not there"),
        (lambda lab: lab.server.access.deny("create", "pods/exec"), "home", "forbidden"),
        (lambda lab: setattr(lab.machine, "home", ""), "home", "$HOME is '': set paths"),
        (lambda lab: setattr(lab.machine, "home", "/"), "home", "$HOME is '/': set paths"),
    ],
    ids=["no class", "no claim", "no exec", "no home", "root"],
)
def test_what_cannot_be_kept_is_named_and_the_snapshot_is_not_verified(
    lab: Lab, prepare: Any, what: Any, said: str
) -> None:
    prepare(lab)
    held = lab.pod(volumes=[CLAIM], mounts=MOUNT)

    made = lab.snapshotter().take(lab.intent(held), {what})

    assert not made.verified
    assert any(said in line for line in made.missing), made.missing


def test_a_volume_that_is_never_ready_or_fails_is_no_snapshot(lab: Lab) -> None:
    with_claim(lab)
    held = lab.pod(volumes=[CLAIM])
    waits: list[float] = []
    snapshotter = lab.snapshotter(ready_within="10s")
    snapshotter._ticks = lambda: sum(waits)
    # The wall clock is set back at each wait: it is not what ends the wait.
    start = snapshotter._clock()
    snapshotter._clock = lambda: start - timedelta(hours=len(waits))
    snapshotter._sleep = waits.append

    late = snapshotter.take(lab.intent(held), {"volume"})
    snapshotter._sleep = lambda _s: ready(lab, readyToUse=False, error={"message": "quota"})
    failed = snapshotter.take(lab.intent(held), {"volume"})

    assert [p.note for p in late.parts] == ["not ready within 10 s"]
    assert [p.note for p in failed.parts] == ["quota"]
    assert not late.verified
    assert not failed.verified


def test_another_pod_under_the_same_name_is_not_read(lab: Lab) -> None:
    held = lab.pod()
    other = msgspec.structs.replace(held, uid="another")
    made = lab.snapshotter().take(lab.intent(other), {"home"})
    assert made.missing == ("pod lab/nb-0 is another one by now",)
    assert not list(lab.kept.rglob("files-*"))


def test_names_of_a_cluster_never_leave_the_folder(lab: Lab) -> None:
    held = lab.pod()
    target = Target("../../up", "v1", "Notebook", "..", "a/b", "u")
    intent = msgspec.structs.replace(lab.intent(held), target=target)
    assert lab.snapshotter().take(intent, {"home"}).verified
    index = next(lab.kept.rglob("snapshot.json"))
    assert index.is_relative_to(lab.kept / ".._.._up" / "_" / "Notebook" / "a_b")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pytest.importorskip("moto.server")
    with s3.serving() as url:
        s3.make_bucket(url, "snaps")
        yield url


def bucket(endpoint: str, name: str = "snaps", **more: str) -> BucketStore:
    account = S3(
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="test",
        secret_access_key="test",
    )
    return BucketStore(f"s3://{name}/fallow", account, **more)


def test_an_archive_streams_to_a_bucket_in_parts_and_comes_back(
    lab: Lab, place: ContainerRef, endpoint: str
) -> None:
    lab.pod()
    (lab.home / "noise").write_bytes(random.Random(2).randbytes(20 << 20))
    store = bucket(endpoint, encryption="AES256")

    part = archive.archive_folder(
        lab.shell, store, place, archive.ArchivedFolder(HOME), "big", max_bytes=1 << 30
    )

    assert part.verified
    assert part.bytes > 16 << 20  # three parts
    head = store._client().head_object(Bucket="snaps", Key="fallow/big")
    assert head["ServerSideEncryption"] == "AES256"
    (lab.home / "noise").unlink()
    assert archive.restore_part(lab.shell, store, part, place).result == "restored"


def test_an_upload_that_is_given_up_leaves_nothing_in_the_bucket(
    lab: Lab, place: ContainerRef, endpoint: str
) -> None:
    lab.pod()
    (lab.home / "noise").write_bytes(random.Random(2).randbytes(20 << 20))
    lab.machine.cut_after = 12 << 20
    store = bucket(endpoint)

    with pytest.raises(TemporaryError):
        archive.archive_folder(
            lab.shell, store, place, archive.ArchivedFolder(HOME), "cut", max_bytes=1 << 30
        )

    client = store._client()
    assert client.list_objects_v2(Bucket="snaps", Prefix="fallow/cut")["KeyCount"] == 0
    assert not client.list_multipart_uploads(Bucket="snaps").get("Uploads")


def test_a_key_of_the_bucket_is_never_overwritten(endpoint: str) -> None:
    store = bucket(endpoint)
    archive.keep_bytes(store, "once", b"first", "manifest")
    with pytest.raises(RefusedError, match="never overwritten"):
        archive.keep_bytes(store, "once", b"second", "manifest")
    archive.keep_bytes(store, "onc", b"a key that begins like another", "manifest")
    assert b"".join(store.blocks("once")) == b"first"


def test_a_bucket_that_is_not_there_is_one_clear_line(endpoint: str) -> None:
    with pytest.raises(RefusedError, match="snapshots cannot be kept in nowhere"):
        archive.keep_bytes(bucket(endpoint, "nowhere"), "x", b"x", "manifest")


def test_a_store_that_is_away_is_temporary() -> None:
    with pytest.raises(TemporaryError, match="snapshots cannot be kept in snaps"):
        archive.keep_bytes(bucket("http://127.0.0.1:9"), "x", b"x", "manifest")


def test_a_folder_that_cannot_be_written_is_temporary(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TemporaryError, match="snapshots cannot be written"):
        archive.keep_bytes(FolderStore(tmp_path / "file"), "x", b"x", "manifest")
