"""Which time does a query speak of, and how near is a memory to it?  Read through time_hints and closeness alone."""

import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memory_service.errors import SetupRefused
from memory_service.recall.time_expressions import TimeHint, TimeRules, load_time_rules, time_hints
from memory_service.recall.time_rules import TimeNumbers
from memory_service.recall.time_spans import EARLIEST, LATEST, Recurring
from memory_service.settings import Settings, load_tunables

CONFIG = Path(__file__).parents[3] / "config"
NUMBERS = load_tunables(Settings(config_dir=CONFIG)).section("time_hints", TimeNumbers)
RULES = load_time_rules(CONFIG / "time_expressions.toml", NUMBERS)
NOW = datetime(2025, 9, 17, 15, 30, tzinfo=UTC)  # a Wednesday


def read(query: str, now: datetime = NOW, rules: TimeRules = RULES) -> str:
    """The times of a query as `start..end` (nothing where it is open, `now`), or `every year month-day..month-day`."""
    return " | ".join(_meant(hint, now) for hint in time_hints(query, now, rules))


def _meant(hint: TimeHint, now: datetime) -> str:
    when = hint.when
    if isinstance(when, Recurring):
        return f"every {when.period} {when.first[0]}-{when.first[1]}..{when.last[0]}-{when.last[1]}"
    return f"{_told(when.start, now)}..{_told(when.end, now)}"


