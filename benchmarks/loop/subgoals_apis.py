"""Subgoals of API calls: retired versions, page caps, cursors, rate limits, formats, sessions, units."""

from __future__ import annotations

from benchmarks.loop.subgoals import Kind, Plan, Subgoal, Values, plain, repeated, varied
from benchmarks.loop.world import Call

WAITS_S = (2, 5, 20, 30, 60)  # in the order in which they are tried


def _version(host: str, values: Values, english: str, chinese: str) -> Subgoal:
    resource = f"{values.of('stem')}/{values.number()}"
    urls = (
        f"https://{host}/v1/{resource}",
        f"https://{host}/v1/{resource}?format=json",
        f"https://{host}/v2/{resource}",
    )
    return Subgoal(f"{english} {resource}", f"{chinese} {resource}", varied("http_get", {}, "url", urls))


def shop_record(values: Values) -> Subgoal:
    return _version("api.shop.example", values, "fetch the shop record", "取商店记录")


def stock_record(values: Values) -> Subgoal:
    """Another service whose first version is the current one."""
    return _version("api.stock.example", values, "fetch the stock record", "取库存记录")


def crm_contact(values: Values) -> Subgoal:
    contact = f"contacts/{values.number()}"
    urls = (
        f"https://crm-old.example/{contact}",
        f"https://crm-old.example/api/{contact}",
        f"https://crm.example/{contact}",
        f"https://crm.example/api/{contact}",
    )
    return Subgoal(f"look up {contact} in the CRM", f"在 CRM 查 {contact}", varied("http_get", {}, "url", urls))


def many_events(values: Values) -> Subgoal:
    source = values.of("stem")
    plans = varied("list_events", {"source": source}, "limit", (500, 250, 200, 100, 50))
    return Subgoal(f"list the latest events of {source}", f"列出 {source} 的最新事件", plans)


def next_events(values: Values) -> Subgoal:
    source, number = values.of("stem"), values.number()
    base = {"source": source, "limit": 50}
    plans = (
        Plan("page", (Call("list_events", {**base, "page": 2}),)),
        Plan("offset", (Call("list_events", {**base, "offset": 50}),)),
        Plan("start", (Call("list_events", {**base, "start": 50}),)),
        Plan("cursor", (Call("list_events", {**base, "cursor": f"ev{number}"}),)),
    )
    return Subgoal(f"list the second page of events of {source}", f"列出 {source} 事件的第二页", plans)


def catalog_search(values: Values) -> Subgoal:
    """Three searches: more than the service takes at once come when a task has several of these."""
    thing = values.of("thing")
    return Subgoal(
        f"find {thing} in the catalog",
        f"在目录中查 {thing}",
        repeated(Call("search_catalog", {"query": thing}), WAITS_S),
    )


def address(values: Values) -> Subgoal:
    place = values.of("place")
    return Subgoal(f"locate {place}", f"定位 {place}", repeated(Call("geocode", {"address": place}), WAITS_S))


def invoices(values: Values) -> Subgoal:
    year, month, day = values.day()
    forms = (
        f"{month:02}/{day}/{year}",
        f"{day}.{month:02}.{year}",
        f"{year}/{month:02}/{day}",
        f"{year}-{month:02}-{day}",
    )
    base = {"customer": values.of("person")}
    english = f"list invoices of {base['customer']} since {forms[0]}"
    return Subgoal(
        english, f"列出 {base['customer']} 自 {forms[0]} 的发票", varied("query_invoices", base, "since", forms)
    )


def form(values: Values) -> Subgoal:
    return _sent(f"{values.of('stem')}_form", values)


def survey(values: Values) -> Subgoal:
    """Surveys take JSON, as one would guess."""
    return _sent(f"{values.of('stem')}_survey", values)


def _sent(name: str, values: Values) -> Subgoal:
    base = {"form": name, "fields": {"name": values.of("person"), "number": values.number()}}
    types = ("application/json", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded")
    return Subgoal(f"send the {name}", f"提交 {name}", varied("submit_form", base, "content_type", types))


def customer(values: Values) -> Subgoal:
    number = values.number()
    ids = (f"{number}", f"0{number}", f"C{number}", f"cus_{number}")
    return Subgoal(f"look up customer {number}", f"查客户 {number}", varied("get_customer", {}, "customer_id", ids))


def ticket(values: Values) -> Subgoal:
    arguments = {"queue": values.of("stem"), "title": f"call {values.of('person')}"}
    create = Call("create_ticket", arguments)
    plans = (
        Plan("as asked", (create,)),
        Plan("again", (create,)),
        Plan("priority", (Call("create_ticket", {**arguments, "priority": "high"}),)),
        Plan("login", (Call("login", {"service": "helpdesk"}), create)),
    )
    return Subgoal(
        f"open a ticket in {arguments['queue']}: {arguments['title']}",
        f"在 {arguments['queue']} 开工单：{arguments['title']}",
        plans,
    )


def refund(values: Values) -> Subgoal:
    order, cents = f"ord-{values.number()}", values.number() * 10 + 5
    amounts = (cents / 100, f"{cents / 100}", f"{cents / 100} EUR", cents)
    return Subgoal(
        f"refund {cents / 100} EUR for {order}",
        f"为 {order} 退款 {cents / 100} 欧元",
        varied("create_refund", {"order": order}, "amount", amounts),
    )


def payment(values: Values) -> Subgoal:
    base = {"order": f"ord-{values.number()}", "total": values.number()}
    plans = (
        Plan("as asked", (Call("create_payment", base),)),
        Plan("note", (Call("create_payment", {**base, "note": "by invoice"}),)),
        Plan("capture", (Call("create_payment", {**base, "capture": "manual"}),)),
    )
    return Subgoal(f"take the payment for {base['order']}", f"为 {base['order']} 收款", plans)


def meeting(values: Values) -> Subgoal:
    year, month, day = values.day()
    base = {"subject": f"review of {values.of('stem')}"}
    local = f"{year}-{month:02}-{day}T09:30"
    forms = (local, f"{local}:00", f"{local}:00 CST", f"{local}:00+08:00")
    return Subgoal(
        f"schedule the {base['subject']} on {local}",
        f"安排 {base['subject']}：{local}",
        varied("schedule", base, "at", forms),
    )


def status(values: Values) -> Subgoal:
    service = values.of("stem")
    return plain("service_status", f"check that {service} is up", f"检查 {service} 是否正常", service=service)


def few_events(values: Values) -> Subgoal:
    """A list small enough for any cap."""
    source = values.of("stem")
    return Subgoal(
        f"list 20 events of {source}",
        f"列出 {source} 的 20 条事件",
        varied("list_events", {"source": source}, "limit", (20, 10)),
    )


TRAPS: tuple[Kind, ...] = (
    shop_record, many_events, invoices, ticket, address, customer, form, next_events, crm_contact, payment, meeting, refund,
)  # fmt: skip
LOOK_ALIKES: tuple[Kind, ...] = (stock_record, few_events, survey)
PLAIN: tuple[Kind, ...] = (status, address, catalog_search)
