"""Starts the command line: puts the source tree on the path, picks doctor before anything else."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    from tools.flitnet import output, paths

    output.keep()
    # doctor needs nothing installed, so it never reaches an import that might fail. It looks at no
    # run directory: --run before it is taken and says nothing to it.
    at = 1 + paths.command_at(sys.argv[1:])
    if sys.argv[at : at + 1] == ["doctor"]:
        return _doctor(sys.argv[at + 1 :])
    try:  # what takes a tenth of a second or two, in which somebody may change his mind
        from tools.flitnet import quick_typer

        quick_typer.prepare()
        from tools.flitnet import cli
    except KeyboardInterrupt:
        return output.say("interrupted", 130)
    return cli.run(sys.argv[1:])


def _doctor(argv: list[str]) -> int:
    from tools.flitnet import doctor, output

    try:
        code = doctor.main(argv)
        sys.stdout.flush()
        return code
    except OSError as error:
        return output.say_os(error, 1)
    finally:
        output.let_go()


if __name__ == "__main__":
    sys.exit(main())
