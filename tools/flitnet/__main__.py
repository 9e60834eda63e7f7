"""Starts the command line: puts the source tree on the path, picks doctor before anything else."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    from tools.flitnet import output

    output.keep()
    # doctor needs nothing installed, so it never reaches an import that might fail.
    if sys.argv[1:2] == ["doctor"]:
        return _doctor()
    try:
        from tools.flitnet import cli  # a third of a second, in which somebody may change his mind
    except KeyboardInterrupt:
        return output.say("interrupted", 130)
    return cli.run(sys.argv[1:])


def _doctor() -> int:
    from tools.flitnet import doctor, output

    try:
        code = doctor.main(sys.argv[2:])
        sys.stdout.flush()
        return code
    except OSError as error:
        return output.say_os(error, 1)
    finally:
        output.let_go()


if __name__ == "__main__":
    sys.exit(main())
