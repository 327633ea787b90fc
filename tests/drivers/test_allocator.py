import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from respool.drivers.allocator import UNCLEARED_FROM_BYTES, uncleared

SCRIPT = """
import resource
from respool.drivers.allocator import keep_freed_memory
assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(b"x") * (4 << 20)
before = faults()
for _ in range(100):
    bytearray(b"x") * (4 << 20)
print(faults() - before)
"""


def test_large_blocks_are_reused_instead_of_mapped_anew() -> None:
    # Mapped anew, each block of 4 MiB takes 1,024 page faults, or a few with huge pages.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) < 100


@given(size=st.integers(0, 3 * UNCLEARED_FROM_BYTES))
def test_uncleared_room_is_as_large_as_was_asked_for_and_ones_own(size: int) -> None:
    first, second = uncleared(size), uncleared(size)
    assert len(first) == len(second) == size
    first[:] = b"\x01" * size
    second[:] = b"\x02" * size
    assert first == b"\x01" * size
