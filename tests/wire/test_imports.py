"""What `import respool.wire` brings with it."""

import subprocess
import sys

import pytest

IMPORTS = """
import sys
{first}
import respool.wire.codec, respool.client.kafka.codes
from kio.static.primitive import i8
print("hypothesis" in sys.modules)
from hypothesis import strategies as st
print("integers" in repr(st.from_type(i8)))
"""


@pytest.mark.parametrize(
    ("first", "printed"),
    [("", ["False", "False"]), ("import hypothesis", ["True", "True"])],
    ids=["alone", "with hypothesis"],
)
def test_hypothesis_is_used_where_it_is_loaded_and_not_loaded_by_us(
    first: str, printed: list[str]
) -> None:
    """kio would load it in every command and every process of Spark's, where it takes most of the start."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(first=first)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == printed, done.stderr
