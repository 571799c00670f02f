"""What does a text state?  Sentences as tokens with what they say of themselves.  Pure.

Questions, guesses, conditions and stories state nothing.  Comparing statements is `conflicts` work.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from memory_service.write.conflict_rules import ConflictRules, Role, token_of
from memory_service.write.duplicates import normalise_text, with_digits
from memory_service.write.sentences import QUOTATION

_SENTENCE_END = re.compile(r"[。！!；;\n]+|(?<=[?？])|\.(?=\s|$)")
_CLAUSE_END = re.compile(r"[，,]\s*")
_QUESTION = re.compile(r"[?？]\s*$")
_DATE = r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{4}\s?年(?:\s?\d{1,2}\s?月(?:\s?\d{1,2}\s?[日号])?)?|\d{1,2}\s?月\s?\d{1,2}\s?[日号]"
_ADDRESS = (
    r"[a-z][a-z0-9+.-]{1,20}://[!-~]+|[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}"
    r"|(?:~|\.{0,2})/[\w.-]+(?:/[\w.-]+)*|(?:\d{1,3}\.){3}\d{1,3}"
)
_NUMBER = r"v?\d+(?:[.,:]\d+)*(?:(?=(?:[kmgt]b|[km]?g|[km]?m|m?s|min|h|px)(?![a-z0-9_]))|(?![a-z0-9_]))"
_WORD = r"[a-z0-9_]+(?:[-_./'][a-z0-9_]+)*"
_SCRIPT = r"[^\W\d_a-z]"
_TYPED = re.compile(rf"(?P<date>{_DATE})|(?P<address>{_ADDRESS})|(?P<number>(?<![a-z0-9_.-]){_NUMBER})", re.ASCII)
_PLAIN = re.compile(rf"(?P<word>{_WORD})|(?P<run>{_SCRIPT}+)")
_POSSESSIVE = re.compile(r"['’]s\b")


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is compared, `shown` is quoted; `weak` ones only keep their neighbours apart.

    It stands at `start` to `end` of its sentence.
    """

    text: str
    shown: str
    kind: str = "word"
    weak: bool = False
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence as tokens, whether it is negated, and what else it says of itself.  `whole` is False for a clause of it.

    `persons`: which of the rules' persons it speaks of.
    """

    tokens: tuple[Token, ...]
    negated: bool
    marks: frozenset[Role]
    whole: bool = True
    persons: frozenset[int] = frozenset()

    @property
    def strong(self) -> tuple[Token, ...]:
        return strong(self.tokens)


def strong(tokens: Sequence[Token]) -> tuple[Token, ...]:
    return tuple(token for token in tokens if not token.weak)


def statements(text: str, rules: ConflictRules) -> list[Statement]:
    """What a text states, clauses of its sentences too; nothing for a text that is a story."""
    if len(text) > rules.limits.text_chars_max:
        return []
    folded = normalise_text(QUOTATION.sub(lambda quoted: quoted.group().strip("\"'`“”‘’「」『』"), text))
    folded = with_digits(folded, rules.contrasts)
    sentences = [s for s in _SENTENCE_END.split(folded) if s and s.strip()]
    if len(sentences) > rules.limits.sentences_max:
        return []
    found = [s for sentence in sentences if not _QUESTION.search(sentence) for s in _read(sentence, rules)]
    return [s for s in found if "doubt" not in s.marks and 0 < len(s.strong) <= rules.limits.frame_tokens_max]


def _read(sentence: str, rules: ConflictRules) -> list[Statement]:
    """The whole sentence and its clauses ("I moved, I live in Hamburg now"); none of a sentence with a condition."""
    whole = _statement(sentence, rules)
    clauses = _CLAUSE_END.split(sentence)
    if len(clauses) == 1 or "doubt" in whole.marks:
        return [whole]
    return [whole, *(_statement(clause, rules, whole=False) for clause in clauses[: rules.limits.sentences_max])]


def _statement(sentence: str, rules: ConflictRules, *, whole: bool = True) -> Statement:
    tokens: list[Token] = []
    marks: set[Role] = set()
    negations = 0
    rest = _POSSESSIVE.sub(" ", sentence)
    at = 0
    while at < len(rest):
        typed = _TYPED.match(rest, at)
        phrase = None if typed else rules.phrases.match(rest, at)
        if typed and typed.group():
            kind = typed.lastgroup or "word"
            shown = typed.group()
            text = re.sub(r"\s", "", shown).removeprefix("v") if kind == "number" else shown
            tokens.append(Token(text, shown, kind, start=at, end=typed.end()))
            at = typed.end()
        elif phrase and not _starts_a_word(rest, phrase, tokens, rules):
            word = rules.words[" ".join(phrase.group().split())]
            marks |= word.roles
            negations += len(word.roles & {"negation", "flip", "ended"})
            if word.token:
                weak = "weak" in word.roles
                tokens.append(Token(word.token, phrase.group(), weak=weak, start=at, end=phrase.end()))
            at = phrase.end()
        else:
            at = _plain(rest, at, tokens, rules)
    return Statement(tuple(tokens), negations % 2 == 1, frozenset(marks), whole, _persons(sentence, rules))


def _persons(sentence: str, rules: ConflictRules) -> frozenset[int]:
    named = rules.not_persons.sub(" ", sentence)
    return frozenset(number for number, person in enumerate(rules.persons) if person.search(named))


def _plain(rest: str, at: int, tokens: list[Token], rules: ConflictRules) -> int:
    """A word that no rule names; a run of Chinese ends where a phrase begins."""
    plain = _PLAIN.match(rest, at)
    if plain is None:
        return at + 1
    if plain.lastgroup == "word":
        tokens.append(Token(token_of(plain.group()), plain.group(), start=at, end=plain.end()))
        return plain.end()
    end = at + 1
    while end < plain.end() and not rules.phrases.match(rest, end):
        end += 1
    tokens.append(Token(rest[at:end], rest[at:end], start=at, end=end))
    return end


def _starts_a_word(rest: str, phrase: re.Match[str], tokens: Sequence[Token], rules: ConflictRules) -> bool:
    """Is this particle the first character of a value: 上 of 上海 behind 在, with more of a word after it?"""
    if phrase.group() not in rules.word_starts or not tokens:
        return False
    before, after = tokens[-1], _PLAIN.match(rest, phrase.end())
    opened = phrase.start() - before.end <= 1 and before.shown in rules.value_after
    goes_on = after is not None and after.lastgroup == "run" and rules.phrases.match(rest, phrase.end()) is None
    return opened and goes_on
