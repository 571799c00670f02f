"""What holds for every test: the caller's own HINDSIGHT_* variables stay out, and hypothesis neither times nor saves examples."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# Test files are imported by path: what they share has to be made findable.
sys.path.insert(0, str(Path(__file__).parent))

for name in [name for name in os.environ if name.startswith("HINDSIGHT_")]:
    del os.environ[name]

# Examples hit real stores and share function-scoped fixtures on purpose: every example brings its own user.
settings.register_profile(
    "hindsight",
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("hindsight")
