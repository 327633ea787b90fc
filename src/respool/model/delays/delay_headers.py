"""The headers that delay a record of a topic with `respool.delay`, and those of the copy that is delivered."""

# When it is delivered. A record has one of these at most.
DELIVER_AT = "respool-deliver-at"
DELAY = "respool-delay"
DELAY_LEVEL = "respool-delay-level"
SCHEDULE = "respool-schedule"
# More about a schedule.
TIME_ZONE = "respool-time-zone"
UNTIL = "respool-until"
TIMES = "respool-times"
# Names a delayed record, so that a later one replaces it; and cancels the one of this name.
SCHEDULE_ID = "respool-schedule-id"
CANCEL = "respool-cancel"

# A record with any of these is hidden. Its bytes alone decide that, so that leader, followers, mirrors and a restarted
# broker agree on it: a time that has passed already does not show the record, but delivers its copy at once.
HIDING_HEADERS = (DELIVER_AT, DELAY, DELAY_LEVEL, SCHEDULE, CANCEL)

# Written by the broker only; a producer's record with one of them is refused.
# A copy: the offset at which its record was written, and where that lay when it had been carried.
DELIVERED_FROM = "respool-delivered-from"
DELIVERED_POSITION = "respool-delivered-position"
# A record that was appended again before retention deleted it: the offset at which it was first written, and where it
# lay until then.
CARRIED_FROM = "respool-carried-from"
CARRIED_POSITION = "respool-carried-position"
BROKER_HEADERS = (DELIVERED_FROM, DELIVERED_POSITION, CARRIED_FROM, CARRIED_POSITION)

# Of copies and carried records: when it was sent, when it was or will be due, and when a schedule fires next.
SENT_AT = "respool-sent-at"
DUE_AT = "respool-due-at"
NEXT = "respool-next"

# What a copy does not have from its record: a schedule that it kept would deliver copies of copies for ever.
STRIPPED_HEADERS = frozenset(
    (
        *HIDING_HEADERS,
        *(TIME_ZONE, UNTIL, TIMES, SCHEDULE_ID),
        *BROKER_HEADERS,
        *(SENT_AT, DUE_AT, NEXT),
    )
)
# All names begin with this: a batch without these bytes has nothing to do with delays.
PREFIX = "respool-"
