"""How far a long piece of work is, for who waits for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; elsewhere a line every tenth of the way. To be told how many are done,
    and of how many."""
    if not sys.stderr.isatty():
        yield _tenths(unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn(unit),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(unit, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _tenths(unit: str) -> Callable[[int, int], None]:
    last = 0

    def tell(done: int, total: int) -> None:
        nonlocal last
        tenth = done * 10 // total
        if tenth > last:
            print(f"flitnet: {done} of {total} {unit}", file=sys.stderr, flush=True)
        last = max(last, tenth)

    return tell
