"""Settings of brokers and groups through a broker; tests/cli/test_config_command.py has the whole stories."""

from collections.abc import Iterator

import pytest

from respool.client.kafka.bootstrap import Bootstrap
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.runtime_settings import (
    ConfigTarget,
    DescribedSetting,
    alter_settings,
    describe_settings,
)
from respool.testing import Broker

ALL = ConfigTarget.broker(None)


@pytest.fixture(scope="module")
def admin() -> Iterator[ClusterAdmin]:
    with Broker() as broker, ClusterAdmin.connect(Bootstrap.resolve(broker.bootstrap)) as admin:
        yield admin


def test_several_settings_are_changed_together_or_not_at_all(admin: ClusterAdmin) -> None:
    good, bad = {"log.retention.ms": "60000"}, {"message.max.bytes": "many"}
    with pytest.raises(OperatorError, match=r"message\.max\.bytes"):
        alter_settings(admin, ALL, settings={**good, **bad}, unset=[])
    assert describe_settings(admin, ALL) == []
    alter_settings(admin, ALL, settings=good, unset=[])
    assert describe_settings(admin, ALL) == [
        DescribedSetting(
            name="log.retention.ms", value="60000", source="brokers", is_read_only=False
        )
    ]
    alter_settings(admin, ALL, settings={}, unset=list(good))
    assert describe_settings(admin, ALL) == []


def test_a_name_that_is_no_setting_is_not_unset(admin: ClusterAdmin) -> None:
    for target in (ALL, ConfigTarget.broker(1), ConfigTarget.group("riders")):
        with pytest.raises(UsageError, match="there is no such setting"):
            alter_settings(admin, target, settings={}, unset=["no.such.setting"])


def test_a_broker_that_does_not_run_is_not_found(admin: ClusterAdmin) -> None:
    with pytest.raises(NotFound, match="there is no broker 9"):
        describe_settings(admin, ConfigTarget.broker(9))
