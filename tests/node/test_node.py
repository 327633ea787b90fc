"""What keeps a broker from starting, in words."""

from pathlib import Path

import pytest

from respool.model.settings import Settings
from respool.node.node import run


def test_a_broker_that_is_to_join_a_cluster_does_not_serve_alone_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    settings = Settings(data=str(data), listen="127.0.0.1:0", etcd="127.0.0.1:2379")

    assert run(settings) == 1

    assert "do not form clusters yet" in capsys.readouterr().err
    assert not data.exists()
