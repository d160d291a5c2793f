"""Readers of a lake in S3 have keys of their own, which may neither PUT nor DELETE."""

import json
import urllib.request
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from fallow.settings import load
from fallow.tables import Batch
from tests.servers import s3
from warehouse.lake import Warehouse

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto.server")

READ = ["s3:GetObject", "s3:ListBucket"]


def _make_keys(endpoint: str, name: str, actions: list[str]) -> dict[str, str]:
    iam = boto3.client(
        "iam",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    allowed = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=document)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}


def test_a_reader_reads_with_keys_that_can_write_nothing(tmp_path: Path) -> None:
    with s3.serving() as endpoint:
        s3.make_bucket(endpoint, "lake")
        keys = {
            "s3": _make_keys(endpoint, "writer", ["s3:*"]),
            "read_s3": _make_keys(endpoint, "reader", READ),
        }
        heads = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", b"0", heads)
        urllib.request.urlopen(request, timeout=10).close()  # policies hold from now on
        flags = {
            f"warehouse.{group}.{name}": value
            for group, pair in keys.items()
            for name, value in pair.items()
        }
        place = {"warehouse.s3.endpoint": endpoint, "warehouse.s3.region": "us-east-1"}
        home = {"home": tmp_path / "home", "cluster": "test", "warehouse.data": "s3://lake/data"}
        settings = load(environ={}, flags={**home, **place, **flags}).settings
        with Warehouse.open(settings, write=True) as writer:
            timestamp = datetime(2026, 11, 19)  # noqa: DTZ001  (tables hold naive UTC)
            rows = {"cluster": ["test"], "ts": [timestamp], "device": ["GPU-1"]}
            assert writer.ingest([Batch.of("sample", rows)]).added == 1
        with Warehouse.open(settings) as reader, reader.catalog_cursor() as cursor:
            assert reader.query("FROM sample").num_rows == 1
            with pytest.raises(duckdb.Error, match="AccessDenied"):
                cursor.execute("COPY (SELECT 1) TO 's3://lake/data/x.parquet'")
