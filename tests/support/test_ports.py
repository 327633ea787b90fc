import socket
import subprocess
import sys
from pathlib import Path

from support import ports
from support.ports import FIRST, LAST, reserve_port, reserve_ports

TESTS = Path(__file__).parents[1]
LOCK = "import sys; from support import ports; print(ports._lock(int(sys.argv[1])))"


def test_ports_differ_and_are_none_that_connections_are_made_from() -> None:
    reserved = reserve_ports(20)
    assert len(set(reserved)) == 20
    assert all(FIRST <= port < LAST for port in reserved)


def test_a_port_is_reserved_once_in_this_process_and_in_all_others() -> None:
    port = reserve_port()
    assert not ports._lock(port)
    command = [sys.executable, "-c", LOCK, str(port)]
    other = subprocess.run(
        command, env={"PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=True
    )
    assert other.stdout == "False\n"


def test_a_port_somebody_listens_on_is_not_free() -> None:
    port = reserve_port()
    assert ports._can_listen(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not ports._can_listen(port)
