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
