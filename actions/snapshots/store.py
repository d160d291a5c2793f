"""The store of snapshots: a folder, or an S3 bucket that encrypts. Nothing is ever overwritten.

writer = store.write(key)      # appears under its key only when `commit` returned
writer.add(piece); writer.commit()
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from fallow.errors import RefusedError, TemporaryError
from fallow.settings.groups import S3
from fallow.settings.snapshots import SnapshotSettings
from fallow.system.deadlines import call_within
from warehouse.cold_storage import create_s3_client

BLOCK = 1 << 20
PART = 8 << 20
"""Bytes of one part of an upload; S3 takes at least 5 MiB and at most 10,000 parts."""
CALL_S, PART_S = 60.0, 600.0
"""Seconds in all for a small call, and for one that moves a part. boto3's timeouts are per read."""


class ObjectWriter(AbstractContextManager["ObjectWriter"], Protocol):
    """Takes pieces; without `commit` nothing remains."""

    def add(self, piece: bytes) -> None:
        """Take one piece."""
        ...

    def commit(self) -> None:
        """Make the object visible and durable."""
        ...


class SnapshotStore(Protocol):
    """Objects by key, written once."""

    def write(self, key: str) -> ObjectWriter:
        """Begin an object; refuses an existing key."""
        ...

    def blocks(self, key: str) -> Iterator[bytes]:
        """Yield an object's bytes."""
        ...


def open_store(settings: SnapshotSettings, home: Path) -> SnapshotStore:
    """Return the store of the settings; without one, a folder under `home`."""
    if settings.store.startswith("s3://"):
        return BucketStore(settings.store, settings.s3, settings.encryption, settings.kms_key)
    return FolderStore(Path(settings.store or home / "snapshots"))


class FolderStore:
    """Objects as files below a folder that only its owner may read."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, key: str) -> "_File":
        """Begin an object.

        Raises:
            RefusedError: the key exists.
            TemporaryError: the folder cannot be written.
        """
        final = self.root / key
        if final.exists():
            raise RefusedError(f"{final} is there already: a snapshot is never overwritten")
        return _File(final)

    def blocks(self, key: str) -> Iterator[bytes]:
        """Yield an object's bytes.

        Raises:
            FileNotFoundError: it does not exist.
        """
        with (self.root / key).open("rb") as file:
            while block := file.read(BLOCK):
                yield block


class _File:
    def __init__(self, final: Path) -> None:
        self._final = final
        self._temporary = final.with_name(f".{final.name}.{os.getpid()}")
        try:
            final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = open(self._temporary, "xb", opener=_open_private)  # noqa: SIM115  (Path.open has no opener)
        except OSError as error:
            raise TemporaryError(f"snapshots cannot be written: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def add(self, piece: bytes) -> None:
        """Take one piece."""
        try:
            self._file.write(piece)
        except OSError as error:
            raise TemporaryError(f"snapshots cannot be written: {error}") from error

    def commit(self) -> None:
        """Make the file visible; it is on disk before it has its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        os.link(self._temporary, self._final)  # unlike a rename, it refuses an existing name
        folder = os.open(self._final.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


class BucketStore:
    """Objects of a bucket's prefix, uploaded in parts as they are made."""

    def __init__(self, root: str, s3: S3, encryption: str = "", kms_key: str = "") -> None:
        parts = urlsplit(root)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._s3 = s3
        self._s3_client: Any = None
        self._options = {"ServerSideEncryption": encryption} if encryption else {}
        if kms_key:
            self._options["SSEKMSKeyId"] = kms_key

    def write(self, key: str) -> "_Upload":
        """Begin an object.

        Raises:
            RefusedError: the key exists, or the bucket denies access.
            TemporaryError: the store does not answer.
        """
        return _Upload(self._client(), self._bucket, self._full(key), self._options)

    def blocks(self, key: str) -> Iterator[bytes]:
        """Yield an object's bytes.

        Raises:
            FileNotFoundError: it does not exist.
            TemporaryError: the store does not answer.
        """
        with _translate_errors(self._bucket):
            where = {"Bucket": self._bucket, "Key": self._full(key)}
            body = call_within(CALL_S, lambda: self._client().get_object(**where))["Body"]
            while block := call_within(PART_S, lambda: body.read(BLOCK)):
                yield block

    def _full(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _client(self) -> Any:
        self._s3_client = self._s3_client or create_s3_client(self._s3)
        return self._s3_client


class _Upload:
    def __init__(self, client: Any, bucket: str, key: str, options: dict[str, str]) -> None:
        self._client, self._where = client, {"Bucket": bucket, "Key": key}
        self._bucket, self._buffer, self._is_done = bucket, bytearray(), False
        with _translate_errors(bucket):
            listed = call_within(
                CALL_S, lambda: client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
            )
            if any(item["Key"] == key for item in listed.get("Contents", ())):  # first of all
                raise RefusedError(f"s3://{bucket}/{key} is there already: never overwritten")
            upload = call_within(
                CALL_S, lambda: client.create_multipart_upload(**self._where, **options)
            )
        self._where["UploadId"] = upload["UploadId"]
        self._parts: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_done:
            with _translate_errors(self._bucket):
                call_within(CALL_S, lambda: self._client.abort_multipart_upload(**self._where))

    def add(self, piece: bytes) -> None:
        """Take one piece; a part is sent when it is full."""
        self._buffer += piece
        while len(self._buffer) >= PART:
            self._send(bytes(self._buffer[:PART]))
            del self._buffer[:PART]

    def commit(self) -> None:
        """Send the last part and make the object visible."""
        if self._buffer or not self._parts:
            self._send(bytes(self._buffer))
        with _translate_errors(self._bucket):
            call_within(
                PART_S,
                lambda: self._client.complete_multipart_upload(
                    **self._where, MultipartUpload={"Parts": self._parts}
                ),
            )
        self._is_done = True

    def _send(self, data: bytes) -> None:
        number = len(self._parts) + 1
        with _translate_errors(self._bucket):
            response = call_within(
                PART_S,
                lambda: self._client.upload_part(**self._where, PartNumber=number, Body=data),
            )
        self._parts.append({"ETag": response["ETag"], "PartNumber": number})


class _translate_errors(AbstractContextManager[None]):  # noqa: N801  (read as a word: with _explained)
    """Turn the object store's errors into ours."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            return
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        if not isinstance(error, (BotoCoreError, ClientError, TimeoutError)):
            return
        text = " ".join(str(error).split())
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        if code in {"NoSuchKey", "404"}:
            raise FileNotFoundError(text) from error
        if code in {"NoSuchBucket", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"}:
            raise RefusedError(
                f"snapshots cannot be kept in {self._bucket}: {text}",
                hint="check snapshots.store and snapshots.s3",
            ) from error
        raise TemporaryError(f"snapshots cannot be kept in {self._bucket}: {text}") from error
