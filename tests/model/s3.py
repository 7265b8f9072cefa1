"""An S3 server in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@contextmanager
def s3_server(
    bucket: str, secret: str = "secret", around: Callable[[Application], Application] | None = None
) -> Iterator[dict[str, str]]:
    """A server with an empty bucket: the storage options that lead to it, and nothing more.

    `around` puts something between the clients and the server, as WSGI has it.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    if around is not None and (inner := server._server) is not None:
        inner.app = around(inner.app)
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
