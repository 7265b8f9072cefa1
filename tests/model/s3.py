"""An S3 server in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer


@contextmanager
def s3_server(bucket: str, secret: str = "secret") -> Iterator[dict[str, str]]:
    """A server with an empty bucket: the storage options that lead to it, and nothing more."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "aws_access_key_id": "key",
            "aws_secret_access_key": secret,
            "aws_endpoint": f"http://{host}:{port}",
            "aws_region": "us-east-1",
            "allow_http": "true",
        }
        s3_client(options).create_bucket(Bucket=bucket)
        yield options
    finally:
        server.stop()


def s3_client(options: Mapping[str, str]) -> Any:
    """A client of the server that the storage options lead to."""
    return boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        region_name=options["aws_region"],
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
    )
