"""What can go wrong with a broker inside a test, one class each. All say what to do."""

from respool.model.errors import RespoolError


class TestBrokerError(RespoolError):
    """Something about the broker of a test, not about what is tested."""

    # pytest would take the name for that of a class of tests.
    __test__ = False


class BrokerDidNotStart(TestBrokerError):
    """It gave up while starting; the message has the reason, and the end of its log."""


class PortTaken(BrokerDidNotStart):
    """Something listens on the port that was asked for."""


class BrokerFailed(TestBrokerError):
    """The broker stopped by itself, which it must not: a bug in Respool. The message has the end of its log."""


class BrokerUnresponsive(TestBrokerError):
    """The broker did not do in time what it was told."""


class BrokerNotRunning(TestBrokerError):
    """It was not started, or is stopped or crashed just now."""


class BrokerRunning(TestBrokerError):
    """It was started already: one broker is one `with` block."""


class BrokerClosed(TestBrokerError):
    """It was closed, and its data is gone unless a folder was given."""


class BrokerForked(TestBrokerError):
    """This process was forked off the one that has the broker: its address is of use here, its other doors are not."""


class UnknownFault(TestBrokerError):
    """There is no such API or error, or the API's reply has no place for the error."""


BY_NAME = {
    one.__name__: one
    for one in (
        TestBrokerError,
        BrokerDidNotStart,
        PortTaken,
        BrokerFailed,
        BrokerUnresponsive,
        BrokerNotRunning,
        UnknownFault,
    )
}
