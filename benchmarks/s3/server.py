"""An S3 server behind the proxy: versitygw where Go can build it, else moto."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import boto3

from benchmarks.s3.faults import FaultPlan
from benchmarks.s3.requests import Log

BUCKET = "bucket"
_GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Server:
    """An S3 server with an empty bucket.

    Attributes:
        options: the storage options that lead to its proxy.
        direct: those that lead past the proxy.
        log: the proxy's.
    """

    options: Mapping[str, str] = field(repr=False)
    direct: Mapping[str, str] = field(repr=False)
    log: Log


@contextmanager
def proxied_server(
    folder: Path, gateway: str | None, milliseconds: int = 0, faults: FaultPlan | None = None
) -> Iterator[Server]:
    """A server with its files in `folder`, behind a proxy that delays each request by so long and
    lets some go wrong. `gateway` is the program of versitygw; moto serves if there is none."""
    with _server(folder, gateway) as port:
        log = folder / "requests.log"
        command = [f"127.0.0.1:{port}", str(milliseconds), str(log)]
        if faults is not None:
            command += [str(faults.share), str(faults.seed), str(faults.stall_seconds)]
        proxy = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.s3.proxy", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert proxy.stdout is not None
        try:
            yield Server(_options(int(proxy.stdout.readline())), _options(port), Log(log))
        finally:
            proxy.communicate()


def versitygw(*, build: bool = True) -> str | None:
    """The program; where it is not there Go builds it, if it may. None without either."""
    installed, go = shutil.which("versitygw"), shutil.which("go")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "memwal_sql" / "bin" / "versitygw"
    if installed or program.exists():
        return installed or str(program)
    if not (build and go):
        return None
    environment = {**os.environ, "GOBIN": str(program.parent)}
    subprocess.run([go, "install", _GATEWAY], env=environment, check=True)
    return str(program)


@contextmanager
def _server(folder: Path, gateway: str | None) -> Iterator[int]:
    """The port of a server with an empty bucket."""
    port = _free_port()
    environment = {**os.environ, "ROOT_ACCESS_KEY": "key", "ROOT_SECRET_KEY": "secretsecret"}
    if gateway is None:
        command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    else:
        (folder / "objects" / BUCKET).mkdir(parents=True)
        (folder / "attributes").mkdir()
        # Without the sidecar it ignores If-None-Match.
        posix = ["posix", "--sidecar", str(folder / "attributes"), str(folder / "objects")]
        command = [gateway, "--quiet", "--port", f"127.0.0.1:{port}", *posix]
    with _process(command, environment):
        _wait_for(port)
        if gateway is None:
            _create_bucket(port)
        yield port


@contextmanager
def _process(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def _create_bucket(port: int) -> None:
    options = _options(port)
    client = boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        region_name=options["aws_region"],
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
    )
    client.create_bucket(Bucket=BUCKET)


def _options(port: int) -> dict[str, str]:
    return {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secretsecret",
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
