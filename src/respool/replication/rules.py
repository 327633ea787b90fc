"""The rules of replication that can be broken one at a time, to see whether a test would notice.

All hold, always: nothing but tests makes another `Rules`. Each is a mistake that brokers have been seen to make. The
numbers are those of the design's list of traps; the simulation in `tests/replication` finds every one of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    # -- leader: what is committed
    # 1: who may have joined the ISR meanwhile counts for the high watermark.
    counts_joiners: bool = True
    # 1: who is being taken out of the ISR counts until the store has agreed.
    counts_leavers: bool = True
    # 2: nothing is committed while the ISR is smaller than min.insync.replicas.
    holds_below_min_isr: bool = True
    # 3: a new leader keeps the high watermark it had as a follower.
    keeps_high_watermark: bool = True
    # 10: a fetch of another leader epoch tells nothing.
    fences_other_epochs: bool = True
    # 10: a fetch from where the logs have parted tells nothing.
    counts_agreeing_fetches_only: bool = True
    # 17: nothing is committed while there are eligible leaders outside the ISR.
    holds_while_some_are_eligible: bool = True
    # 18: acks=all is refused while the ISR is too small.
    refuses_below_min_isr: bool = True
    # 18: acks=all is answered when the high watermark has passed it.
    answers_when_committed: bool = True
    # 20: the leader's own records count when they are durable.
    counts_own_durable_end: bool = True

    # -- leader: who is in sync
    # 11: a joiner has everything below the high watermark.
    joins_at_high_watermark: bool = True
    # 11: and everything that was there when this leader began.
    joins_after_epoch_start: bool = True
    # 12: and is the broker that is registered, not one that has crashed since.
    joins_as_registered: bool = True
    # 13: the ISR is changed only if nobody else has changed the partition.
    guards_isr_writes: bool = True
    # 13: without an answer from the store, both the old and the new ISR count.
    keeps_both_when_unknown: bool = True
    # What everyone was told is deleted is deleted with everyone who may be elected.
    deletes_before_it_leads: bool = True
    # 17: those who leave an ISR that is too small stay eligible.
    keeps_eligible_leaders: bool = True

    # -- leader: beginning and end
    # 5: a leader enters its epoch in its log before it has any record.
    enters_epoch: bool = True
    # After a crash a broker does not go on with an epoch that it led before: it may have lost records that others have.
    leads_an_epoch_once: bool = True
    # 23: a leader that is no longer one fails all who wait.
    steps_down: bool = True

    # -- follower
    # 6: a follower cuts off by leader epoch, not by high watermark.
    truncates_by_epoch: bool = True
    # 6: it takes the smaller one of both logs' ends of the epoch.
    takes_the_smaller_end: bool = True
    # 7: it compares epochs again in every epoch, also where the leader's id is the same.
    compares_in_every_epoch: bool = True
    # 8: cutting off at the log's end still forgets epochs without records.
    trims_epochs_at_the_end: bool = True
    # 10: the reply to a fetch of an earlier epoch is dropped.
    drops_replies_of_other_epochs: bool = True
    # 20: it says what is durable, not what it has appended.
    tells_durable_end: bool = True
    # 20: its high watermark is never above its own log's end.
    caps_high_watermark: bool = True
    # 21: an offset out of the leader's range is nothing special.
    recovers_from_out_of_range: bool = True
    # 22: an empty reply does not make it forget its last epoch.
    keeps_last_epoch: bool = True


ALL_RULES = Rules()
