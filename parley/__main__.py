"""The command line as `python -m parley`, which also works without an installation, as in a submitted Ray job."""

from __future__ import annotations

import sys

from parley.engine.core.cli.main import main

sys.exit(main())
