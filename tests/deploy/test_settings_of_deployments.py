"""Image, compose files, unit and chart set only settings that exist, and run as somebody without rights."""

import re
from pathlib import Path

import pytest

from respool.model.settings import SETTINGS, Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCKERFILE = DEPLOY / "image" / "Dockerfile"
CHART = DEPLOY / "helm" / "respool"
FILES = [
    DOCKERFILE,
    *sorted((DEPLOY / "compose").glob("*.yaml")),
    DEPLOY / "systemd" / "respool.service",
    CHART / "templates" / "statefulset.yaml",
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_variable_is_a_setting(file: Path) -> None:
    variables = set(re.findall(r"\bRESPOOL_([A-Z][A-Z_]+)\b", file.read_text()))
    assert variables
    assert {name.lower() for name in variables} - SETTINGS.keys() == set()


def test_nothing_runs_as_root() -> None:
    assert "USER 10001:10001" in DOCKERFILE.read_text()
    chart = (CHART / "templates" / "statefulset.yaml").read_text()
    assert "runAsNonRoot: true" in chart
    assert "readOnlyRootFilesystem: true" in chart
    unit = (DEPLOY / "systemd" / "respool.service").read_text()
    assert "User=respool" in unit
    assert "NoNewPrivileges=true" in unit


def test_a_stopping_broker_has_the_time_that_it_may_take() -> None:
    """It answers requests in progress, hands its partitions over, and syncs; killed, it scans its logs."""
    defaults = Settings().flat()
    needed = (defaults["stop_grace_ms"] + defaults["handover_max_ms"]) / 1000
    for file, pattern in {
        DEPLOY / "systemd" / "respool.service": r"^TimeoutStopSec=(\d+)$",
        CHART / "values.yaml": r"^terminationGracePeriodSeconds: (\d+)$",
        DEPLOY / "compose" / "one-broker.yaml": r"stop_grace_period: (\d+)s$",
        DEPLOY / "compose" / "three-brokers.yaml": r"stop_grace_period: (\d+)s$",
    }.items():
        given = re.findall(pattern, file.read_text(), flags=re.MULTILINE)
        assert given, file
        assert all(int(seconds) > needed for seconds in given), file
