"""Run the command line as ``python -m pydirect``."""

import sys

from pydirect.cli import main

sys.exit(main())
