"""The program that puts the product on the lab: `python -m lab.kuryr up|down`."""

import sys

from lab.kuryr.installation import main

sys.exit(main())
