"""How does Chinese speak of a time?  Pure.

Makes the rules that read one expression each (去年五月, 三周前); it does not combine them (以来, 从…到).  A text comes with
single spaces and simplified characters.  A duration (一周, 三个月) is no time.
"""

import re
from datetime import datetime

from memory_service.recall.time_patterns import Read, vague_span
from memory_service.recall.time_rules import Reading, Rule, TimeWords, any_of, reading
from memory_service.recall.time_spans import (
    Recurring,
    ago_span,
    day_start,
    later,
    month_span,
    rolling_span,
    shifted,
    span_of,
    unit_span,
    weekday_span,
    year_span,
)

DIGITS = {"〇": 0, "零": 0, "一": 1, "二": 2, "两": 2, **{c: n for n, c in enumerate("三四五六七八九", 3)}}
NUMERAL = "〇零一二两三四五六七八九十百"
NUMBER = rf"(?:\d{{1,4}}|[{NUMERAL}]{{1,5}})"
WEEK = r"(?:周|星期|礼拜)"
WEEKDAYS = {**{c: n for n, c in enumerate("一二三四五六")}, **{str(n + 1): n for n in range(6)}, "日": 6, "天": 6}
SHIFTS = {"上上": -2, "上": -1, "前一": -1, "本": 0, "这": 0, "当": 0, "下": 1, "下一": 1, "下下": 2}
SHIFT = rf"(?<![早晚以马路网线楼地])(?P<shift>{any_of(SHIFTS)})一?个?"  # 晚上周报
NIGHTS = ("昨晚", "昨夜")
MONTH_PARTS = {"初": "start", "上旬": "early", "中": "mid", "中旬": "mid", "底": "end", "末": "end", "下旬": "late"}
YEAR_PARTS = {"初": "start", "中": "mid", "底": "end", "末": "end", "上半年": "first_half", "下半年": "second_half"}
UNSAID = rf"[\d第{NUMERAL}几数个]"  # before a number: it is the rest of another


def number_of(text: str) -> int:
    """23, 二十三, 二〇二三 or 两百; no check of good form."""
    if text.isdecimal():
        return int(text)
    if "十" not in text and "百" not in text:
        return int("".join(str(DIGITS[c]) for c in text))
    total, digit = 0, None
    for character in text:
        if character in "十百":
            total += (1 if digit is None else digit) * (10 if character == "十" else 100)
            digit = None
        else:
            digit = DIGITS[character]
    return total + (digit or 0)


def chinese_rules(words: TimeWords, spread: float) -> list[Rule]:
    """All rules of Chinese, the more specific first.  `spread`: how inexact 三周前 is, in units."""
    return _Chinese(words, spread).rules()


