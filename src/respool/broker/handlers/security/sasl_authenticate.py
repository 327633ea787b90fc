"""SaslAuthenticate (key 36): there are no logins on this listener. The sent credentials are not looked at."""

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import serves
from respool.broker.handlers.support.replies import error_fields
from respool.broker.handlers.support.without_security import NO_SASL
from respool.broker.outcome import Reply
from respool.wire.api_table import Api
from respool.wire.codec import Request, encode_reply


@serves(Api.SASL_AUTHENTICATE, versions=(0, 2), rights=())
def sasl_authenticate(request: Request, _broker: Broker) -> Reply:
    return [encode_reply(request, {**error_fields(NO_SASL), "auth_bytes": b""})]
