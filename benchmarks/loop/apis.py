"""The API tools: retired versions, moved hosts, caps, limits, formats, sessions.

The messages are written like those of real services: some say what is wrong, many do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.loop.world import ToolFailed, World, take

PAGE_MAX = 100
SEARCHES, SEARCH_WINDOW_S = 2, 30.0
GEOCODES, GEOCODE_WINDOW_S = 1, 20.0
ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
WITH_OFFSET = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[+-]\d{2}:\d{2}")


def http_get(_world: World, arguments: Mapping[str, Any]) -> str:
    url, *_ = take(arguments, ("url",), ("accept",))
    if url.startswith("https://api.shop.example/v1/"):
        raise ToolFailed("410 Gone")
    if url.startswith("https://api.stock.example/v2/"):
        raise ToolFailed("404 Not Found")
    if url.startswith("https://crm-old.example/"):
        raise ToolFailed("410 Gone: this host was shut down")
    known = ("https://api.shop.example/v2/", "https://api.stock.example/v1/", "https://crm.example/api/")
    if not url.startswith(known):
        raise ToolFailed("404 Not Found")
    return f'200 {{"id": "{url.rpartition("/")[2]}", "state": "open"}}'


def list_events(_world: World, arguments: Mapping[str, Any]) -> str:
    source, limit, cursor = take(arguments, ("source", "limit"), ("cursor",))
    if limit > PAGE_MAX:
        raise ToolFailed("400 Bad Request: limit out of range")
    return f"{limit} events of {source}{' after ' + cursor if cursor else ''}"


def search_catalog(world: World, arguments: Mapping[str, Any]) -> str:
    (query,) = take(arguments, ("query",))
    if world.limited("catalog", SEARCHES, SEARCH_WINDOW_S) > 0:
        raise ToolFailed("429 Too Many Requests")
    return f"3 articles for {query}"


def geocode(world: World, arguments: Mapping[str, Any]) -> str:
    (address,) = take(arguments, ("address",))
    seconds = world.limited("geocode", GEOCODES, GEOCODE_WINDOW_S)
    if seconds > 0:
        raise ToolFailed(f"429 rate limit exceeded. Retry-After: {seconds:.0f}")
    return f"{address}: 48.{len(address)}, 11.{len(address)}"


def wait(world: World, arguments: Mapping[str, Any]) -> str:
    (seconds,) = take(arguments, ("seconds",))
    world.now_s += seconds
    return f"waited {seconds} s"


def query_invoices(_world: World, arguments: Mapping[str, Any]) -> str:
    customer, since = take(arguments, ("customer", "since"))
    if not ISO_DAY.fullmatch(since):
        raise ToolFailed("400 Bad Request: could not parse since")
    return f"4 invoices of {customer} since {since}"


def submit_form(_world: World, arguments: Mapping[str, Any]) -> str:
    form, fields, content_type = take(arguments, ("form", "fields", "content_type"))
    if (content_type == "application/json") is not form.endswith("_survey") or content_type in (
        "text/plain",
        "multipart/form-data",
    ):
        raise ToolFailed("415 Unsupported Media Type")
    return f"201 {form} with {len(fields)} fields"


def get_customer(_world: World, arguments: Mapping[str, Any]) -> str:
    (customer_id,) = take(arguments, ("customer_id",))
    if not re.fullmatch(r"cus_\d+", customer_id):
        raise ToolFailed(f"404 Not Found: customer {customer_id}")
    return f"{customer_id}: active"


def login(world: World, arguments: Mapping[str, Any]) -> str:
    (service,) = take(arguments, ("service",))
    world.marks.add(("session", service))
    return f"session of {service} opened"


def create_ticket(world: World, arguments: Mapping[str, Any]) -> str:
    queue, title, *_ = take(arguments, ("queue", "title"), ("priority",))
    if ("session", "helpdesk") not in world.marks:
        raise ToolFailed("401 Unauthorized")
    return f"ticket in {queue}: {title}"


def create_refund(_world: World, arguments: Mapping[str, Any]) -> str:
    order, amount, currency = take(arguments, ("order", "amount"), ("currency",))
    if not isinstance(amount, int):
        raise ToolFailed("422 Unprocessable Entity: amount is invalid")
    return f"refunded {amount} {currency or ''} for {order}"


def create_payment(_world: World, arguments: Mapping[str, Any]) -> str:
    order, total, *_, mode = take(arguments, ("order", "total"), ("note", "capture"))
    if mode is None:
        raise ToolFailed("422 Unprocessable Entity")
    return f"paid {total} for {order} ({mode})"


def schedule(_world: World, arguments: Mapping[str, Any]) -> str:
    subject, at = take(arguments, ("subject", "at"))
    if not WITH_OFFSET.fullmatch(at):
        raise ToolFailed("400 Bad Request: at is ambiguous")
    return f"{subject} at {at}"


def service_status(_world: World, arguments: Mapping[str, Any]) -> str:
    (service,) = take(arguments, ("service",))
    return f"{service}: up"


TOOLS: Mapping[str, Callable[..., str]] = {
    tool.__name__: tool
    for tool in (
        http_get, list_events, search_catalog, geocode, wait, query_invoices, submit_form, get_customer, login, create_ticket,
        create_refund, create_payment, schedule, service_status,
    )
}  # fmt: skip