class _Chinese:
    def __init__(self, words: TimeWords, spread: float) -> None:
        self._words = words
        self._chinese = words.chinese
        self._spread = spread

    def rules(self) -> list[Rule]:
        chinese = self._chinese
        middle = f"中(?![{chinese.not_after_middle}旬])"
        weekday = (
            rf"(?P<weekday>[1-6](?!\d|个)|[一二三四五六](?![{chinese.not_after_weekday}]|天(?!气))"
            r"|日(?![常程志期报])|天(?![气空]))"
        )
        month_part = rf"(?P<part>初|上旬|中旬|下旬|底|末|{middle})"
        at = rf"(?: ?的?(?:{chinese.day_parts}))?"
        four = r"\d{4}|[一二][〇零一二三四五六七八九]{3}"
        said = rf"(?<![以之然今])(?P<said>{any_of(chinese.years)})"  # 以前年轻的时候
        told = rf"(?:(?P<year>{four}|\d{{2}}) ?年|{said})"
        year = rf"(?:(?P<year>{four}) ?年|{said})"
        month = r"(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]) ?月(?!花|饼|天(?!气))份?"  # 五月天 is a band
        day = r"(?P<day>[1-3]?\d|0\d|三十一?|二?十[一二三四五六七八九]?|[一二三四五六七八九])"
        count = rf"(?P<count>{NUMBER}|{any_of(chinese.counts)})"
        unit = rf"(?P<unit>{any_of(chinese.units)})"
        nth = "第?(?P<quarter>[一二三四1-4])季度"
        part = rf"(?P<part>上半年|下半年|年?(?:初|底|末)|年?{middle})"
        name = rf"(?P<name>{any_of(chinese.ranges)})"
        own = rf"(?<!{UNSAID})"
        exact = rf"(?:{month_part}| ?{day} ?[日号]{at}| ?(?P<bare>[1-3]?\d)(?=$| ?[?？。，,!！]))"
        after_day = rf"那天|当天|{chinese.day_parts}|之前|以前|之后|以后|开始"
        near = r"(?:(?P<this>这)|(?<![附靠临接])最近|(?<![附靠临接最])近|过去)"
        return [
            _rule("月", rf"(?<!\d)(?:{told} ?的? ?)?{own}{month}{exact}?(?!一次)", self._month),
            _rule("年", rf"{own}{year}(?: ?的? ?(?:{part}|{nth}|[Qq](?P<q>[1-4])(?!\w)|{name}))?", self._year),
            _rule(
                "年季",
                r"(?<![每\d])(?:(?P<part>上半年|下半年|年[初底末])|第(?P<quarter>[一二三四1-4])季度)",
                self._part,
            ),
            _rule("月", rf"{SHIFT}月(?![球亮饼光])份?(?:{month_part}| ?的? ?{day} ?[日号]{at})?", self._shifted_month),
            _rule("季", rf"{SHIFT}季度", self._shifted_quarter),
            _rule("周星礼", rf"{SHIFT}{WEEK}(?:{weekday}|(?P<end>末))?{at}", self._week),
            _rule(
                "前",
                rf"{own}{count}(?P<more>多)?个?(?P<over>多)?(?P<half>半)?{unit}(?P<rest>多|半)?"
                r"(?:之前|以前|前(?![端台后面往进景提]))",
                self._ago,
            ),
            _rule("天日晚早晨夜", rf"(?<![以之然今最])(?P<word>{any_of([*chinese.days, *NIGHTS])}){at}", self._day),
            _rule("近过这", rf"{near}的? ?{count}多?个?(?P<half>半)?{unit}(?:之内|以内|以来|内|里|来)?", self._rolling),
            _rule("周星礼", rf"(?<![每一二两三四五六七八九十几\d]){WEEK}(?:{weekday}|(?P<end>末)){at}", self._weekday),
            _rule("号日", rf"{own}{day}[号日](?={after_day})", self._day_of_month),
            _rule(
                "".join(chinese.ranges),
                rf"(?:(?<=在){name}|(?P<name_before>{any_of(chinese.ranges)})(?=的时候|里|时|期间|那天|前后|以来|之前|之后))",
                self._named,
            ),
            _rule("".join(chinese.vague), rf"(?P<vague>{any_of(chinese.vague)})(?!的(?!时候)|一次)", self._vague),
        ]

    def _told(self, found: re.Match[str], now: datetime) -> int | None:
        """None when no year is said; 0, which has no span, when the number is none."""
        if found["said"]:
            return now.year + self._chinese.years[found["said"]]
        if found["year"] is None:
            return None
        year = number_of(found["year"])
        year += 2000 if len(found["year"]) == 2 else 0
        return year if self._words.is_year(year) else 0

    def _month(self, found: re.Match[str], now: datetime) -> Reading | None:
        month, year = number_of(found["month"]), self._told(found, now)
        first, last = self._days(found["part"], found["day"] or found["bare"])
        if year is not None:
            return reading(month_span(year, month, first, last))
        if month_span(2000, month, first, last) is None:  # 31 June; 2000 has a 29 February
            return None
        return reading(Recurring("year", (month, first), (month, last)))

    def _days(self, part: str | None, day: str | None) -> tuple[int, int]:
        if day:
            return number_of(day), number_of(day)
        return self._words.month_parts[MONTH_PARTS[part]] if part else (1, 31)

    def _months(self, found: re.Match[str]) -> tuple[int, int]:
        """First and last month of the part of a year."""
        quarter = found["quarter"] or found.groupdict().get("q")
        if quarter:
            number = number_of(quarter)
            return number * 3 - 2, number * 3
        part = found["part"]
        return self._words.year_parts[YEAR_PARTS[part if part.endswith("半年") else part[-1]]] if part else (1, 12)

    def _year(self, found: re.Match[str], now: datetime) -> Reading | None:
        year = self._told(found, now) or 0
        if found["name"]:
            return reading(self._range(found["name"]).of_year(year))
        return reading(year_span(year, *self._months(found)))

    def _part(self, found: re.Match[str], now: datetime) -> Reading | None:
        first, last = self._months(found)
        return reading(Recurring("year", (first, 1), (last, 31)))

    def _range(self, name: str) -> Recurring:
        a, b, c, d = self._words.ranges[self._chinese.ranges[name]]
        return Recurring("year", (a, b), (c, d))

    def _named(self, found: re.Match[str], now: datetime) -> Reading | None:
        return reading(self._range(found["name"] or found["name_before"]))

    def _shifted_month(self, found: re.Match[str], now: datetime) -> Reading | None:
        month = shifted(day_start(now).replace(day=1), "month", SHIFTS[found["shift"]])
        return reading(month_span(month.year, month.month, *self._days(found["part"], found["day"])))

    def _shifted_quarter(self, found: re.Match[str], now: datetime) -> Reading | None:
        return reading(unit_span(now, "quarter", SHIFTS[found["shift"]]))

    def _week(self, found: re.Match[str], now: datetime) -> Reading | None:
        week = SHIFTS[found["shift"]]
        if found["end"]:
            return reading(weekday_span(now, week, 5, 6))
        if found["weekday"]:
            day = WEEKDAYS[found["weekday"]]
            return reading(weekday_span(now, week, day, day))
        return reading(weekday_span(now, week, 0, 6))

    def _weekday(self, found: re.Match[str], now: datetime) -> Reading | None:
        first, last = (5, 6) if found["end"] else 2 * (WEEKDAYS[found["weekday"]],)
        return reading(Recurring("week", (0, first), (0, last)))

    def _day(self, found: re.Match[str], now: datetime) -> Reading | None:
        if found["word"] in NIGHTS:
            return reading(span_of(later(day_start(now), -0.5), later(day_start(now), 0.5)))
        return reading(unit_span(now, "day", self._chinese.days[found["word"]]))

    def _day_of_month(self, found: re.Match[str], now: datetime) -> Reading | None:
        day = number_of(found["day"])
        return reading(Recurring("month", (0, day), (0, day))) if 1 <= day <= 31 else None

    def _count(self, text: str) -> tuple[float, float]:
        known = self._chinese.counts.get(text)
        return known if known else (float(number_of(text)), float(number_of(text)))

    def _ago(self, found: re.Match[str], now: datetime) -> Reading | None:
        if found["unit"] == "月" and "个" not in found.group():
            return None  # 三月前 is before March
        fewest, most = self._count(found["count"])
        half = 0.5 if found["half"] or found["rest"] == "半" else 0.0
        more = 1.0 if found["more"] or found["over"] or found["rest"] == "多" else 0.0
        return reading(
            ago_span(now, self._chinese.units[found["unit"]], fewest + half, most + half + more, self._spread)
        )

    def _rolling(self, found: re.Match[str], now: datetime) -> Reading | None:
        if (found["unit"] == "月" and "个" not in found.group()) or (found["this"] and found["count"] in ("一", "1")):
            return None
        count = self._count(found["count"])[1] + (0.5 if found["half"] else 0.0)
        return reading(rolling_span(now, self._chinese.units[found["unit"]], count))

    def _vague(self, found: re.Match[str], now: datetime) -> Reading | None:
        return reading(vague_span(now, *self._chinese.vague[found["vague"]]))


def _rule(cues: str, pattern: str, read: Read) -> Rule:
    return Rule(frozenset(cues), re.compile(pattern), read)
