"""`python -m benchmarks.s3.proxy TARGET MILLISECONDS LOG [SHARE SEED STALL_SECONDS]`: a proxy
before an S3 server.

It holds every request back for so long and notes it in a log; with the last three, `FaultPlan`'s,
it lets some go wrong. Its port is the first line that it prints; it ends with its standard input.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import TextIOBase
from pathlib import Path

from benchmarks.s3.faults import Fault, FaultPlan, Faults

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, and one of its own to the server behind."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    target = ""
    delay = 0.0
    faults = Faults(FaultPlan())
    log: TextIOBase
    lock = threading.Lock()

    def setup(self) -> None:
        super().setup()
        self._behind = HTTPConnection(self.target)

    def finish(self) -> None:
        self._behind.close()
        super().finish()

    def _forward(self) -> None:
        start = time.monotonic()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, wait = self.faults.next()
        time.sleep(self.delay + wait)
        if fault is Fault.REFUSED:
            self._note(start, fault)
            self._fail(503)
            return
        answer, content = self._ask(body)
        self._note(start, fault)
        if fault is Fault.LOST:
            self._fail(500)
        elif fault is Fault.CUT and not content:
            self.close_connection = True
        else:
            self._answer(answer, content, cut=fault is Fault.CUT)

    def _ask(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        """The answer of the server behind."""
        # The client has signed its headers, the host among them.
        self._behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            self._behind.putheader(name, value)
        self._behind.endheaders(body or None)
        answer = self._behind.getresponse()
        return answer, answer.read()

    def _answer(self, answer: HTTPResponse, content: bytes, *, cut: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = str(len(content))
        if self.command == "HEAD":
            length = answer.getheader("Content-Length") or "0"
        if answer.status != 204:  # which has no length
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection |= cut

    def _fail(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _note(self, start: float, fault: Fault | None) -> None:
        """Before the answer: who has that finds the request in the log."""
        fields = [f"{start:.4f}", f"{time.monotonic():.4f}", self.command, self.path]
        with self.lock:
            print(*fields, *([fault.name] if fault else ()), file=self.log, flush=True)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 (http.server's names)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that gave up are gone."""


def main(arguments: Sequence[str]) -> None:
    """Serve until the standard input ends."""
    target, milliseconds, log, *plan = arguments
    _Handler.target, _Handler.delay = target, int(milliseconds) / 1000
    if plan:
        _Handler.faults = Faults(FaultPlan(float(plan[0]), int(plan[1]), float(plan[2])))
    with Path(log).open("w") as file, _Server(("127.0.0.1", 0), _Handler) as server:
        _Handler.log = file
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
