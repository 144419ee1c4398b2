import sys

from lessons_site.build import main

sys.exit(main())
