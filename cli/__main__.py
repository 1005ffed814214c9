"""``python -m symattn_cli``."""

import sys

from .main import main

if __name__ == "__main__":  # processes that help import this module under another name
    sys.exit(main())
