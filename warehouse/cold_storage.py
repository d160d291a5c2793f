"""The cold tier's store: a folder, or a prefix of any S3-compatible object store.

A file appears under its final name completely or not at all: by a rename in a folder, by one PUT in
a store. A file's name is derived from its content, so that a second write of the same rows replaces
the file by an equal one.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from fallow.errors import TemporaryError, WarehouseError
from fallow.settings import Settings
from fallow.settings.groups import S3
from fallow.system.deadlines import call_within

_REFUSED = {"403", "401", "AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId"}

_CONFLICTS = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
"""Answers of a store to "only where there is none"."""

ANSWER_S = 10.0
"""Seconds within which a store has to answer a first small request, from connecting to the end."""

_BLOCK = 1 << 20
"""Bytes read at a time."""


class ColdStore(Protocol):
    """The store of archived files."""

    root: str

    def check(self) -> None:
        """Raise TemporaryError where the store does not answer within `ANSWER_S` in all."""

    def put(self, staged: Path, path: str) -> None:
        """Make the staged file appear at `path`, durable, replacing what was there."""

    def write(self, path: str, content: bytes, *, is_new: bool) -> bool:
        """Make a small file appear, durable; `is_new`: only where there is none. Return whether."""

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes; raise FileNotFoundError where it does not exist."""

    def listed(self) -> Iterator[tuple[str, datetime]]:
        """Yield every file's path and when it was written (aware UTC)."""


def open_store(settings: Settings) -> ColdStore:
    """Return the store that the settings name; by default a folder under the home folder."""
    return open_place(locate_cold(settings), settings.warehouse.s3, "warehouse.cold")


def open_place(root: str, s3: S3, name: str) -> ColdStore:
    """Return a folder or a bucket's prefix as a store; `name` is what chose it, for errors.

    Raises:
        WarehouseError: it is neither.
    """
    if "://" not in root:
        return ColdFolder(str(Path(root).expanduser().absolute()))
    if not root.startswith("s3://"):
        raise WarehouseError(
            f"{name} {root!r} is no place we can write",
            hint="write a folder, or s3://bucket/prefix",
        )
    return ColdBucket(root.rstrip("/"), s3)


def is_empty(place: ColdStore) -> bool:
    """Return whether nothing is in a folder or below a prefix; one that is not there is empty."""
    if "://" in place.root:
        return next(iter(place.listed()), None) is None
    folder = Path(place.root)
    return not folder.exists() or not any(p.name != "lost+found" for p in folder.iterdir())


def locate_cold(settings: Settings) -> str:
    """Return where archived files lie: an absolute folder or an address, without a last slash."""
    wanted = settings.warehouse.cold
    if "://" in wanted:
        return wanted.rstrip("/")
    folder = Path(wanted).expanduser() if wanted else settings.home.expanduser() / "cold"
    return str(folder.absolute())


class ColdFolder:
    """A local folder (or a mounted one); `pattern`: the names of its files."""

    def __init__(self, root: str, pattern: str = "*.parquet*") -> None:
        self.root = root
        self._pattern = pattern

    def check(self) -> None:
        """Do nothing: a folder answers or its calls fail."""

    def put(self, staged: Path, path: str) -> None:
        """Make the staged file appear at `path`, durable, replacing what was there."""
        # The staged file may be on another disk: copy it beside the final name, then rename it.
        with staged.open("rb") as source:
            _write_beside(Path(path), iter(lambda: source.read(_BLOCK), b""), Path.replace)
        for folder in list(Path(path).parent.parents)[:3]:
            _sync_folder(folder)

    def write(self, path: str, content: bytes, *, is_new: bool) -> bool:
        """Make a small file appear, durable; `is_new`: only where there is none. Return whether."""
        try:
            _write_beside(Path(path), [content], _create_link if is_new else Path.replace)
        except FileExistsError:
            return False
        return True

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        Path(path).unlink(missing_ok=True)

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes.

        Raises:
            FileNotFoundError: it is not there.
        """
        # A FIFO is as an empty file, and delays nobody.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            while block := file.read(_BLOCK):
                yield block

    def listed(self) -> Iterator[tuple[str, datetime]]:
        """Yield every file's path and when it was written (aware UTC)."""
        for path in Path(self.root).rglob(self._pattern):
            yield str(path), datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _write_beside(
    final: Path, blocks: Iterable[bytes], place: Callable[[Path, Path], object]
) -> None:
    """Write a file beside its final name, flush it, and let `place` give it that name."""
    final.parent.mkdir(parents=True, exist_ok=True)
    near = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        with near.open("wb") as target:
            target.writelines(blocks)
            target.flush()
            os.fsync(target.fileno())
        place(near, final)
    finally:
        near.unlink(missing_ok=True)
    _sync_folder(final.parent)


def _create_link(near: Path, final: Path) -> None:
    """Give a file its final name if nothing has it; without hard links two may be first."""
    try:
        os.link(near, final)
    except FileExistsError:
        raise
    except OSError:
        if final.exists():
            raise FileExistsError(final) from None
        near.replace(final)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def create_s3_client(s3: S3) -> Any:
    """Return a client of any S3-compatible endpoint."""
    import boto3
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client(
        "s3",
        endpoint_url=s3.endpoint or None,
        region_name=s3.region or os.environ.get("AWS_REGION") or "us-east-1",
        aws_access_key_id=s3.access_key_id or None,
        aws_secret_access_key=s3.secret_access_key.get_secret_value() or None,
        config=Config(
            s3={"addressing_style": "path" if s3.path_style else "auto"},
            retries={"mode": "standard", "max_attempts": 4},
            connect_timeout=10,
            read_timeout=60,
        ),
    )


