"""Tests never touch the learner's own progress."""

import os
import tempfile

os.environ["LESSONS_PROGRESS_DIR"] = tempfile.mkdtemp(prefix="progress-")
