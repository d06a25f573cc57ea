"""`python -m redismem`: the same as the command `redismem`."""

import sys

from redismem.cli import main

if __name__ == "__main__":
    sys.exit(main())