class ColdBucket:
    """A bucket's prefix, by boto3."""

    def __init__(self, root: str, s3: S3) -> None:
        self.root = root
        self._s3 = s3
        self._cached_client: Any = None

    def check(self) -> None:
        """List one object.

        Raises:
            TemporaryError: the store does not answer completely within `ANSWER_S`.
            WarehouseError: it refuses access, or has no such bucket.
        """
        bucket, prefix = _split_address(self.root + "/")
        try:
            with self._explained():
                call_within(
                    ANSWER_S,
                    lambda: self._client().list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1),
                )
        except TimeoutError as error:
            raise TemporaryError(
                f"the object store does not answer within {ANSWER_S:g} s ({self.root})",
                hint="nothing was lost; try again when it answers",
            ) from error

    def put(self, staged: Path, path: str) -> None:
        """Make the staged file appear at `path`, durable, replacing what was there.

        Raises:
            TemporaryError: the store acknowledged the object and does not have it whole.
        """
        bucket, key = _split_address(path)
        with self._explained():
            self._client().upload_file(str(staged), bucket, key)
        try:
            with self._explained(), _explain_absence(path):
                size = self._client().head_object(Bucket=bucket, Key=key)["ContentLength"]
        except FileNotFoundError:
            size = None
        if size != staged.stat().st_size:
            raise explain_lost_object(path)

    def write(self, path: str, content: bytes, *, is_new: bool) -> bool:
        """Make a small object appear; `is_new`: only where there is none. Return whether."""
        bucket, key = _split_address(path)
        condition = {"IfNoneMatch": "*"} if is_new else {}
        with self._explained():
            try:
                self._client().put_object(Bucket=bucket, Key=key, Body=content, **condition)
            except self._client().exceptions.ClientError as error:
                if error.response["Error"]["Code"] in _CONFLICTS:
                    return False
                if not (is_new and error.response["Error"]["Code"] == "NotImplemented"):
                    raise
                return not self.exists(path) and self.write(path, content, is_new=False)
        return True

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        bucket, key = _split_address(path)
        with self._explained():
            self._client().delete_object(Bucket=bucket, Key=key)

    def copy(self, source: str, target: str) -> None:
        """Let the store copy an object of at most 5 GB; this process reads nothing of it.

        Raises:
            FileNotFoundError: it is not there.
        """
        bucket, key = _split_address(target)
        source_bucket, source_key = _split_address(source)
        origin = {"Bucket": source_bucket, "Key": source_key}
        with self._explained(), _explain_absence(source):
            self._client().copy_object(Bucket=bucket, Key=key, CopySource=origin)

    def exists(self, path: str) -> bool:
        """Return whether an object is there."""
        bucket, key = _split_address(path)
        try:
            with self._explained(), _explain_absence(path):
                self._client().head_object(Bucket=bucket, Key=key)
        except FileNotFoundError:
            return False
        return True

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes.

        Raises:
            FileNotFoundError: it is not there.
        """
        bucket, key = _split_address(path)
        with self._explained():
            with _explain_absence(path):
                body = self._client().get_object(Bucket=bucket, Key=key)["Body"]
            yield from body.iter_chunks(_BLOCK)

    def listed(self) -> Iterator[tuple[str, datetime]]:
        """Yield every file's path and when it was written (aware UTC)."""
        bucket, prefix = _split_address(self.root + "/")
        with self._explained():
            pages = self._client().get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=bucket, Prefix=prefix):
                for stored_object in page.get("Contents", []):
                    yield (
                        f"s3://{bucket}/{stored_object['Key']}",
                        stored_object["LastModified"].astimezone(UTC),
                    )

    def _client(self) -> Any:
        self._cached_client = self._cached_client or create_s3_client(self._s3)
        return self._cached_client

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import boto3.exceptions
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            yield
        except (BotoCoreError, ClientError, boto3.exceptions.Boto3Error) as error:
            text = " ".join(str(error).split())
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
            if code in _REFUSED or any(f"({name})" in text for name in _REFUSED):
                raise WarehouseError(
                    f"the object store refuses our credentials for {self.root}: {text}",
                    hint="check warehouse.s3",
                ) from error
            if code == "NoSuchBucket" or "(NoSuchBucket)" in text:
                raise WarehouseError(
                    f"the object store has no bucket for {self.root}: {text}",
                    hint="create it, or correct warehouse.cold",
                ) from error
            raise TemporaryError(
                f"the object store cannot be used ({self.root}): {text}",
                hint="nothing was lost; try again when it answers",
            ) from error


def explain_lost_object(path: str) -> TemporaryError:
    """Return the error of an object that its store acknowledged and does not have."""
    return TemporaryError(
        f"the object store acknowledged {path} and did not keep it",
        hint="nothing was moved or lost; ask who runs the store",
    )


@contextmanager
def _explain_absence(path: str) -> Iterator[None]:
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        yield
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "404"):  # HEAD has no other text
            raise FileNotFoundError(path) from error
        raise


def _split_address(path: str) -> tuple[str, str]:
    parts = urlsplit(path)
    return parts.netloc, parts.path.lstrip("/")
