"""Single bugs, told step by step; with all rules kept each story ends well. The other half: `test_planted_bugs.py`."""

import pytest

from replication import sim_stories
from replication.sim_stories import Settings

STORIES = [
    sim_stories.late_fetch_of_an_earlier_epoch,
    sim_stories.late_fetch_from_before_a_crash,
    sim_stories.leader_comes_back_with_less,
    sim_stories.reply_of_an_earlier_epoch,
    sim_stories.lowered_min_isr_while_some_are_eligible,
    sim_stories.too_few_in_sync,
    sim_stories.committed_with_too_few,
    sim_stories.last_one_standing,
    sim_stories.last_one_standing_after_a_stop,
    sim_stories.write_that_comes_late,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_story_ends_well(story: sim_stories.Story) -> None:
    story(Settings())
