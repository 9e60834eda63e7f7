"""Errors that end a command: one line, and the exit code that goes with it."""

EXIT_OK = 0
EXIT_ERROR = 1  # an operating error: something could not be done
EXIT_USAGE = 2  # the command line or an input file is wrong


class FlitnetError(Exception):
    """An operating error; the message is one line that says what to do."""

    exit_code = EXIT_ERROR


class UsageError(FlitnetError):
    """The user's input is wrong: names the thing, its value and what is allowed."""

    exit_code = EXIT_USAGE


class RunningError(FlitnetError):
    """Somebody else's cluster runs in the run directory: nothing was touched."""
