"""What a broker counts, read from its Prometheus page."""

import re
from urllib.request import urlopen

from support.broker_process import BrokerProcess

# The broker takes a free port, and logs it.
METRICS = {"metrics_listen": "127.0.0.1:0"}


def metrics_port(broker: BrokerProcess) -> int:
    """Where a broker with METRICS among its settings tells them."""
    line = broker.wait_for_log(r"metrics on http://\S+:\d+/metrics")
    found = re.search(r":(\d+)/metrics", line)
    assert found is not None
    return int(found[1])


def counted(port: int, name: str, **labels: str) -> float:
    """The value of one metric; 0 when nothing was counted yet."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        text = page.read().decode()
    wanted = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    series = re.escape(f"{name}{{{wanted}}}" if wanted else name)
    found = re.search(rf"^{series} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
