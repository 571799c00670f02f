"""Processes that the gateway's tests share: one stand-in of the service, emptied for every test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# pytest imports test files by path here (importmode=importlib), so their neighbours have to be made findable.
sys.path.insert(0, str(Path(__file__).parent))

from gateway_running import GatewayProcess, gateway_process, gateway_thread
from gateway_stand_in import StandIn, running_stand_in

from mcp_gateway.tools import ALL_TOOLS


@dataclass(frozen=True)
class Service:
    stand_in: StandIn
    url: str


@pytest.fixture(scope="session")
def _service_process() -> Iterator[Service]:
    with running_stand_in() as (stand_in, url):
        yield Service(stand_in, url)


@pytest.fixture
def service(_service_process: Service) -> Iterator[StandIn]:
    """Empty at the start; at the end nothing may have been asked for that the contract does not have."""
    _service_process.stand_in.reset()
    yield _service_process.stand_in
    assert _service_process.stand_in.violations == []


@pytest.fixture(scope="session")
def service_url(_service_process: Service) -> str:
    return _service_process.url


@pytest.fixture(scope="session")
def gateway(service_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """The real process with its defaults, except that it forgets at once which keys are good."""
    log = tmp_path_factory.mktemp("gateway") / "stderr"
    quick = {"HINDSIGHT_GATEWAY_ACCESS_CACHE_SECONDS": "0", "HINDSIGHT_GATEWAY_UPSTREAM_TIMEOUT_SECONDS": "1"}
    with gateway_process(service_url, log, **quick) as process:
        yield process


@pytest.fixture(scope="session")
def full_gateway_url(service_url: str) -> Iterator[str]:
    """The same server inside the test process, with the default time limits."""
    with gateway_thread(service_url, ALL_TOOLS, gateway_access_cache_seconds=0) as url:
        yield url
