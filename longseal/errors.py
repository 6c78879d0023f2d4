"""The one exception that a user is meant to read."""


class LongsealError(Exception):
    """Something the user can put right: one line that says what is wrong and what to do.

    The command line prints it without a traceback and exits with 2.
    """