def _told(moment: datetime, now: datetime) -> str:
    if moment in (EARLIEST, LATEST):
        return ""
    if moment == now:
        return "now"
    return f"{moment:%Y-%m-%d}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%Y-%m-%dT%H:%M}"


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# A month's last day is cut to what the month has, so "6-31" ends June.
ENGLISH = [
    ("What happened on 8 May 2023?", "2023-05-08..2023-05-09"),
    ("what did I do on May 8, 2023", "2023-05-08..2023-05-09"),
    ("May 8 2023", "2023-05-08..2023-05-09"),
    ("meeting of May 8th, 2023", "2023-05-08..2023-05-09"),
    ("the 8th of May 2023", "2023-05-08..2023-05-09"),
    ("on 2023-05-08", "2023-05-08..2023-05-09"),
    ("log of 2023/5/8", "2023-05-08..2023-05-09"),
    ("at 2023-05-08T10:00:00Z", "2023-05-08..2023-05-09"),
    ("at 2023-05-08 10:00", "2023-05-08..2023-05-09"),
    ("08.05.2023", "2023-05-08..2023-05-09"),
    ("13/05/2023", "2023-05-13..2023-05-14"),
    ("05/13/2023", "2023-05-13..2023-05-14"),
    ("05/08/2023", "2023-08-05..2023-08-06 | 2023-05-08..2023-05-09"),
    ("05/05/2023", "2023-05-05..2023-05-06"),
    ("05/2023", "2023-05-01..2023-06-01"),
    ("2023-05", "2023-05-01..2023-06-01"),
    ("in 5/2023", "2023-05-01..2023-06-01"),
    ("Jan. 3, 2024", "2024-01-03..2024-01-04"),
    ("9 Feb 2024", "2024-02-09..2024-02-10"),
    ("May 8-10, 2023", "2023-05-08..2023-05-11"),
    ("May '23", "2023-05-01..2023-06-01"),
    ("what did we do in May 2023", "2023-05-01..2023-06-01"),
    ("May of 2023", "2023-05-01..2023-06-01"),
    ("May of last year", "2024-05-01..2024-06-01"),
    ("last year in May", "2024-05-01..2024-06-01"),
    ("in 2023", "2023-01-01..2024-01-01"),
    ("who did I meet in 2023?", "2023-01-01..2024-01-01"),
    ("In 2019 I moved, where to?", "2019-01-01..2020-01-01"),
    ("in the year 2019", "2019-01-01..2020-01-01"),
    ("Q3 2025", "2025-07-01..2025-10-01"),
    ("2025Q3", "2025-07-01..2025-10-01"),
    ("third quarter of last year", "2024-07-01..2024-10-01"),
    ("second half of 2023", "2023-07-01..2024-01-01"),
    ("H1 2024", "2024-01-01..2024-07-01"),
    ("summer 2023", "2023-06-01..2023-09-01"),
    ("winter of 2023", "2023-12-01..2024-03-01"),
    ("last summer", "2025-06-01..2025-09-01"),
    ("last winter", "2024-12-01..2025-03-01"),
    ("last Christmas", "2024-12-23..2024-12-28"),
    ("Christmas 2023", "2023-12-23..2023-12-28"),
    ("early 2024", "2024-01-01..2024-05-01"),
    ("mid-2024", "2024-05-01..2024-09-01"),
    ("late 2024", "2024-09-01..2025-01-01"),
    ("beginning of 2024", "2024-01-01..2024-04-01"),
    ("end of 2024", "2024-10-01..2025-01-01"),
    ("early May 2023", "2023-05-01..2023-05-11"),
    ("end of last year", "2024-10-01..2025-01-01"),
    ("in the 1990s", "1990-01-01..2000-01-01"),
    ("in May", "every year 5-1..5-31"),
    ("in may", "every year 5-1..5-31"),
    ("which bug did I fix in Jan?", "every year 1-1..1-31"),
    ("in August, what broke?", "every year 8-1..8-31"),
    ("February", "every year 2-1..2-31"),
    ("on May 8", "every year 5-8..5-8"),
    ("may 8?", "every year 5-8..5-8"),
    ("on the 3rd of January", "every year 1-3..1-3"),
    ("Jan 3rd", "every year 1-3..1-3"),
    ("late May", "every year 5-21..5-31"),
    ("at the end of June", "every year 6-25..6-31"),
    ("in the summer", "every year 6-1..8-31"),
    ("at Christmas", "every year 12-23..12-27"),
    ("in Q2", "every year 4-1..6-31"),
    ("on Monday", "every week 0-0..0-0"),
    ("any plans for Monday?", "every week 0-0..0-0"),
    ("on Monday morning", "every week 0-0..0-0"),
    ("on Tuesday and Thursday", "every week 0-1..0-1 | every week 0-3..0-3"),
    ("over the weekend", "every week 0-5..0-6"),
    ("on the 8th", "every month 0-8..0-8"),
    ("on the 8th of last month", "2025-08-08..2025-08-09"),
    ("yesterday", "2025-09-16..2025-09-17"),
    ("the day before yesterday", "2025-09-15..2025-09-16"),
    ("today's plan", "2025-09-17..2025-09-18"),
    ("this morning", "2025-09-17..2025-09-18"),
    ("tomorrow", "2025-09-18..2025-09-19"),
    ("last night", "2025-09-16T12:00..2025-09-17T12:00"),
    ("yesterday afternoon", "2025-09-16..2025-09-17"),
    ("this week", "2025-09-15..2025-09-22"),
    ("last week", "2025-09-08..2025-09-15"),
    ("next week", "2025-09-22..2025-09-29"),
    ("the week before last", "2025-09-01..2025-09-08"),
    ("last weekend", "2025-09-13..2025-09-15"),
    ("the weekend before last", "2025-09-06..2025-09-08"),
    ("last month", "2025-08-01..2025-09-01"),
    ("last quarter", "2025-04-01..2025-07-01"),
    ("last year", "2024-01-01..2025-01-01"),
    ("earlier this year", "2025-01-01..2026-01-01"),
    ("last May", "2025-05-01..2025-06-01"),
    ("last November", "2024-11-01..2024-12-01"),
    ("this May", "2025-05-01..2025-06-01"),
    ("next May", "2026-05-01..2026-06-01"),
    ("last Friday", "2025-09-12..2025-09-13"),
    ("last Wednesday", "2025-09-10..2025-09-11"),
    ("last Friday's meeting", "2025-09-12..2025-09-13"),
    ("this Friday", "2025-09-19..2025-09-20"),
    ("next Friday", "2025-09-19..2025-09-20"),
    ("Friday of last week", "2025-09-12..2025-09-13"),
    ("last week on Friday", "2025-09-12..2025-09-13"),
    ("Mon, 5 May 2025", "2025-05-05..2025-05-06"),
    ("Monday, May 8", "every year 5-8..5-8"),
    ("3 days ago", "2025-09-14..2025-09-15"),
    ("an hour ago", "2025-09-17T14:00..2025-09-17T15:00"),
    ("30 minutes ago", "2025-09-17T14:59..2025-09-17T15:00"),
    ("two weeks ago", "2025-08-31..2025-09-07"),
    ("a couple of months ago", "2025-07-02..2025-08-02"),
    ("a few days ago", "2025-09-12..2025-09-16"),
    ("a year ago", "2024-03-19..2025-03-19"),
    ("a year and a half ago", "2023-12-17..2024-06-17"),
    ("half a year ago", "2024-12-16..2025-06-17"),
    ("2 years and 3 months ago", "2023-06-02..2023-07-03"),
    ("two weeks from now", "2025-09-28..2025-10-05"),
    ("in the past week", "2025-09-10..now"),
    ("over the last week", "2025-09-10..now"),
    ("in the last two months", "2025-07-17..now"),
    ("the past 24 hours", "2025-09-16T15:30..now"),
    ("the last few days", "2025-09-12..now"),
    ("the other day", "2025-09-07..2025-09-17"),
    ("since March", "2025-03-01..now"),
    ("since March 2023", "2023-03-01..now"),
    ("since yesterday", "2025-09-16..now"),
    ("from March on", "2025-03-01..now"),
    ("before June 2023", "..2023-06-01"),
    ("before May", "..2025-05-01"),
    ("until last Friday", "..2025-09-13"),
    ("by March 2024", "..2024-04-01"),
    ("after 2023-05-08", "2023-05-09.."),
    ("prior to 2020", "..2020-01-01"),
    ("between March and May", "every year 3-1..5-31"),
    ("between March and May 2023", "2023-03-01..2023-06-01"),
    ("from March to May 2023", "2023-03-01..2023-06-01"),
    ("May 2023 to July", "2023-05-01..2023-08-01"),
    ("from 2021 to 2023", "2021-01-01..2024-01-01"),
    ("between 2021 and 2023", "2021-01-01..2024-01-01"),
    ("from 2021-2023", "2021-01-01..2024-01-01"),
    ("from Monday to Wednesday", "every week 0-0..0-2"),
    ("from December to February", "every year 12-1..2-31"),
    ("in May and June", "every year 5-1..5-31 | every year 6-1..6-31"),
    ("in May or last week", "every year 5-1..5-31 | 2025-09-08..2025-09-15"),
    ("in May, June and July", "every year 5-1..5-31 | every year 6-1..6-31 | every year 7-1..7-31"),
    ("in 2023 or 2024", "2023-01-01..2024-01-01 | 2024-01-01..2025-01-01"),
    ("what happened the week before 9 June 2023", "2023-06-02..2023-06-09"),
    ("the week of 10 May 2023", "2023-05-08..2023-05-15"),
    ("the month after March 2023", "2023-04-01..2023-05-01"),
    ("first week of August 2023", "2023-08-01..2023-08-08"),
    ("last week of May", "every year 5-25..5-31"),
    ("last week, may I ask", "2025-09-08..2025-09-15"),
    ("from March 2021 to 2023", "2021-03-01..2024-01-01"),
]
CHINESE = [
    ("2023年5月8日我做了什么", "2023-05-08..2023-05-09"),
    ("2023 年 5 月 8 日", "2023-05-08..2023-05-09"),
    ("２０２３年５月８日", "2023-05-08..2023-05-09"),
    ("二〇二三年五月八日", "2023-05-08..2023-05-09"),
    ("二零二三年五月", "2023-05-01..2023-06-01"),
    ("23年5月", "2023-05-01..2023-06-01"),
    ("2023年", "2023-01-01..2024-01-01"),
    ("在2023做的项目", "2023-01-01..2024-01-01"),
    ("去年", "2024-01-01..2025-01-01"),
    ("前年", "2023-01-01..2024-01-01"),
    ("去年五月我们用的数据库", "2024-05-01..2024-06-01"),
    ("去年的五月", "2024-05-01..2024-06-01"),
    ("今年3月8号下午", "2025-03-08..2025-03-09"),
    ("5月8号", "every year 5-8..5-8"),
    ("五月八号", "every year 5-8..5-8"),
    ("5月8？", "every year 5-8..5-8"),
    ("五月", "every year 5-1..5-31"),
    ("十二月", "every year 12-1..12-31"),
    ("十一月二十三日", "every year 11-23..11-23"),
    ("五月初", "every year 5-1..5-7"),
    ("5月中旬", "every year 5-11..5-20"),
    ("2023年5月底", "2023-05-25..2023-06-01"),
    ("2023年上半年", "2023-01-01..2023-07-01"),
    ("2023年下半年", "2023-07-01..2024-01-01"),
    ("2025年第三季度", "2025-07-01..2025-10-01"),
    ("今年Q2", "2025-04-01..2025-07-01"),
    ("上个季度", "2025-04-01..2025-07-01"),
    ("2023年底", "2023-10-01..2024-01-01"),
    ("今年年初", "2025-01-01..2025-04-01"),
    ("年底", "every year 10-1..12-31"),
    ("去年夏天", "2024-06-01..2024-09-01"),
    ("夏天的时候", "every year 6-1..8-31"),
    ("国庆期间", "every year 10-1..10-7"),
    ("去年圣诞节", "2024-12-23..2024-12-28"),
    ("在元旦", "every year 12-31..1-2"),
    ("2023年中", "2023-05-01..2023-09-01"),
    ("2023年中国经济", "2023-01-01..2024-01-01"),
    ("今天", "2025-09-17..2025-09-18"),
    ("昨天", "2025-09-16..2025-09-17"),
    ("昨天下午", "2025-09-16..2025-09-17"),
    ("昨晚吃了什么", "2025-09-16T12:00..2025-09-17T12:00"),
    ("前天", "2025-09-15..2025-09-16"),
    ("大前天", "2025-09-14..2025-09-15"),
    ("明天", "2025-09-18..2025-09-19"),
    ("后天", "2025-09-19..2025-09-20"),
    ("这周", "2025-09-15..2025-09-22"),
    ("本周", "2025-09-15..2025-09-22"),
    ("上周", "2025-09-08..2025-09-15"),
    ("上个星期", "2025-09-08..2025-09-15"),
    ("上上周", "2025-09-01..2025-09-08"),
    ("上週五", "2025-09-12..2025-09-13"),
    ("上周五下午", "2025-09-12..2025-09-13"),
    ("上周一次会", "2025-09-08..2025-09-15"),
    ("上周天气", "2025-09-08..2025-09-15"),
    ("上周末", "2025-09-13..2025-09-15"),
    ("这个周末", "2025-09-20..2025-09-22"),
    ("下周一", "2025-09-22..2025-09-23"),
    ("周一", "every week 0-0..0-0"),
    ("星期天", "every week 0-6..0-6"),
    ("礼拜三", "every week 0-2..0-2"),
    ("周五十点", "every week 0-4..0-4"),
    ("周末", "every week 0-5..0-6"),
    ("上个月", "2025-08-01..2025-09-01"),
    ("上上个月", "2025-07-01..2025-08-01"),
    ("这个月", "2025-09-01..2025-10-01"),
    ("上个月8号", "2025-08-08..2025-08-09"),
    ("上个月底", "2025-08-25..2025-09-01"),
    ("8号那天", "every month 0-8..0-8"),
    ("3天前", "2025-09-14..2025-09-15"),
    ("三天前天气怎么样", "2025-09-14..2025-09-15"),
    ("三周前", "2025-08-24..2025-08-31"),
    ("两个星期前", "2025-08-31..2025-09-07"),
    ("三个月前", "2025-06-02..2025-07-03"),
    ("三个半月前", "2025-05-26..2025-06-10"),
    ("两个多月前", "2025-06-02..2025-08-02"),
    ("半年前", "2024-12-16..2025-06-17"),
    ("一年半前", "2023-12-17..2024-06-17"),
    ("20年前", "2005-03-19..2006-03-19"),
    ("3小时前", "2025-09-17T12:00..2025-09-17T13:00"),
    ("十几天前", "2025-08-29..2025-09-07"),
    ("几天前", "2025-09-11..2025-09-16"),
    ("两周前的周五", "2025-09-05..2025-09-06"),
    ("最近三天", "2025-09-14..now"),
    ("最近一个月", "2025-08-17..now"),
    ("近三年", "2022-09-17..now"),
    ("过去一周", "2025-09-10..now"),
    ("过去的一年里", "2024-09-17..now"),
    ("前几天", "2025-09-10..2025-09-17"),
    ("前阵子", "2025-07-19..2025-09-11"),
    ("三月以来", "2025-03-01..now"),
    ("去年五月以来", "2024-05-01..now"),
    ("自去年以来", "2024-01-01..now"),
    ("2019年至今", "2019-01-01..now"),
    ("自2023年3月起", "2023-03-01..now"),
    ("2023年之前", "..2023-01-01"),
    ("五月前", "..2025-05-01"),
    ("上周五之后", "2025-09-13.."),
    ("截至上周五", "..2025-09-13"),
    ("从三月到五月", "every year 3-1..5-31"),
    ("去年三月到五月", "2024-03-01..2024-06-01"),
    ("2023年5月到2023年8月", "2023-05-01..2023-09-01"),
    ("5月3日到5月8日", "every year 5-3..5-8"),
    ("2023年5月8日星期一", "2023-05-08..2023-05-09"),
    ("5月8日周一", "every year 5-8..5-8"),
    ("what did 小明 do 上周五", "2025-09-12..2025-09-13"),
    ("我在May 2023做了什么", "2023-05-01..2023-06-01"),
    ("上周 or last month", "2025-09-08..2025-09-15 | 2025-08-01..2025-09-01"),
    ("五月和六月", "every year 5-1..5-31 | every year 6-1..6-31"),
]
NO_TIMES = [
    "what is the port of redis",
    "may I ask you something",
    "march on",
    "May said hi",
    "ask May about the plan",
    "what did April cook",
    "who is June",
    "in May's opinion",
    "this may be wrong",
    "it may be last",
    "since May joined the team",
    "before May left",
    "may 8 people join",
    "the 8th may fail",
    "wait a second",
    "sat with the sun up",
    "the sun sets",
    "on Sun servers",
    "wed in Rome",
    "version 2023.1",
    "IntelliJ 2023.1.3",
    "error 2024",
    "port 2023",
    "is 2019 a leap year",
    "in 2023 rows",
    "in 2023.1",
    "order 2023-0508",
    "id 2023-05-08",
    "version 2023-05-08",
    "commit-2023-05-08",
    "app/2023/05/08/x.log",
    "call 555-2023",
    "20230508",
    "10.2.20.23",
    "192.168.2023.1",
    "550e8400-e29b-41d4-a716-202305082023",
    "CVE-2023-0508",
    "2023-02-30",
    "2023-13",
    "32 May",
    "31 June",
    "1/2000",
    "May 10:30",
    "how long did it take: for a week?",
    "it lasted two weeks",
    "in three months of work",
    "every Monday",
    "each May",
    "Black Friday",
    "Monday.com",
    "Sunday school",
    "in spring boot",
    "in Spring Boot 3",
    "I like summer",
    "Christmas gift ideas",
    "last minute change",
    "the last day",
    "last day of school",
    "last year of school",
    "I left and may come",
    "last 3 errors",
    "next step",
    "years ago",
    "999999 years ago",
    "when did I move?",
    "what date was it",
    "on the 8th floor",
    "H1 heading",
    "the fall of a cup",
    "decimal and augustus",
    "Marching band",
    "一周",
    "用了一周",
    "花了三个月",
    "多长时间，一周吗",
    "每周一",
    "一周一次",
    "两周三次",
    "一月一次",
    "12个月",
    "3个月的报告",
    "第5月",
    "五月天的歌",
    "上月球",
    "8号线",
    "8号楼",
    "端口2023",
    "错误2024",
    "2月30日",
    "2023号",
    "什么时候去的",
    "哪一天",
    "几月几号",
    "以前年轻的时候",
    "以后天天如此",
    "学了一周前端",
    "what did I do recently",
    "最近怎么样",
    "最近的餐厅",
    "最近一次",
    "附近三天",
    "晚上周报",
    "喜欢夏天吗",
    "春天百货",
]


