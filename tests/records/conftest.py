"""kafka-python reads its schemas in a way that Python 3.11 and 3.12 warn about, and warnings are errors here.

So it is imported once before the tests that compare with it, with that warning off.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
