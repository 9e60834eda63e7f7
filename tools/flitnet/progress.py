"""How far a long piece of work is, for who waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Tell = Callable[[int, int], None]  # so many are done, of so many


@contextmanager
def progress(unit: str) -> Iterator[Tell]:
    """A bar on a terminal; elsewhere a line every tenth of the way."""
    if not sys.stderr.isatty():
        yield _tenths(unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(), MofNCompleteColumn(), TextColumn(unit),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(unit, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def silent(_done: int, _total: int) -> None:
    """Of who waits for nothing: tests."""


def _tenths(unit: str) -> Tell:
    last = 0

    def tell(done: int, total: int) -> None:
        nonlocal last
        tenth = done * 10 // max(total, 1)
        if tenth > last:
            print(f"flitnet: {done} of {total} {unit}", file=sys.stderr, flush=True)
        last = max(last, tenth)

    return tell
