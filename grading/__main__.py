import sys

from grading.command import main

if __name__ == "__main__":
    sys.exit(main())
