from __future__ import annotations

import sys

from tests.lossless.machine import main

sys.exit(main())