@pytest.mark.parametrize(("query", "meant"), ENGLISH)
def test_an_english_query_speaks_of(query: str, meant: str) -> None:
    assert read(query) == meant


@pytest.mark.parametrize(("query", "meant"), CHINESE)
def test_a_chinese_query_speaks_of(query: str, meant: str) -> None:
    assert read(query) == meant


@pytest.mark.parametrize("query", NO_TIMES)
def test_a_query_speaks_of_no_time(query: str) -> None:
    assert read(query) == ""


@pytest.mark.parametrize(
    ("query", "now", "meant"),
    [
        ("yesterday", "2025-01-01", "2024-12-31..2025-01-01"),
        ("yesterday", "2024-03-01", "2024-02-29..2024-03-01"),
        ("last month", "2025-01-31", "2024-12-01..2025-01-01"),
        ("last month", "2024-03-31", "2024-02-01..2024-03-01"),
        ("one month ago", "2024-03-31", "2024-02-14..2024-03-16"),
        ("last week", "2025-01-01", "2024-12-23..2024-12-30"),
        ("last Monday", "2025-09-15", "2025-09-08..2025-09-09"),
        ("last Sunday", "2025-09-15", "2025-09-14..2025-09-15"),
        ("last quarter", "2025-02-10", "2024-10-01..2025-01-01"),
        ("last December", "2025-01-02", "2024-12-01..2025-01-01"),
        ("last May", "2025-05-20", "2024-05-01..2024-06-01"),
        ("last winter", "2025-01-20", "2023-12-01..2024-03-01"),
        ("since March", "2025-02-01", "2024-03-01..now"),
        ("since 29 February", "2025-09-17", "2024-02-29..now"),
        ("a year ago", "2024-02-29", "2022-08-30..2023-08-30"),
        ("上个月", "2025-01-31", "2024-12-01..2025-01-01"),
        ("上周五", "2025-01-01", "2024-12-27..2024-12-28"),
        ("去年", "2025-01-01", "2024-01-01..2025-01-01"),
        ("前天", "2024-03-01", "2024-02-28..2024-02-29"),
        ("三月以来", "2025-02-01", "2024-03-01..now"),
        ("February 29, 2024", "2025-09-17", "2024-02-29..2024-03-01"),
        ("2024年2月29日", "2025-09-17", "2024-02-29..2024-03-01"),
        ("2023-02-29", "2025-09-17", ""),
        ("2100-02-29", "2025-09-17", ""),
        ("February 2024", "2025-09-17", "2024-02-01..2024-03-01"),
        ("December 31, 2024", "2025-09-17", "2024-12-31..2025-01-01"),
        ("last year", "0001-01-01", ""),
        ("yesterday", "0001-01-01", ""),
        ("next year", "9999-12-31", ""),
        ("tomorrow", "9999-12-31", ""),
        ("in the past year", "0001-06-01", "..now"),
    ],
)
def test_boundaries_of_weeks_months_years_and_of_the_calendar(query: str, now: str, meant: str) -> None:
    assert read(query, day(now) + timedelta(hours=12)) == meant


