"""Run the command line as ``python -m pydirect``."""

import sys

from pydirect.cli.main import main

sys.exit(main())
