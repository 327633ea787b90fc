import subprocess
import sys

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
