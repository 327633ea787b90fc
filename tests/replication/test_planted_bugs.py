"""A green run proves nothing until it finds planted bugs: each rule is broken once, and somebody must notice.

Most are found by chance within a few seeds. For some the chance is small; they have a story that leads to them.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import cast

import pytest

from replication import planted_bugs, sim_stories
from replication.planted_bugs import RULES, Plant, StalePatch, plant
from replication.sim_controller import ControllerRules
from replication.sim_run import run_seed
from replication.sim_stories import Settings
from respool.replication.leader import Leader

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


@pytest.mark.parametrize("break_rule", RULES, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_found(break_rule: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(monkeypatch)
    rule = break_rule.__name__
    assert is_found(Settings(), STORIES.get(rule)), f"nobody noticed that {rule} is broken"


@pytest.mark.parametrize("break_rule", RULES, ids=lambda rule: rule.__name__)
def test_a_planted_bug_replaces_what_is_there(
    break_rule: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each patches functions that exist and that take the same arguments, and is undone afterwards."""
    patched: list[tuple[object, str, object]] = []

    class Recorder:
        def setattr(self, owner: object, name: str, broken: object) -> None:
            patched.append((owner, name, broken))

    break_rule(cast(pytest.MonkeyPatch, Recorder()))
    assert patched
    for owner, name, broken in patched:
        assert getattr(owner, name) is not broken
    sound = [getattr(owner, name) for owner, name, _ in patched]
    with monkeypatch.context() as patch:
        break_rule(patch)
        assert all(
            getattr(owner, name) is not one
            for (owner, name, _), one in zip(patched, sound, strict=True)
        )
    assert [getattr(owner, name) for owner, name, _ in patched] == sound


def test_a_stale_patch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not taken for a bug that was found, as an AssertionError would be."""
    for name, broken in (
        ("_no_such_rule", lambda self: None),
        ("image", lambda self: None),
        ("_check_epoch", lambda self: None),
    ):
        with pytest.raises(StalePatch):
            plant(monkeypatch, Leader, name, broken)
    assert not issubclass(StalePatch, AssertionError)


def test_every_planted_bug_is_in_the_list() -> None:
    assert len(RULES) == 29
    written = [
        one
        for name, one in vars(planted_bugs).items()
        if inspect.isfunction(one) and one.__module__ == planted_bugs.__name__ and name != "plant"
    ]
    assert list(RULES) == written


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
                seed, controller_rules=broken.controller_rules
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
