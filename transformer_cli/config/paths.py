"""Names of files, which can stand for several: which files they are, and why one cannot be read."""

import re
import stat
from pathlib import Path

from transformer_cli.config.corpora import is_folder
from transformer_cli.config.yaml_text import printable

_RELATIVE = "relative paths count from the folder of the YAML file"


def matching(path: Path) -> list[Path]:
    """The files that a name with `*`, `?` or `[…]` stands for, in the order of their names; else the path itself, and
    also where a file has just this name."""
    try:
        if not re.search(r"[*?\[]", str(path)) or path.exists():
            return [path]
        # What lies above may have such characters in its own name.
        folder = next(parent for parent in path.parents if parent.is_dir())
        return sorted(found for found in folder.glob(str(path.relative_to(folder))) if found.is_file())
    except (OSError, ValueError):
        return [path]  # whoever opens it will say why that cannot be done


def trouble_of(path: Path) -> str | None:
    """Why a file, or one of those that the name stands for, cannot be read; None if they can."""
    found = matching(path)
    if not found:
        return f"no file fits {printable(str(path))}; {_RELATIVE}"
    return next((trouble for one in found if (trouble := _trouble_of_one(one))), None)


def trouble_of_set(name: str, path: Path) -> str | None:
    """Why a set of this name, at this path if it is a folder, cannot be read; None if it may be."""
    if is_folder(name) and not path.is_dir():
        return f"no such folder: {printable(str(path))}; {_RELATIVE}"
    return None


def _trouble_of_one(path: Path) -> str | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"not a plain file: {printable(str(path))}"
        path.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        return f"no such file: {printable(str(path))}; {_RELATIVE}"
    except (OSError, ValueError) as error:
        return f"cannot be read ({getattr(error, 'strerror', error)}): {printable(str(path))}"
    return None
