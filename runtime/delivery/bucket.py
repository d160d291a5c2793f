"""Put a report into a bucket, once: its key says which it is, and no object is ever overwritten.

s3://bucket/prefix/CLUSTER/SCHEDULE/20261120T070000Z-fallow-finance-20261021-20261120.pdf
"""

import re
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit

from actions.notices.handing import Handed
from fallow.report_settings import Store
from runtime.delivery.book import Delivery
from runtime.reporting import Report

OURS = "fallow-delivery"
"""Metadata that names the delivery: an object that is there is either ours, or somebody else's."""
TAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
UNCONDITIONAL = frozenset({"NotImplemented", "501"})
ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
REFUSED = frozenset(
    {
        "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "403",
        "InvalidBucketName", "InvalidArgument", "KMS.NotFoundException",
    }
)  # fmt: skip


def address(store: Store, cluster: str, one: Delivery, report: Report) -> tuple[str, str]:
    """Return the bucket and the key of a report."""
    parts = urlsplit(store.url)
    due = one.due.astimezone(UTC)
    last = f"{due:%Y%m%dT%H%M%SZ}-{report.name}"
    words = (parts.path.strip("/"), _safe(cluster), one.schedule, last)
    return parts.netloc, "/".join(filter(None, words))


def put(store: Store, cluster: str, one: Delivery, report: Report) -> Handed:
    """Put a report under its key. Any number of tries is one object; `said` is where it lies."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from warehouse.cold import s3_client  # noqa: PLC0415  (boto3 loads in 0.3 s)

    bucket, key = address(store, cluster, one, report)
    where: dict[str, Any] = {"Bucket": bucket, "Key": key}
    how: dict[str, Any] = {"ContentType": report.media_type, "Metadata": {OURS: one.id}}
    if store.encryption:
        how["ServerSideEncryption"] = store.encryption
    if store.kms_key:
        how["SSEKMSKeyId"] = store.kms_key
    try:
        client = s3_client(store.s3)
        try:
            client.put_object(**where, **how, Body=report.body, IfNoneMatch="*")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in TAKEN:
                return _whose(client, where, one)
            if code not in UNCONDITIONAL:
                raise
            return _looked_first(client, where, how, one, report)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        said = f"the object store refuses {bucket}: {code}"
        return Handed(False, said, again=code not in REFUSED)
    except BotoCoreError as error:
        # Its own words hold the endpoint, never the keys.
        said = f"the object store of {bucket} cannot be used: {' '.join(str(error).split())}"
        return Handed(False, said, again=True)
    return Handed(True, f"s3://{bucket}/{key}")


def _whose(client: Any, where: dict[str, Any], one: Delivery) -> Handed:
    """Tell an object of ours, put by a try that did not live to say so, from another's."""
    found = client.head_object(**where)
    lies = f"s3://{where['Bucket']}/{where['Key']}"
    if found.get("Metadata", {}).get(OURS) == one.id:
        return Handed(True, lies)
    return Handed(False, f"{lies} is there already and not ours: not overwritten")


def _looked_first(
    client: Any, where: dict[str, Any], how: dict[str, Any], one: Delivery, report: Report
) -> Handed:
    """Put where the server knows no condition: only we write below this key, one at a time."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        return _whose(client, where, one)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ABSENT:
            raise
    client.put_object(**where, **how, Body=report.body)
    return Handed(True, f"s3://{where['Bucket']}/{where['Key']}")


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)
