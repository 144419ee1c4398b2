import sys

from lessons_grading.command import main

if __name__ == "__main__":
    sys.exit(main())
