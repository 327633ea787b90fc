"""`respool` and `python` as programs that run in forked processes, for shells and for whoever starts a program.

They are started by a Python that imports next to nothing, which hands its arguments, folder, environment and streams
over, passes signals on, and ends as the forked process does.
"""

import sys
import tempfile
from functools import cache
from pathlib import Path

from support.forked import server_with

# What commands and scripts import that connect to a broker.
OF_COMMANDS = (
    "respool.cli.main",
    "respool.client.arrow.reading.stream",
    "respool.client.arrow.writing.write_table",
    "respool.client.kafka.admin",
    "respool.client.kafka.configs",
    "respool.client.kafka.groups",
    "respool.client.kafka.list_offsets",
    "respool.client.kafka.view_descriptions",
    "respool.client.messages.consumer",
    "respool.client.messages.producer",
    "respool.columnar.decode_columns",
    "respool.columnar.encode_columns",
    "respool.tables.formats.table_log",
    "confluent_kafka.admin",
    # Each version of a request is a module.
    "kio.schema.api_versions.v4.response",
    "kio.schema.metadata.v10.response",
    "pyarrow.compute",
)
PROGRAM = """#!{python} -IS
import _signal
import _socket
import marshal
import posix
import sys

arguments = sys.argv[1:]
if sys.argv[0].endswith("respool"):
    arguments[:0] = ["-m", "respool.cli"]
ignores_ctrl_c = _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN
passed_on = [_signal.SIGTERM, _signal.SIGHUP] + [_signal.SIGINT] * (not ignores_ctrl_c)
_signal.pthread_sigmask(_signal.SIG_BLOCK, passed_on)
link = _socket.socket(_socket.AF_UNIX)
link.connect({server!r})
request = marshal.dumps((arguments, posix.getcwd(), dict(posix.environ), ignores_ctrl_c))
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
link.sendmsg([len(request).to_bytes(4, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
link.sendall(request)


def reply():
    return int.from_bytes(link.recv(4, _socket.MSG_WAITALL), "little")


process = reply()
for number in passed_on:
    _signal.signal(number, lambda number, _: posix.kill(process, number))
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, passed_on)
status = reply()
if posix.WIFSIGNALED(status):
    if posix.WTERMSIG(status) != _signal.SIGKILL:
        _signal.signal(posix.WTERMSIG(status), _signal.SIG_DFL)
    posix.kill(posix.getpid(), posix.WTERMSIG(status))
posix._exit(posix.WEXITSTATUS(status))
"""


@cache
def forked_commands() -> Path:
    """A folder to put first in PATH."""
    folder = Path(tempfile.mkdtemp(prefix="respool-commands-"))
    text = PROGRAM.format(python=sys.executable, server=server_with(OF_COMMANDS))
    for name in ("respool", "python", "python3"):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    return folder
