import importlib.util
from pathlib import Path
from typing import Any

import pytest

from respool.columnar import compiled

MODULE = """
from respool.columnar.compiled import kernel

@kernel
def twice(number):
    return 2 * number
"""


def load_again(path: Path) -> Any:
    """As another process would: the kernel is not in memory, but perhaps on disk."""
    spec = importlib.util.spec_from_file_location("some_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def was_kept(path: Path) -> bool:
    kernel = load_again(path).twice
    assert kernel(4) == 8
    return bool(kernel.stats.cache_hits)


def test_a_kernel_is_compiled_again_when_any_file_of_its_package_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "some_kernels.py"
    path.write_text(MODULE)
    assert not was_kept(path)
    assert was_kept(path)
    monkeypatch.setattr(compiled, "package_stamp", lambda: "another")
    assert not was_kept(path)
    assert was_kept(path)


def test_a_folders_stamp_tells_of_each_source_file_in_it(tmp_path: Path) -> None:
    stamp_now = compiled.package_stamp.__wrapped__
    seen = {stamp_now(tmp_path)}
    for change in ("first.py", "second.py"):
        (tmp_path / change).write_text("1")
        seen.add(stamp_now(tmp_path))
    (tmp_path / "first.py").write_text("12")
    seen.add(stamp_now(tmp_path))
    assert len(seen) == 4
    (tmp_path / "notes.txt").write_text("")
    assert stamp_now(tmp_path) in seen


def test_this_package_has_a_stamp() -> None:
    assert any(name == "varint_kernels.py" for name, _, _ in compiled.package_stamp())


def test_bytes_for_kernels_are_always_of_one_kind() -> None:
    for data in (b"ab", bytearray(b"ab"), memoryview(b"ab")):
        array = compiled.readable(data)
        assert bytes(array) == b"ab"
        assert not array.flags.writeable
