"""Asked by hatchling before it makes the wheel: no wheel holds what somebody wrote into
`notebooks/`. An editable installation, as `make lab` makes it, hands nothing out.
"""

import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class HandedOut(BuildHookInterface):
    """Refuses with a sentence for each notebook that is not as the course hands it out."""

    def initialize(self, version: str, build_data: dict) -> None:
        if version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / "lessons_lib"))  # without the room's imports
        import handed_out

        if problems := handed_out.changed(Path(self.root) / "notebooks"):
            sys.exit("\n".join(problems))
