"""Settings of topics that share groups use as queues."""

from dataclasses import dataclass, field

from respool.model.config_rules import yes_or_no


@dataclass(frozen=True, kw_only=True)
class QueueTopicSettings:
    errors_deadletterqueue_group_enable: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether share groups may send dead letters to this topic: errors.deadletterqueue.topic.name of a group."
        ),
    )
    respool_share_delete_finished: bool = field(
        default=False,
        metadata=yes_or_no(
            "Whether records are deleted once every share group that reads the topic has finished them. Nothing is "
            "deleted while other groups have offsets there."
        ),
    )


# They say what one topic is for, so a broker has no defaults of them.
QUEUE_TOPIC_SETTINGS = frozenset(
    {"errors.deadletterqueue.group.enable", "respool.share.delete.finished"}
)