def test_now_in_another_zone_or_without_one_is_read_as_utc() -> None:
    shanghai = datetime(2025, 9, 18, 7, 0, tzinfo=timezone(timedelta(hours=8)))  # 23:00 UTC of the 17th
    assert read("yesterday", shanghai) == "2025-09-16..2025-09-17"
    assert read("yesterday", datetime(2025, 9, 17, 23)) == "2025-09-16..2025-09-17"


def test_the_hint_tells_the_words_that_it_was_read_from() -> None:
    hints = time_hints("What did I do　since last  Friday, or ２０２３年５月８日?", NOW, RULES)
    assert [hint.text for hint in hints] == ["since last Friday", "2023年5月8日"]


def the_hint(query: str) -> TimeHint:
    (hint,) = time_hints(query, NOW, RULES)
    return hint


def test_what_lies_inside_is_close_and_the_end_is_outside() -> None:
    hint = the_hint("on 8 May 2023")
    assert hint.closeness(day("2023-05-08")) == 1.0
    assert hint.closeness(day("2023-05-08T23:59:59.999999")) == 1.0
    assert hint.closeness(day("2023-05-09T00:00:01")) < 1.0


def test_after_the_end_it_halves_per_told_after_half_days_and_before_the_start_much_faster() -> None:
    hint = the_hint("on 8 May 2023")
    assert hint.closeness(day("2023-05-09") + timedelta(days=NUMBERS.told_after_half_days)) == pytest.approx(0.5)
    assert hint.closeness(day("2023-05-08") - timedelta(days=NUMBERS.before_half_days)) == pytest.approx(0.5)
    assert hint.closeness(day("2023-05-11")) > 0.8
    assert hint.closeness(day("2023-05-05")) == 0.0
    assert hint.closeness(day("2024-05-08")) == 0.0


