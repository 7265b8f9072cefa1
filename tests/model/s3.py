"""An S3 server in this process."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

import boto3
from moto.moto_server.werkzeug_app import create_backend_app
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Requests:
    """Takes down what is asked of a server, as in `PUT bucket/object` and `LIST bucket/folder/`."""

    def __init__(self) -> None:
        self._seen: list[str] = []

    def around(self, inner: Application) -> Application:
        """For `s3_server`."""

        def application(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            query = parse_qs(environment.get("QUERY_STRING", ""))
            kind, path = environment["REQUEST_METHOD"], environment["PATH_INFO"].lstrip("/")
            if "list-type" in query:
                kind, path = "LIST", f"{path}/{query.get('prefix', [''])[0]}"
            self._seen.append(f"{kind} {path}")
            return inner(environment, start)

        return application

    def take(self) -> list[str]:
        """Those since the last call."""
        found, self._seen = self._seen, []
        return found


def _conditional_puts_in_turn(inner: Application) -> Application:
    """Moto looks for the object and then writes it: two of its threads can both find none."""
    lock = threading.Lock()

    def application(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environment:
            return inner(environment, start)
        with lock:
            return inner(environment, start)

    return application


@functools.cache
def _s3() -> Application:
    """Moto's S3 alone: its server looks through the folders of all services at each request."""
    return create_backend_app("s3")


@contextmanager
def s3_server(
    bucket: str, secret: str = "secret", around: Callable[[Application], Application] | None = None
) -> Iterator[dict[str, str]]:
    """A server with an empty bucket: the storage options that lead to it, and nothing more.

    `around` puts something between the clients and the server, as WSGI has it.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    if (inner := server._server) is not None:
        inner.app = _conditional_puts_in_turn(_s3())
        inner.app = around(inner.app) if around is not None else inner.app
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
