"""Errors that end a command: one line, and the exit code that goes with it."""

EXIT_OK = 0
EXIT_ERROR = 1  # an operating error: something could not be done
EXIT_USAGE = 2  # the command line or an input file is wrong
EXIT_NOT_RUN = 126  # of `exec`, as shells and env have it: there, but no program
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130  # a signal came before the end


class FlitnetError(Exception):
    """An operating error; the message is one line that says what to do."""

    exit_code = EXIT_ERROR


class UsageError(FlitnetError):
    """The user's input is wrong: names the thing, its value and what is allowed."""

    exit_code = EXIT_USAGE


class ProgramError(FlitnetError):
    """The user's program could not be started on a node."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RunningError(FlitnetError):
    """Somebody else's cluster runs in the run directory: nothing was touched."""