def test_a_time_without_a_year_is_close_in_every_year() -> None:
    hint = the_hint("in May")
    assert [hint.closeness(day(f"{year:04}-05-31")) for year in (1, 1999, 2023, 2026, 9999)] == [1.0] * 5
    assert hint.closeness(day("2023-06-03")) > 0.7
    assert hint.closeness(day("2023-12-01")) == 0.0


def test_a_stretch_over_new_year_is_close_on_both_sides() -> None:
    hint = the_hint("in the winter")
    assert [hint.closeness(day(text)) for text in ("2023-12-01", "2024-01-01", "2024-02-29", "0001-12-31")] == [1.0] * 4
    assert hint.closeness(day("2024-07-01")) == 0.0


def test_a_leap_day_is_close_only_where_there_is_one() -> None:
    hint = the_hint("on 29 February")
    assert hint.closeness(day("2024-02-29")) == 1.0
    assert hint.closeness(day("2023-02-28")) == 0.0


def test_a_weekday_does_not_make_the_whole_week_close() -> None:
    hint = the_hint("周一")
    by_day = [hint.closeness(day(f"2025-09-{n}")) for n in range(15, 22)]  # Monday to Sunday
    assert by_day[0] == 1.0
    assert by_day[2] == pytest.approx(0.5)
    assert by_day[4] < 0.2
    assert by_day[:6] == sorted(by_day[:6], reverse=True)


