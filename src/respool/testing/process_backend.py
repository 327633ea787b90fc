"""A broker in its own process, and the channel to it: a socket pair that no other process can use.

```
command  {"name": "advance", "arguments": {"ms": 1000}}\n
answer   {"result": null}\n   or   {"error": "PortTaken", "message": "..."}\n
```
The first command is `open`, with the plan. When the other end is closed, for any reason, the child stops its broker and
exits.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from typing import IO, Any

from respool.testing.backend import COMMAND_S_MAX, with_log
from respool.testing.broker_plan import TestBrokerPlan
from respool.testing.errors import BY_NAME, BrokerFailed, BrokerUnresponsive, TestBrokerError

# The child imports modules from the same paths as this process.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from respool.testing.process_main import main; main(int(sys.argv[1]))"
)
END_S_MAX = 20.0


class ProcessBackend:
    """A `Backend`."""

    def __init__(self, plan: TestBrokerPlan) -> None:
        self._lock = threading.Lock()
        # Without a name: it is removed when the last process closes it.
        self._log_file = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed in `close`
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this Python and our own text
                [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log_file,
            )
        # Slightly longer than the child's own timeout.
        ours.settimeout(COMMAND_S_MAX + 10)
        self._channel = ours
        self._lines: IO[str] = ours.makefile("r", encoding="utf-8")
        try:
            self.call("open", plan=asdict(plan))
        except BaseException:
            self._end()
            raise

    def call(self, name: str, /, **arguments: Any) -> Any:
        command = json.dumps({"name": name, "arguments": arguments}) + "\n"
        try:
            with self._lock:
                self._channel.sendall(command.encode())
                answer = self._lines.readline()
        except TimeoutError:
            raise BrokerUnresponsive(
                f"{name}: the broker's process does not answer{with_log(self.log)}"
            ) from None
        except OSError:
            answer = ""
        if not answer:
            code = self._process.wait(END_S_MAX)
            raise BrokerFailed(
                f"{name}: the broker's process ended with {code}{with_log(self.log)}"
            )
        fields = json.loads(answer)
        if "error" in fields:
            raise BY_NAME.get(fields["error"], TestBrokerError)(fields["message"])
        return fields["result"]

    def close(self) -> None:
        try:
            if self._process.poll() is None:
                self.call("close")
        finally:
            self._end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        if self._log_file.closed:
            return ""
        size = os.fstat(self._log_file.fileno()).st_size
        return os.pread(self._log_file.fileno(), size, 0).decode(errors="replace")

    def _end(self) -> None:
        self._lines.close()
        self._channel.close()
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log_file.close()
