"""Programs of Python that begin with everything imported, and end as any other."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import runpy
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from tempfile import TemporaryFile
from typing import Any

from tests.model.process import forks


class _Descriptor:
    """An open file that another process gets."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        return _detached, (DupFd(self._number),)


def _detached(copy: Any) -> int:
    return int(copy.detach())


def run(
    *arguments: object,
    stdin: int | None = None,
    stdout: int | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run([sys.executable, *arguments])` returns, with the texts, but without the
    two seconds in which Python starts. `arguments` begin with `-m` or `-c`; `stdin` and `stdout`
    are descriptors."""
    with TemporaryFile() as out, TemporaryFile() as err, open(os.devnull, "rb") as nothing:
        given = (nothing.fileno() if stdin is None else stdin, out.fileno(), err.fileno())
        files = given if stdout is None else (given[0], stdout, given[2])
        process = start(arguments, files, env)
        process.join()
        texts = [file.seek(0) or file.read().decode() for file in (out, err)]
        return subprocess.CompletedProcess(arguments, process.exitcode or 0, *texts)


def start(
    arguments: Sequence[object],
    files: Sequence[int],
    env: Mapping[str, str] | None = None,
    *,
    has_terminal: bool = False,
) -> BaseProcess:
    """A program with these descriptors as its standard input, output and errors. `has_terminal`:
    they are a terminal, which becomes its own."""
    words, variables = [str(one) for one in arguments], dict(os.environ if env is None else env)
    given = (words, [_Descriptor(one) for one in files], variables, os.getcwd(), has_terminal)
    process = forks().Process(target=_become, args=given)
    process.start()
    return process


def _become(
    words: Sequence[str],
    descriptors: Sequence[int],
    variables: Mapping[str, str],
    folder: str,
    has_terminal: bool,
) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if has_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    kind, what, *_ = words
    sys.argv = [kind if kind == "-c" else what, *words[2:]]
    code: object = 0
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    gc.freeze()  # what was imported is not looked at any more
    # `os._exit`, with which a fork ends, would leave out the end of a program.
    ctypes.pythonapi.Py_Exit(code if isinstance(code, int) else int(code is not None))