def test_a_day_of_the_month_comes_back_where_the_month_has_it() -> None:
    hint = the_hint("on the 31st")
    assert hint.closeness(day("2025-08-31")) == 1.0
    assert hint.closeness(day("2025-06-15")) < 0.3


def test_an_open_side_has_no_end() -> None:
    assert the_hint("before June 2023").closeness(day("0001-01-01")) == 1.0
    assert the_hint("after 2023-05-08").closeness(day("9999-12-31")) == 1.0
    assert the_hint("since March 2023").closeness(day("2023-02-01")) == 0.0


def test_a_memory_in_any_zone_counts_at_its_moment() -> None:
    hint = the_hint("on 8 May 2023")
    eastern = timezone(timedelta(hours=14))
    assert hint.closeness(datetime(2023, 5, 9, 13, tzinfo=eastern)) == 1.0  # 23:00 UTC of the 8th
    assert hint.closeness(datetime(2023, 5, 8)) == 1.0


PIECES = [
    *(word for query, _ in ENGLISH + CHINESE for word in query.split()),
    *NO_TIMES, "since", "before", "between", "and", "from", "to", "的", "到", "以来", "之前", "9999", "0", "999999 years ago",
    "\u0130", "\u200b", "\ud800", "９９９９年", "〇", "十十", "百百百", "31", "第", "\n", "-", "/", ".",
]  # fmt: skip
EXTREMES = [
    datetime.min, datetime.max, EARLIEST, LATEST,
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
]  # fmt: skip
MOMENTS = st.one_of(st.sampled_from(EXTREMES), st.datetimes(), st.datetimes(timezones=st.just(UTC)))
QUERIES = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
    st.lists(st.sampled_from(PIECES)).map("".join),
    st.text(),
)


