"""Asked by hatchling before it makes the wheel: no wheel holds what somebody wrote into
`notebooks/`. An editable installation, as `make lab` makes it, hands nothing out.
"""

import importlib.util
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HandedOut(BuildHookInterface):
    """Refuses with a sentence for each notebook that is not as the course hands it out."""

    def initialize(self, version: str, build_data: dict) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        # by its file, because the room imports packages that are not here
        place = root / "lessons_lib" / "guide" / "handed_out.py"
        spec = importlib.util.spec_from_file_location("handed_out", place)
        assert spec and spec.loader
        handed_out = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(handed_out)
        if problems := handed_out.changed(root / "notebooks"):
            sys.exit("\n".join(problems))
