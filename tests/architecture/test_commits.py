"""Commit subjects: `area: what`, at most 72 characters."""

import re
import shutil
import subprocess

import pytest

from architecture.tree import ROOT

# Commits made later are checked.
SINCE = "2026-11-19T05:00:00Z"
SUBJECT_LENGTH_MAX = 72
_SUBJECT = re.compile(r"[a-z`.][^:]*: \S")


def test_subjects_name_an_area_and_are_short() -> None:
    assert [one for one in _subjects() if not is_subject(one)] == []


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("broker: answer OffsetFetch from memory", True),
        ("mirror, client config: read the variable's address", True),
        ("Answer OffsetFetch from memory", False),
        ("broker:", False),
        ("broker: answer " + "very " * 12 + "fast", False),
    ],
)
def test_subjects_are_told_apart(subject: str, is_good: bool) -> None:
    assert is_subject(subject) == is_good


def is_subject(text: str) -> bool:
    return len(text) <= SUBJECT_LENGTH_MAX and _SUBJECT.match(text) is not None


def _subjects() -> list[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and the repository's history")
    command = [git, "log", "--no-merges", f"--since={SINCE}", "--format=%s"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        # For example a checkout of another user.
        pytest.skip(done.stderr.strip())
    return done.stdout.splitlines()