@settings(max_examples=400, deadline=None)
@given(QUERIES, MOMENTS, st.lists(MOMENTS, max_size=3))
@example("on 29 February since last week 三月前", EARLIEST, EXTREMES)
@example("on Monday, in the winter, on the 31st, next week 下周一", LATEST, EXTREMES)
def test_any_query_at_any_moment_reads_without_an_error_and_closeness_stays_in_its_bounds(
    query: str, now: datetime, moments: list[datetime]
) -> None:
    hints = time_hints(query, now, RULES)
    assert len(hints) <= NUMBERS.hints_max
    for hint in hints:
        assert all(0.0 <= hint.closeness(at) <= 1.0 for at in [*moments, *EXTREMES])


@pytest.mark.parametrize("pattern", [query for query, _ in ENGLISH + CHINESE][::6])
def test_every_stretch_is_close_to_its_own_start(pattern: str) -> None:
    for hint in time_hints(pattern, NOW, RULES):
        spans = list(hint.when.near(NOW)) if isinstance(hint.when, Recurring) else [hint.when]
        assert {hint.closeness(span.start) for span in spans} == {1.0}


def test_only_the_beginning_of_a_huge_query_is_read() -> None:
    head = "in May 2023 "
    assert read(head + "x" * 100_000) == "2023-05-01..2023-06-01"
    assert read("x" * 100_000 + " in May 2023") == ""


