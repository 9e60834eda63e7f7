"""Makes the project's Python package importable from the tests, and Ctrl-C the tests' own.

A shell that puts a command into the background without job control has it ignore SIGINT, and what
is ignored stays so in every program that the tests start and want to interrupt.
"""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

signal.signal(signal.SIGINT, signal.default_int_handler)
