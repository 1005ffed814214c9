"""``python -m symattn_cli``."""

import sys

from symattn_cli.main import main

sys.exit(main())