@pytest.mark.parametrize(
    "piece", ["2023-", "last ", "the early mid late ", "5月", "周一", "May 8, 2023 ", "a couple of ", "一", "1"]
)
def test_a_huge_query_costs_no_more_than_its_beginning(piece: str) -> None:
    query = (piece * 100_000)[:100_000]
    began = time.process_time()
    time_hints(query, NOW, RULES)
    assert time.process_time() - began < 0.25  # some ms on a quiet machine; reading all of it would take seconds


def test_hints_are_bounded() -> None:
    assert len(time_hints("2023-05-08 and " * 100, NOW, RULES)) == NUMBERS.hints_max


def test_a_wrong_word_file_is_refused_by_name(tmp_path: Path) -> None:
    text = (CONFIG / "time_expressions.toml").read_text(encoding="utf-8")
    for good, bad in (
        ('["may"], ', ""),
        ('summer = "summer"', 'summer = "sumer"'),
        ("mid = [11, 20]\n", ""),
        ("[english.days]", "[english.dayz]"),
        ('name_goes_on = "', 'name_goes_on = "('),
    ):
        assert good in text
        path = tmp_path / "time_expressions.toml"
        path.write_text(text.replace(good, bad, 1), encoding="utf-8")
        with pytest.raises(SetupRefused, match=r"time_expressions\.toml"):
            load_time_rules(path, NUMBERS)


def test_a_number_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="half-lives"):
        TimeNumbers.model_validate({**NUMBERS.model_dump(), "told_after_half_days": 0.0})
