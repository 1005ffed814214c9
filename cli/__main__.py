"""``python -m symattn_cli``."""

import sys

from .main import main

sys.exit(main())
