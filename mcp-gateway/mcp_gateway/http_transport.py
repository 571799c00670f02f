"""How is MCP served over HTTP? The SDK's stateless endpoint behind a door that checks host, key and request id.

Must not hold sessions: the id that `initialize` hands out is random, stored nowhere, and only tells apart whose
request a later `notifications/cancelled` means. Must not ask the service anything for GET /health.
"""

from __future__ import annotations

import contextlib
import gc
import re
import secrets
from collections.abc import AsyncIterator, Sequence

import orjson
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from mcp_gateway.access import Verdict
from mcp_gateway.client import Caller, Json
from mcp_gateway.direct import Direct, read_plain
from mcp_gateway.heads import REQUEST_ID, Fields, Judge, take_fields
from mcp_gateway.logs import log_request
from mcp_gateway.protocol import JoiningProtocol
from mcp_gateway.server import SESSION_HEADER, Gateway, Handlers, create_server, open_gateway
from mcp_gateway.settings import GatewaySettings
from mcp_gateway.surrogates import neutralise
from mcp_gateway.tools import ALL_TOOLS
from mcp_gateway.tools.tool import Tool

MCP_PATH = "/mcp"
_SESSION_NAME = SESSION_HEADER.encode()
# Room for what a cancellation or an initialize can hold; larger bodies are not parsed twice.
_CONTROL_BYTES_MAX = 64 * 1024
_UNAUTHORIZED = -32001


def transport_security(settings: GatewaySettings) -> TransportSecuritySettings:
    """Always on. The SDK decides by the bind address when it is given none, and 0.0.0.0 switches the checks off."""
    hosts = list(settings.allowed_hosts)
    hosts += [f"{host}:*" for host in settings.allowed_hosts if not re.search(r":(\d+|\*)$", host)]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=list(settings.allowed_origins)
    )


def create_app(gateway: Gateway) -> Door:
    """The ASGI application; the caller opens and closes `gateway`."""
    settings = gateway.settings
    security = transport_security(settings)
    server = create_server(gateway)
    app = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        stateless_http=True,
        json_response=False,
        transport_security=security,
        max_request_body_size=settings.gateway_request_body_bytes_max,
        host=settings.gateway_host,
    )
    return Door(app, Direct(server, Handlers(gateway), settings.gateway_quiet_seconds), gateway, security)


class Door:
    """ASGI middleware around the SDK's application; answers what `direct` can without it."""

    def __init__(self, app: Starlette, direct: Direct, gateway: Gateway, security: TransportSecuritySettings) -> None:
        self._app = app
        self._direct = direct
        self._gateway = gateway
        self._judge = Judge(security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields = take_fields(scope)
        stamp = (REQUEST_ID, fields[REQUEST_ID])

        async def stamped(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), stamp]
            await send(message)

        if scope["path"] == "/health":
            await JSONResponse({"status": "ok"})(scope, receive, stamped)
        elif scope["path"].rstrip("/") == MCP_PATH:
            await self._admit(scope, fields, receive, stamped)
        else:
            await JSONResponse({"detail": f"MCP is served at {MCP_PATH}"}, status_code=404)(scope, receive, stamped)

    async def _admit(self, scope: Scope, fields: Fields, receive: Receive, send: Send) -> None:
        caller = Caller(fields[REQUEST_ID].decode(), fields.get(b"authorization"))
        judged = await self._judge.judge(scope, fields)
        refusal = judged.refusal or await self._check_key(caller)
        if refusal is not None:
            log_request(
                request_id=caller.request_id,
                transport="http",
                method=scope["method"],
                status=f"http {refusal.status_code}",
            )
            await refusal(scope, receive, send)
        elif scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif judged.packed:
            text, told = "Send the body without Content-Encoding; no encoding is read.", {"Accept-Encoding": "identity"}
            await Response(text, 415, told)(scope, receive, send)
        else:
            session_id = fields.get(_SESSION_NAME)
            asking = caller, None if session_id is None else session_id.decode("latin-1")
            await self._post(scope, *asking, judged.version, receive, send)

    async def _check_key(self, caller: Caller) -> Response | None:
        standing = await self._gateway.access.standing(caller)
        if standing.verdict is not Verdict.KEY_NEEDED:
            return None
        challenge, text = "Bearer", "This memory service needs an API key. Send the header 'Authorization: Bearer KEY'."
        if caller.authorization is not None:
            challenge, text = 'Bearer error="invalid_token"', "The memory service does not know this API key."
        body = {"jsonrpc": "2.0", "id": None, "error": {"code": _UNAUTHORIZED, "message": text}}
        return JSONResponse(body, status_code=401, headers={"WWW-Authenticate": challenge})

    async def _post(
        self,
        scope: Scope,
        caller: Caller,
        session_id: str | None,
        version: str | None,
        receive: Receive,
        send: Send,
    ) -> None:
        body = await _read_body(receive, self._gateway.settings.gateway_request_body_bytes_max)
        if body is None:
            await Response("Request body too large", status_code=413)(scope, receive, send)
            return
        body = neutralise(body)
        if version is not None:
            plain = read_plain(body, caller, session_id)
            if plain is not None:
                await self._direct.answer(plain, version, scope, receive, send)
                return
        method, params = _control_message(body)
        if method == "notifications/cancelled" and session_id is not None:
            self._gateway.in_flight.cancel(session_id, str(params.get("requestId")))
        answer_headers = {SESSION_HEADER: secrets.token_urlsafe(16)} if method == "initialize" else {}
        await self._app(scope, _replay(body, receive), _with_headers(send, answer_headers))


async def _read_body(receive: Receive, bytes_max: int) -> bytes | None:
    """The whole body; None when it is longer than `bytes_max`. What a vanished client sent so far counts as all."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > bytes_max:
            return None
        if message["type"] != "http.request" or not message.get("more_body", False):
            return bytes(body)


def _control_message(body: bytes) -> tuple[str, dict[str, Json]]:
    """Method and params of an `initialize` or a cancellation; everything else is left to the SDK unparsed."""
    interesting = b"notifications/cancelled" in body or b'"initialize"' in body
    if not interesting or len(body) > _CONTROL_BYTES_MAX:
        return "", {}
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", {}
    if not isinstance(message, dict):
        return "", {}
    params = message.get("params")
    return str(message.get("method", "")), params if isinstance(params, dict) else {}


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body once, then whatever the server still has to say (only that the client went away)."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _with_headers(send: Send, headers: dict[str, str]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return sending if headers else send


@contextlib.asynccontextmanager
async def open_http_server(
    settings: GatewaySettings, tools: Sequence[Tool] = ALL_TOOLS
) -> AsyncIterator[uvicorn.Server]:
    """A uvicorn server, ready for `serve()`. Its host checks and shutdown limit are ours, not the SDK's defaults."""
    async with open_gateway(settings, tools) as gateway:
        config = uvicorn.Config(
            create_app(gateway),
            host=settings.gateway_host,
            port=settings.gateway_port,
            http=JoiningProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            limit_concurrency=settings.gateway_http_connections_max,
            timeout_graceful_shutdown=settings.gateway_shutdown_seconds,
        )
        yield uvicorn.Server(config)


async def serve_http(settings: GatewaySettings) -> None:
    async with open_http_server(settings) as server:
        # What the start made is no garbage: a look through all of it would take 60 ms, between two calls or in one.
        gc.freeze()
        await server.serve()
