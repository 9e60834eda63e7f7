"""typer without rich until a help text is wanted.

typer imports rich, and rich half of what it can do, whatever the command: longer than all that a
command does before its work begins.
"""

from __future__ import annotations

import sys
from typing import Any


class _RichUtils:
    """Stands for typer.rich_utils, which is imported when something of it is called."""

    def __getattr__(self, name: str) -> Any:
        from typer import rich_utils

        return getattr(rich_utils, name)


def prepare() -> None:
    """Imports typer as where there is no rich, then tells it that there is. To be called before
    anybody else imports it; nothing is left to spare once rich is there."""
    if "rich" in sys.modules or "typer" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # to import it is an ImportError
    try:
        import typer.core
    finally:
        del sys.modules["rich"]
    typer.core.rich = typer.core.rich_utils = _RichUtils()
