"""The command line as `python -m parley`, also where the project is a folder and not installed, as in a submitted Ray job."""

from __future__ import annotations

import sys

from parley.engine.core.cli.main import main

sys.exit(main())
