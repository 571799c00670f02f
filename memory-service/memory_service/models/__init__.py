"""The three model ports and their implementations.

ONNX Runtime for Linux sends usage data unless it is told not to before it is imported; nothing here may leave the machine.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
