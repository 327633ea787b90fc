"""A program that has imported what most processes of tests import, and forks one for each that is asked for.

Python and our packages take most of a second of processor time to start; a fork takes a hundredth. What is forked is a
process like any other: it has the command line, folder, environment and streams that were asked for, ends by itself or
by a signal, and can be killed. `support.forked` asks for processes.

`fork_server.py SOCKET MODULE...`: imports the modules, listens at SOCKET and prints a line. It ends with its standard
input, and kills whom it forked. A request is a `marshal` of the four of `Request`, with three descriptors: standard
input, output and error. The replies are four bytes each: the process id at once, and its wait status when it has ended.
A connection that is closed before kills the process.
"""

import gc
import marshal
import os
import runpy
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

REQUEST_BYTES_MAX = 1 << 20
WORD = struct.Struct("<i")
BACKLOG = 64


class Request(NamedTuple):
    # As for `python`: `-c TEXT`, `-m MODULE` or a file, and its arguments.
    arguments: list[str]
    folder: str
    environment: dict[bytes, bytes]
    # As a shell starts what runs in the background.
    ignores_ctrl_c: bool


class ForkServer:
    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(BACKLOG)
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)
        # Ctrl-C is for those whom a test runs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._links: dict[int, socket.socket] = {}

    def run(self) -> Request | None:
        """In a forked process: what it is to run. None at the end of the server."""
        while True:
            waits = select.poll()
            for file in (0, self._woken, self._listener.fileno()):
                waits.register(file, select.POLLIN | select.POLLHUP)
            links = {link.fileno(): pid for pid, link in self._links.items()}
            for file in links:
                waits.register(file, select.POLLIN | select.POLLHUP)
            for file, _ in waits.poll():
                if file == 0:
                    self._kill_all()
                    return None
                if file == self._woken:
                    os.read(self._woken, 4096)
                    self._reap()
                elif file == self._listener.fileno():
                    request = self._fork()
                    if request is not None:
                        return request
                elif file in links and links[file] in self._links:
                    # Nothing is ever sent here: whoever asked has gone.
                    self._end(links[file])

    def _fork(self) -> Request | None:
        link, _ = self._listener.accept()
        with suppress(OSError, ValueError, EOFError):
            head, files, _, _ = socket.recv_fds(link, WORD.size, 3)
            with link.dup().makefile("rb") as stream:
                request = Request(*marshal.loads(stream.read(WORD.unpack(head)[0])))
            pid = os.fork()
            if pid == 0:
                link.close()
                self._become(request, files)
                return request
            for file in files:
                os.close(file)
            self._links[pid] = link
            link.sendall(WORD.pack(pid))
        return None

    def _become(self, request: Request, files: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        for one in (self._listener, *self._links.values()):
            one.close()
        for file in (self._woken, self._wake):
            os.close(file)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        on_ctrl_c: Any = signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN if request.ignores_ctrl_c else on_ctrl_c)
        os.chdir(request.folder)
        os.environb.clear()
        os.environb.update(request.environment)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                link = self._links.pop(found[0], None)
                if link is not None:
                    with suppress(OSError):
                        link.sendall(WORD.pack(found[1]))
                    link.close()

    def _end(self, pid: int) -> None:
        self._links.pop(pid).close()
        os.kill(pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for pid in list(self._links):
            self._end(pid)


def execute(request: Request) -> NoReturn:
    """As `python` would, with these arguments."""
    kind, *rest = request.arguments
    if kind == "-m":
        sys.argv = rest
        sys.path[0] = ""
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = request.arguments
        sys.path[0] = os.path.dirname(kind)
        runpy.run_path(kind, run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        import_module(name)
    gc.collect()
    gc.freeze()
    server = ForkServer(sys.argv[1])
    print("ready", flush=True)
    # Its names are in use until the end, whatever else is called `__main__` then.
    own_module = sys.modules["__main__"]
    if (wanted := server.run()) is not None:
        execute(wanted)
