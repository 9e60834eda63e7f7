"""Starts the command line: puts the source tree on the path, picks doctor before anything else."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    # doctor needs nothing installed, so it never reaches an import that might fail.
    if sys.argv[1:2] == ["doctor"]:
        from tools.flitnet import doctor

        return doctor.main(sys.argv[2:])
    try:
        from tools.flitnet import cli  # a third of a second, in which somebody may change his mind
    except KeyboardInterrupt:
        print("flitnet: interrupted", file=sys.stderr)
        return 130
    return cli.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
