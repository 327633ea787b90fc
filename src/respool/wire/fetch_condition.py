"""The condition of a reader on the wire: a tagged field of a Fetch request, as text in the language of views.

```
request, tag 5002     the condition, a compact string
```
The reader is shown every batch that may hold a record for which it holds, whole, and sifts the records itself. So a
broker may as well send everything: if it does not know the field (KIP-482), cannot read the text, or has no index.
"""

from respool.wire.local_read import LOCAL_READ_FETCH_VERSION

# Far above the tags that Kafka uses.
CONDITION_TAG = 5_002
# The field exists in this version, the one with which our columnar client reads.
CONDITION_FETCH_VERSION = LOCAL_READ_FETCH_VERSION
