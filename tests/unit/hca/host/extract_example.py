"""The code of docs/congestion.md as a source file: what the docs show must compile."""

from __future__ import annotations

import re
import sys
from pathlib import Path

source, target = Path(sys.argv[1]), Path(sys.argv[2])
code = re.search(r"```cpp\n(.*?)```", source.read_text(), re.DOTALL)
assert code, f"no C++ in {source}"
target.write_text(code.group(1))
