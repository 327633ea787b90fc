"""What workers find when they start: see `compiled_once`."""

import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from hypothesis.configuration import set_hypothesis_home_dir

from support.compiled_once import files_of, rewrite_tests
from support.compiled_sources import KERNELS, keep_constants, kernels_are_compiled, use_kernels


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    path = tmp_path / "test_some.py"
    path.write_text("def test_two():\n    assert 1 + 1 == 3\n")
    return path


def cached(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.stem}{rewrite.PYC_TAIL}"


def test_workers_find_rewritten_tests_as_they_would_rewrite_them(
    pytestconfig: pytest.Config, test_file: Path
) -> None:
    (test_file.parent / "helper.py").write_text("assert True\n")
    rewrite_tests(pytestconfig, files_of([str(test_file.parent)]))
    assert list(cached(test_file).parent.iterdir()) == [cached(test_file)]
    code = rewrite._read_pyc(test_file, cached(test_file))
    names: dict[str, object] = {}
    exec(code, names)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=r"assert \(1 \+ 1\) == 3"):
        names["test_two"]()  # type: ignore[operator]


def test_only_changed_tests_are_rewritten_again(
    pytestconfig: pytest.Config, test_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten: list[Path] = []
    real = rewrite._rewrite_test

    def counted(path: Path, config: pytest.Config) -> object:
        rewritten.append(path)
        return real(path, config)

    monkeypatch.setattr(rewrite, "_rewrite_test", counted)
    rewrite_tests(pytestconfig, files_of([f"{test_file}::test_two"]))
    rewrite_tests(pytestconfig, files_of([str(test_file)]))
    assert rewritten == [test_file]
    test_file.write_text("def test_three():\n    assert True\n")
    rewrite_tests(pytestconfig, files_of([str(test_file)]))
    assert rewritten == [test_file, test_file]


def test_a_pytest_without_these_functions_rewrites_for_itself(
    pytestconfig: pytest.Config, test_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(rewrite, "_rewrite_test")
    rewrite_tests(pytestconfig, files_of([str(test_file)]))
    assert not cached(test_file).exists()


def test_a_broken_test_is_left_to_pytest(pytestconfig: pytest.Config, test_file: Path) -> None:
    test_file.write_text("def test_two(:\n")
    rewrite_tests(pytestconfig, files_of([str(test_file)]))
    assert not cached(test_file).exists()


def test_kernels_are_compiled_again_when_their_sources_changed(tmp_path: Path) -> None:
    source, index = tmp_path / "kernel.py", tmp_path / "__pycache__" / "kernel.nbi"
    source.write_text("")
    assert not kernels_are_compiled([tmp_path])
    index.parent.mkdir()
    index.write_text("")
    os.utime(source, (1, 1))
    assert kernels_are_compiled([tmp_path])
    os.utime(source, (2**31, 2**31))
    assert not kernels_are_compiled([tmp_path])


def test_the_kernels_are_compiled_by_using_them() -> None:
    use_kernels()
    assert kernels_are_compiled(KERNELS)


def test_constants_are_kept_where_hypothesis_looks_and_parsed_again_when_changed(
    tmp_path: Path,
) -> None:
    source = tmp_path / "src" / "some.py"
    source.parent.mkdir()

    def constants(text: str, changed_s: int) -> str:
        source.write_text(text)
        os.utime(source, (changed_s, changed_s))
        keep_constants(source.parent)
        kept = (tmp_path / "home" / "constants").iterdir()
        return "".join(path.read_text() for path in kept).replace("_", "")

    set_hypothesis_home_dir(tmp_path / "home")
    try:
        assert "123456789" in constants("A = 123456789\n", 1)
        assert "987654321" in constants("A = 987654321\n", 2**31)
        # As they are newer than this source, it has been parsed.
        assert "55555555" not in constants("A = 55555555\n", 2)
    finally:
        set_hypothesis_home_dir(None)
