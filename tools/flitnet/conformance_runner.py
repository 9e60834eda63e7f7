"""Runs modules of rdma-core's pyverbs tests in this process; one JSON line per test on stdout.

A program of its own: `flitnet conformance` starts it on a node, with the interpreter that has
pyverbs. Arguments: the checkout of rdma-core, then modules or tests ("test_qp.QPTest").
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import unittest


class Told(unittest.TestResult):
    """Tells each test's outcome when it is known."""

    def _tell(self, test: unittest.TestCase, outcome: str, words: str = "") -> None:
        print(json.dumps({"test": test.id(), "outcome": outcome, "words": words}), file=OUT)
        OUT.flush()

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._tell(test, "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._tell(test, "skip", reason)

    def addError(self, test, error) -> None:  # noqa: N802
        self._tell(test, "fail", self._exc_info_to_string(error, test))

    addFailure = addError  # noqa: N815

    def addSubTest(self, test, subtest, error) -> None:  # noqa: N802
        if error is not None:
            self._tell(test, "fail", self._exc_info_to_string(error, test))


def main() -> int:
    checkout, *names = sys.argv[1:]
    sys.argv[1:] = []  # the tests parse arguments of their own
    folder = os.path.join(checkout, "tests")
    sys.path[:0] = [folder]
    # Not by the checkout's path: beside the tests lies a pyverbs that is not built.
    place = [folder]
    spec = importlib.util.spec_from_file_location(
        "tests", os.path.join(folder, "__init__.py"), submodule_search_locations=place
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules["tests"] = package
    spec.loader.exec_module(package)
    sys.modules["args_parser"].parser.parse_args()
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromName(f"tests.{name}") for name in names)
    suite.run(Told())
    return 0


# The tests print; their words go to stderr.
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sys.exit(main())
