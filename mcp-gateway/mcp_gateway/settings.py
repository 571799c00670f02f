"""What can be set from outside, and with which defaults? Read once at start from HINDSIGHT_* variables.

Must not be read from anywhere but the entry point: everything else gets the object passed in.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class GatewaySettings(BaseSettings):
    """Names without a comment are self-explanatory; every number carries its unit and the reason for its default."""

    model_config = SettingsConfigDict(env_prefix="HINDSIGHT_", env_ignore_empty=True, extra="ignore", frozen=True)

    service_url: str = "http://127.0.0.1:8000"
    gateway_host: str = "127.0.0.1"
    gateway_port: int = Field(default=8080, ge=0, le=65535)
    # Sent upstream on stdio only. Over HTTP each caller brings a key; lending them this one would open the service.
    api_key: SecretStr | None = None
    user_id: str | None = None
    # Host headers the HTTP endpoint answers to; a name without a port stands for every port. Checked on every bind
    # address: a web page that rebinds its DNS name to this machine must not reach the memories.
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = LOOPBACK_HOSTS
    # Browser origins that may call; clients that are not browsers send none and are not affected.
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = tuple(f"http://{host}:*" for host in LOOPBACK_HOSTS)

    # Shorter than the 60 s after which common MCP clients give up, so that the caller reads advice, not a timeout.
    gateway_upstream_timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    # Loopback or a container network: an unanswered SYN is an outage, not latency.
    gateway_connect_timeout_seconds: float = Field(default=2.0, gt=0, le=60)
    gateway_upstream_connections_max: int = Field(default=64, ge=1, le=1024)
    # 100 hits of 256 KiB, JSON-escaped, stay below; more than this is a broken service.
    gateway_upstream_body_bytes_max: int = Field(default=64 * 1024 * 1024, ge=1024)
    # 256 KiB of content is 1.5 MiB when a client escapes every character; the rest of a request is small.
    gateway_request_body_bytes_max: int = Field(default=4 * 1024 * 1024, ge=1024)
    # The contract's promise for one result, counted on the wire.
    gateway_result_bytes_max: int = Field(default=100_000, ge=10_000)
    # Clients of the official SDK refuse events above 1 MiB (mcp.client.streamable_http.DEFAULT_MAX_SSE_EVENT_SIZE).
    gateway_resource_bytes_max: int = Field(default=1_000_000, ge=10_000)
    # `initialize` has to answer in 2 s although the service may be down.
    gateway_access_timeout_seconds: float = Field(default=1.0, gt=0, le=30)
    # A revoked key is noticed by the service at once; this only spares it one question per request.
    gateway_access_cache_seconds: float = Field(default=5.0, ge=0, le=300)
    gateway_access_cache_entries_max: int = Field(default=1024, ge=1)
    # A proxy may end a connection that stays silent (60 s is common): an answer that takes longer than this becomes an
    # event stream with a ping as often. As the SDK does for the 2026 protocol (_SSE_PING_INTERVAL).
    gateway_quiet_seconds: float = Field(default=15.0, gt=0, le=300)
    # uvicorn waits this long for open streams; SIGTERM has to end the process within 5 s.
    gateway_shutdown_seconds: int = Field(default=2, ge=0, le=60)
    # stdio: answers still running when stdin closes; the SDK's client kills the process 2 s after closing it.
    gateway_stdio_drain_seconds: float = Field(default=1.5, ge=0, le=60)
    gateway_http_connections_max: int = Field(default=512, ge=1)

    @field_validator("allowed_hosts", "allowed_origins", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("allowed_hosts", "allowed_origins")
    @classmethod
    def _refuse_wildcards(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(entry.removesuffix(":*").find("*") >= 0 for entry in value):
            raise ValueError("name each one; '*' is accepted only as a port, because it would switch the check off")
        return value

    @field_validator("service_url")
    @classmethod
    def _check_service_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be an http:// or https:// URL")
        return value.rstrip("/")
