"""The public functions are functions, in whatever order they are asked for."""

import subprocess
import sys

import longseal


def test_every_public_name_is_there_and_documented():
    for name in longseal.__all__:
        assert getattr(longseal, name).__doc__, name


def test_public_functions_stay_functions_after_run_was_used():
    """A package `longseal.fold` must not take the place of the function `longseal.fold`."""
    code = (
        "import sys, longseal\n"
        "assert 'torch' not in sys.modules\n"
        "longseal.run\n"
        "print([n for n in longseal.__all__ if not callable(getattr(longseal, n))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
