"""How a CreatePartitions request asks for other changes than growth: a tagged field, a word.

```
request, tag 5003     "", "shrink", "shrink-unkeyed", "retire", "retire-forced"
```
A broker that does not know the field takes the request for a growth, and refuses the smaller number, as Kafka does.
"""

from enum import StrEnum

# Far above the tags that Kafka uses.
LAYOUT_CHANGE_TAG = 5_003
# The first version with tagged fields is 2; our client sends this one.
LAYOUT_CHANGE_VERSION = 3

# In replies of DescribeTopicPartitions: a topic's layout, as JSON; "" for a topic that was never shrunk.
LAYOUT_TAG = 5_004


class LayoutChangeKind(StrEnum):
    # A smaller number is refused, unless the topic's settings allow it.
    USUAL = ""
    SHRINK = "shrink"
    SHRINK_UNKEYED = "shrink-unkeyed"
    RETIRE = "retire"
    # Whatever groups have read.
    RETIRE_FORCED = "retire-forced"
