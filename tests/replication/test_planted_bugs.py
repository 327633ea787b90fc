"""A green run proves nothing until it finds planted bugs: each rule is broken once, and somebody must notice.

Most are found by chance within a few seeds. For some the chance is small; they have a story that leads to them.
"""

from collections.abc import Callable
from dataclasses import fields

import pytest

from replication import sim_stories
from replication.sim_controller import ControllerRules
from replication.sim_run import run_seed
from replication.sim_stories import Settings
from respool.replication.rules import Rules

# How many seeds may be needed. Most bugs show within ten.
SEEDS = 400

STORIES = {
    "holds_below_min_isr": sim_stories.committed_with_too_few,
    "fences_other_epochs": sim_stories.late_fetch_of_an_earlier_epoch,
    "holds_while_some_are_eligible": sim_stories.lowered_min_isr_while_some_are_eligible,
    "refuses_below_min_isr": sim_stories.too_few_in_sync,
    "joins_as_registered": sim_stories.late_fetch_from_before_a_crash,
    "keeps_both_when_unknown": sim_stories.write_that_comes_late,
    "keeps_eligible_leaders": sim_stories.last_one_standing,
    "compares_in_every_epoch": sim_stories.leader_comes_back_with_less,
    "drops_replies_of_other_epochs": sim_stories.reply_of_an_earlier_epoch,
}
CONTROLLER_STORIES = {
    "keeps_eligible_leaders": sim_stories.last_one_standing_after_a_stop,
}


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_broken_rule_is_found(rule: str) -> None:
    broken = Settings(rules=Rules(**{rule: False}))
    assert is_found(broken, STORIES.get(rule)), f"nobody noticed that {rule} is broken"


@pytest.mark.parametrize("rule", [field.name for field in fields(ControllerRules)])
def test_a_broken_rule_of_the_controller_is_found(rule: str) -> None:
    broken = Settings(controller_rules=ControllerRules(**{rule: False}))
    assert is_found(broken, CONTROLLER_STORIES.get(rule)), f"nobody noticed that {rule} is broken"


def is_found(broken: Settings, story: sim_stories.Story | None) -> bool:
    runs: list[Callable[[], object]] = (
        [lambda: story(broken)]
        if story is not None
        else [
            lambda seed=seed: run_seed(  # type: ignore[misc]
                seed, rules=broken.rules, controller_rules=broken.controller_rules
            )
            for seed in range(SEEDS)
        ]
    )
    for run in runs:
        try:
            run()
        except AssertionError:
            # A broken promise, or an invariant that one of the machines asserts.
            return True
    return False
