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
        root = Path(self.root)
        if version == "editable":
            # in an environment of a checkout too, modules have their earlier names
            pth = root / "lessons_lib" / "start" / "course.pth"
            build_data["force_include_editable"] = {str(pth): "paged_attention_course.pth"}
            return
        # by its file, because the room imports packages that are not here
        place = root / "lessons_lib" / "guide" / "handed_out.py"
        spec = importlib.util.spec_from_file_location("handed_out", place)
        assert spec and spec.loader
        handed_out = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(handed_out)
        if problems := handed_out.changed(root / "notebooks"):
            sys.exit("\n".join(problems))
