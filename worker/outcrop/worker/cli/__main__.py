"""`python -m outcrop.worker.cli`, for a process that must run this very interpreter."""

from __future__ import annotations

import sys

from .command import main

sys.exit(main())
