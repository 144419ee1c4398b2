"""hatchling calls this before it makes the wheel, so that no wheel holds a changed notebook of
`notebooks/`. An editable installation, as `make lab` makes it, hands nothing out.
"""

import importlib.util
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HandedOut(BuildHookInterface):
    """Refuses with a sentence for each notebook that differs from the handed-out one."""

    def initialize(self, version: str, build_data: dict) -> None:
        root = Path(self.root)
        if version == "editable":
            # So modules have their earlier names in an environment of a checkout too.
            pth = root / "lessons_lib" / "start" / "course.pth"
            build_data["force_include_editable"] = {str(pth): "paged_attention_course.pth"}
            return
        # Loaded by its file, because the room imports packages that are not installed here.
        place = root / "lessons_lib" / "guide" / "handed_out.py"
        spec = importlib.util.spec_from_file_location("handed_out", place)
        assert spec and spec.loader
        handed_out = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(handed_out)
        if problems := handed_out.changed(root / "notebooks"):
            sys.exit("\n".join(problems))
