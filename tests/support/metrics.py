"""What a broker counts, read from its Prometheus page."""

import re
import socket
from urllib.request import urlopen


def free_port() -> int:
    """A port nobody listens on now. Somebody else could take it before it is used; tests live with that."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def counted(port: int, name: str, **labels: str) -> float:
    """The value of one metric; 0 when nothing was counted yet."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        text = page.read().decode()
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    series = re.escape(f"{name}{{{wanted}}}" if wanted else name)
    found = re.search(rf"^{series} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
