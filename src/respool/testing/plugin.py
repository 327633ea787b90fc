"""The pytest plugin: fixtures with brokers. pytest loads it wherever Respool is installed, so it imports little.

def test_rides(respool_broker): ...                      # a broker of its own, in a thread

@pytest.mark.respool(topics={"rides": 6}, mode="process")
def test_fares(respool_broker): ...                      # with arguments for `respool.testing.Broker`

def test_many(respool_session_broker, respool_topic): ...  # one broker for all tests, a topic for this one
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from respool.testing import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "respool(**arguments): arguments for the respool.testing.Broker of the fixture respool_broker",
    )
    _keep_asserts_plain(config)


def _keep_asserts_plain(config: pytest.Config) -> None:
    """Exclude this package from pytest's assertion rewriting, which covers whole packages that contain a plugin.

    With 350 modules that would cost two seconds at the first start, or at every start if no bytecode may be written.
    pytest has no official way to decline; without this private attribute, starting is only slower.
    """
    marked = getattr(getattr(config.pluginmanager, "rewrite_hook", None), "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("respool")


@pytest.fixture
def respool_broker(request: pytest.FixtureRequest) -> Iterator["Broker"]:
    """A broker for this test only. Its arguments come from `respool` markers; the nearest marker has priority."""
    from respool.testing import Broker

    arguments: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("respool"))):
        if marker.args:
            pytest.fail(
                f"the marker respool takes arguments by name, such as topics={{'rides': 6}}; not {marker.args[0]!r}",
                pytrace=False,
            )
        arguments |= marker.kwargs
    with Broker(**arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def respool_session_arguments() -> dict[str, Any]:
    """Arguments for the broker that all tests share: override this fixture in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def respool_session_broker(respool_session_arguments: dict[str, Any]) -> Iterator["Broker"]:
    """One broker for all tests. Tests use their own topics and groups, and do not stop the broker or move its clock."""
    from respool.testing import Broker

    with Broker(**respool_session_arguments) as broker:
        yield broker


@pytest.fixture
def respool_topic(request: pytest.FixtureRequest, respool_session_broker: "Broker") -> str:
    """A new topic on the shared broker, with one partition, named after the test.

    For other topics use `respool_session_broker.new_topic(...)`.
    """
    # Kafka allows letters, digits, dots, dashes and underscores, at most 249 of them.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-.")[:200]
    return respool_session_broker.new_topic(name or "topic")
