"""`python -m lessons_lib.grade SUBMISSIONS` grades the notebooks of a class; grading/ is how."""

import sys

from grading.command import main

if __name__ == "__main__":
    sys.exit(main())
