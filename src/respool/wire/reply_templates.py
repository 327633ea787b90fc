"""Replies that say the same again and again, such as "it is done": encoded once, and given another correlation id.

kio's encoder takes 15 to 20 us for a small reply. A heartbeat or the end of a transaction is answered thousands of
times a second, nearly always with the same words.
"""

from collections.abc import Callable, Hashable, Mapping
from struct import Struct
from typing import Any

from respool.wire.codec import Request, encode_reply

TEMPLATES_MAX = 1_024
# What is larger is not the same again and again.
TEMPLATE_BYTES_MAX = 1_024

_HEAD_BYTES = 8
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = 4


class ReplyTemplates:
    """Those of one API: `words` tells what a reply says, so that equal words in one version are equal replies."""

    def __init__(self, *, templates_max: int = TEMPLATES_MAX) -> None:
        self._templates_max = templates_max
        self._templates: dict[tuple[int, Hashable], bytes] = {}

    def __len__(self) -> int:
        return len(self._templates)

    def encode(
        self, request: Request, words: Hashable, fields: Callable[[], Mapping[str, Any]]
    ) -> bytes:
        """The whole reply frame; `fields` are asked for only when nobody has said these words yet."""
        key = (request.version, words)
        template = self._templates.get(key)
        if template is None:
            frame = encode_reply(request, fields())
            if len(frame) <= TEMPLATE_BYTES_MAX:
                self._keep(key, frame)
            return frame
        return b"".join(
            (
                template[:_CORRELATION_ID_AT],
                _CORRELATION_ID.pack(request.correlation_id),
                template[_HEAD_BYTES:],
            )
        )

    def _keep(self, key: tuple[int, Hashable], frame: bytes) -> None:
        if len(self._templates) >= self._templates_max:
            # The oldest: it was of use, or it was not.
            del self._templates[next(iter(self._templates))]
        # As plain bytes: errors are never the same words, so there are none in it.
        self._templates[key] = bytes(frame)
