"""The image's health check says what the broker's health pages say."""

import os
import subprocess
import sys
from pathlib import Path

from respool.testing import Broker

PROBE = Path(__file__).parents[2] / "deploy" / "image" / "probe.py"


def probed(address: str, page: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, PROBE, page],
        env={**os.environ, "RESPOOL_METRICS_LISTEN": address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_broker_that_serves_is_healthy_and_ready_and_a_stopped_one_is_not() -> None:
    with Broker(settings={"metrics_listen": "127.0.0.1:0"}) as broker:
        assert broker.metrics_url is not None
        address = broker.metrics_url.removeprefix("http://").removesuffix("/metrics")
        assert probed(address, "healthz") == (0, "")
        assert probed(address, "readyz") == (0, "")
        # A probe inside the container asks its loopback, whatever the page listens on.
        assert probed(f"0.0.0.0:{address.rpartition(':')[2]}", "healthz") == (0, "")
        assert probed(address, "nonsense")[0] == 1
    code, why = probed(address, "healthz")
    assert code == 1
    assert "does not answer" in why
