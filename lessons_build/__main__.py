import sys

from lessons_build.build import main

sys.exit(main())
