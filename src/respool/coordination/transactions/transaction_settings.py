"""Settings of the transaction coordinator. Names and defaults are Kafka's, with the dots made underscores."""

from dataclasses import dataclass, fields

from respool.model.errors import SettingsError
from respool.model.topic_config import MINUTE_MS

_HOUR_MS = 60 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    # No transaction may ask to be open for longer.
    transaction_max_timeout_ms: int = 15 * MINUTE_MS
    # A transactional id that nobody has used for so long is forgotten.
    transactional_id_expiration_ms: int = 7 * 24 * _HOUR_MS
    transactional_id_expiration_check_interval_ms: int = _HOUR_MS
    # How long a request waits for the markers of the transaction before. Not a setting of Kafka, which lets clients
    # try again at once.
    hold_ms_max: int = 1_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise SettingsError(f"{field.name} = {value} is below 1")
