"""Names of files that stand for several: which files they are."""

import re
from pathlib import Path


def matching(path: Path) -> list[Path]:
    """The files that a name with `*`, `?` or `[…]` stands for, in the order of their names; else the path itself, and
    also where a file has just this name."""
    try:
        if not re.search(r"[*?\[]", str(path)) or path.exists():
            return [path]
        # What lies above may have such characters in its own name.
        folder = next(parent for parent in path.parents if parent.is_dir())
        return sorted(found for found in folder.glob(str(path.relative_to(folder))) if found.is_file())
    except OSError:
        return [path]  # whoever opens it will say why that cannot be done
