"""How do figures speak of a time (2023-05-08, 05/2023)?  Pure.  Every language writes them; words are not read here."""

import re
from datetime import datetime

from memory_service.recall.time_patterns import AFTER, BEFORE, NUMBER, rules_of
from memory_service.recall.time_rules import Need, Reading, Rule, TimeWords, reading
from memory_service.recall.time_spans import day_span, month_span


def number_rules(words: TimeWords) -> list[Rule]:
    """Dates in figures, which every language writes."""

    def year_first(found: re.Match[str], now: datetime) -> Reading | None:
        year, month, day = int(found[1]), int(found[3]), int(found[4])
        return reading(day_span(year, month, day)) if words.is_year(year) else None

    def year_last(found: re.Match[str], now: datetime) -> Reading | None:
        first, mark, second, year = int(found[1]), found[2], int(found[3]), int(found[4])
        if not words.is_year(year):
            return None
        swapped = None if mark == "." or first == second else day_span(year, first, second)  # 8.5.2023 is day first
        return reading(day_span(year, second, first), swapped)

    def month(found: re.Match[str], now: datetime) -> Reading | None:
        year, number = (found["y1"], found["m1"]) if found["y1"] else (found["y2"], found["m2"])
        need: Need = "nothing" if len(number) == 2 else "year"  # 5/2023 may be a fraction
        return reading(month_span(int(year), int(number)), need=need) if words.is_year(int(year)) else None

    time = r"(?:[Tt ]\d{1,2}:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d\d:?\d\d)?)?"
    return rules_of(
        [NUMBER],
        (rf"{BEFORE}(\d{{4}})([-/])(\d{{1,2}})\2(\d{{1,2}}){time}{AFTER}", year_first),
        (rf"{BEFORE}(\d{{4}})(\.)(\d\d)\.(\d\d){AFTER}", year_first),
        (rf"{BEFORE}(\d{{1,2}})([/.-])(\d{{1,2}})\2(\d{{4}}){AFTER}", year_last),
        (rf"{BEFORE}(?:(?P<y1>\d{{4}})[-/](?P<m1>\d{{1,2}})|(?P<m2>\d{{1,2}})/(?P<y2>\d{{4}})){AFTER}", month),
    )
