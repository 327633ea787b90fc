"""The archive's description of a topic: everything but its records, enough to create the topic again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from respool.archive.sealed_json import open_json, seal_json
from respool.model.archiving.archive_errors import ArchiveCorrupt

VERSION = 1
DESCRIPTION_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    partitions: int
    # The settings that differ from the defaults, as text.
    config: Mapping[str, str] = field(default_factory=dict)
    # The views of the topic, with their settings.
    views: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        fields = {
            "v": VERSION,
            "partitions": self.partitions,
            "config": dict(sorted(self.config.items())),
            "views": {name: dict(sorted(one.items())) for name, one in sorted(self.views.items())},
        }
        return seal_json(fields)


def decode_description(data: bytes | memoryview, *, name: str) -> TopicDescription:
    """
    Raises:
        ArchiveCorrupt: it is damaged, or of a newer format.
    """
    fields = open_json(data, name=name, bytes_max=DESCRIPTION_BYTES_MAX)
    try:
        version, partitions = int(fields["v"]), int(fields["partitions"])
        config, views = _texts(fields["config"]), fields["views"]
        described = {str(view): _texts(one) for view, one in views.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveCorrupt(f"{name} describes no topic: {error!r}") from error
    if version > VERSION or not 0 < partitions <= 1_000_000:
        raise ArchiveCorrupt(f"{name}: format {version}, {partitions} partitions")
    return TopicDescription(partitions=partitions, config=config, views=described)


def _texts(fields: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.items()}
