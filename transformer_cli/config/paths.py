"""Expand file patterns, check that files can be read, and write paths for a configuration."""

import json
import os
import re
import stat
from pathlib import Path

from transformer_cli.config.corpora import is_folder
from transformer_cli.config.yaml_text import printable

_RELATIVE = "relative paths count from the folder of the YAML file"


def matching(path: Path) -> list[Path]:
    """The files that match a pattern with `*`, `?` or `[…]`, sorted by name; the path itself if it is no pattern or
    exists under this very name."""
    try:
        if not re.search(r"[*?\[]", str(path)) or path.exists():
            return [path]
        # Match only below the deepest existing folder, as its own name may have such characters.
        folder = next(parent for parent in path.parents if parent.is_dir())
        return sorted(found for found in folder.glob(str(path.relative_to(folder))) if found.is_file())
    except (OSError, ValueError):
        return [path]  # opening it gives the error


def path_as_yaml(path: Path, folder: Path | None) -> str:
    """A path as a configuration in `folder` names it: relative if the file lies in the folder or beside it, so that
    both can be moved together, else absolute; absolute if the folder is unknown."""
    path, folder = path.resolve(), folder and folder.resolve()
    shown = os.path.relpath(path, folder) if folder and path.is_relative_to(folder.parent) else str(path)
    return shown if re.fullmatch(r"[\w./-]+", shown, re.ASCII) else json.dumps(shown, ensure_ascii=False)


def trouble_of(path: Path) -> str | None:
    """The reason that a file, or one that matches a pattern, cannot be read; None if all can be."""
    found = matching(path)
    if not found:
        return f"no file fits {printable(str(path))}; {_RELATIVE}"
    return next((trouble for one in found if (trouble := _trouble_of_one(one))), None)


def trouble_of_set(name: str, path: Path) -> str | None:
    """The reason that a Hugging Face set cannot be read, if it is a folder that does not exist at `path`; else None.
    A name on the hub is not looked up."""
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
