"""Runs a command as an ordinary user that does not exist, where the tests run as root."""

import sys
from pathlib import Path

from lessons_lib.paths import ROOT

NUMBER = 54_321


def as_ordinary_user() -> list[str]:
    """The words before the command. It sees Python and the course, wherever they are."""
    seen = {ROOT, *map(Path, (sys.prefix, sys.base_prefix))}
    closed = {
        parent for path in seen for parent in path.parents if not parent.stat().st_mode & 0o001
    }
    words = ["bwrap", "--dev-bind", "/", "/"]
    for parent in sorted(closed):
        words += ["--perms", "0755", "--tmpfs", str(parent)]
    for path in sorted(seen):
        if closed & {*path.parents}:
            words += ["--dir", str(path.parent), "--ro-bind", str(path), str(path)]
    return [*words, "setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups"]
