"""Is every text found by the words that a person would type, and can Postgres store its terms?"""

import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_service.errors import SetupRefused
from memory_service.terms import (
    LEXEME_BYTES_MAX,
    TSVECTOR_BYTES_HARD_MAX,
    Vocabulary,
    keyword_terms,
    load_vocabulary,
    query_terms,
    spread_terms,
    tsquery_literal,
    tsvector_literal,
)

CONFIG = Path(__file__).parents[2] / "config"
SHIPPED = load_vocabulary(CONFIG / "terms.toml", CONFIG / "stop_words.toml")
EMPTY = Vocabulary.of()
CONTENT_BYTES = 256 * 1024


def _finds(query: str, document: str, vocabulary: Vocabulary = SHIPPED) -> bool:
    """What the index does: any term equal, or for a lone character any term that begins with it."""
    indexed = set(keyword_terms(document, vocabulary))
    found = tsquery_literal(query_terms(query, vocabulary), "").split(" | ")
    prefixes = [term[1:-3] for term in found if term.endswith("':*")]
    return bool(indexed & set(query_terms(query, vocabulary))) or any(
        t.startswith(p) for p in prefixes for t in indexed
    )


@pytest.mark.parametrize(
    ("query", "document"),
    [
        ("connection", "Connections were reset"),
        ("cafe", "das Café"),
        ("REDIS", "使用Redis缓存"),
        ("缓存", "使用Redis缓存"),
        ("存", "使用Redis缓存"),
        ("猫", "我家的猫咪"),
        ("猫", "家里有猫"),
        ("ベース", "データベース"),
        ("ﾃﾞｰﾀ", "データベース"),
        ("한국", "한국어로 답해"),
        ("ERR_CONN_RESET", "failed: ERR_CONN_RESET."),
        ("conn reset", "ERR_CONN_RESET"),
        ("E11000", "error e11000 occurred"),
        ("11000", "E11000 duplicate key"),
        ("404", "HTTP404"),
        ("user id", "getUserId()"),
        ("getuserid", "call getUserId now"),
        ("app.log", "/var/log/app.log"),
        ("1.2.3", "upgraded to v1.2.3"),
        ("v1.2.3", "version 1.2.3"),
        ("192.168.1.10", "host 192.168.1.10:5432 is up"),
        ("Baz", "foo.bar.Baz"),
        ("C++", "written in C++."),
        ("C#", "C# or F#"),
        ("550e8400e29b41d4a716446655440000", "id 550E8400-E29B-41D4-A716-446655440000"),
        ("bob@example.com", "mail Bob@Example.com"),
        ("example.com", "https://www.x.org and https://example.com/a?b=1"),
        ("1234567", "1,234,567 rows"),
        ("kubernetes", "deployed on k8s"),
        ("k8s", "a Kubernetes cluster"),
        ("kubernetes", "node k8s-prod-1"),
        ("postgres", "PostgreSQL 16"),
        ("to be or not to be", "To be, or not to be"),
        ("🚀", "shipped 🚀"),
        ("नमस्ते", "नमस्ते दुनिया"),
        ("don’t", "don't panic"),
    ],
)
def test_a_document_is_found_by(query: str, document: str) -> None:
    assert _finds(query, document)


@pytest.mark.parametrize(("query", "document"), [("C++", "C# code"), ("E11001", "E11000"), ("据数", "数据")])
def test_a_document_is_not_found_by(query: str, document: str) -> None:
    assert not _finds(query, document)


def test_stop_words_are_dropped_from_a_query_but_never_all_of_them() -> None:
    assert query_terms("what is the port of Redis", SHIPPED) == ["port", "redi"]
    assert query_terms("我们的数据库是什么", SHIPPED) == ["数据", "据库", "库是", "是什"]
    assert query_terms("what is it", SHIPPED) == ["what", "is", "it"]
    assert query_terms("的", SHIPPED) == ["的"]


def test_a_document_keeps_repeats_in_order_and_a_query_does_not() -> None:
    assert keyword_terms("redis cache redis", EMPTY) == ["redi", "cach", "redi"]
    assert query_terms("redis cache redis", EMPTY) == ["redi", "cach"]
    assert query_terms("one two three", EMPTY, terms_max=2) == ["one", "two"]


def test_of_a_long_query_terms_from_all_of_it_are_kept_and_those_with_figures_first() -> None:
    terms = [*(f"early{letter}" for letter in "abcdefgh"), "e4711", *(f"late{letter}" for letter in "abcdefgh")]
    kept = spread_terms(terms, 5)
    assert kept == ["earlya", "earlye", "e4711", "latea", "latee"]
    assert spread_terms(terms, len(terms)) == terms
    assert spread_terms([], 5) == []
    assert spread_terms([f"n{n}" for n in range(100)], 4) == ["n0", "n1", "n2", "n51"]


@pytest.mark.parametrize("most", range(1, 40))
def test_so_many_terms_are_kept_as_asked_for_in_the_order_of_the_query(most: int) -> None:
    terms = [f"w{n}" if n % 3 else chr(0x4E00 + n) * 2 for n in range(37)]
    kept = spread_terms(terms, most)
    assert len(kept) == min(most, len(terms)) == len(set(kept))
    assert kept == [term for term in terms if term in kept]


def test_every_second_bigram_of_a_long_run_still_covers_every_character() -> None:
    run = "".join(chr(0x4E00 + n) for n in range(47))
    assert set("".join(spread_terms(query_terms(run, EMPTY), 24))) >= set(run[:46])


def test_blank_text_has_no_terms() -> None:
    assert keyword_terms(" \u200b\n", SHIPPED) == []
    assert query_terms("...", SHIPPED) == []


def test_a_long_term_is_bounded_and_still_meets_its_equal_only() -> None:
    token = "x1" * 500
    (term,) = query_terms(token, EMPTY)
    assert len(term.encode()) <= LEXEME_BYTES_MAX
    assert term in keyword_terms(f"token {token.upper()}", EMPTY)
    assert term not in keyword_terms(f"token {token}y", EMPTY)


def test_normalising_leaves_identifiers_paths_urls_and_other_words_alone() -> None:
    kept = (
        "k8s-prod, /etc/k8s/x, https://k8s.io/repo,config k8s.io my_config config.py K8sOperator 10:k8s:x configuration"
    )
    assert SHIPPED.normalise(kept) == kept
    assert SHIPPED.normalise("K8S, (repo) 用k8s部署；资料库。") == "kubernetes, (repository) 用kubernetes部署；数据库。"
    assert SHIPPED.normalise("an env\n var") == "an environment variable"


def test_a_variant_in_capitals_matches_only_as_written() -> None:
    assert SHIPPED.normalise("RAG, not rag") == "retrieval augmented generation, not rag"


def test_an_empty_file_switches_normalisation_off(tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text("", encoding="utf-8")
    vocabulary = load_vocabulary(tmp_path / "terms.toml")
    assert vocabulary.normalise("k8s repo 资料库") == "k8s repo 资料库"
    assert keyword_terms("k8s", vocabulary) == ["k8s"]


WORDS = st.sampled_from(
    [
        "k8s",
        "repo",
        "env",
        "var",
        "vars",
        "资料库",
        "config",
        "a",
        " ",
        "-",
        ".",
        "/",
        "://",
        "LLM",
        "，",
        "\n",
        "mongo",
    ]
)


@given(st.lists(WORDS, max_size=14).map("".join))
@settings(max_examples=300, deadline=None)
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert SHIPPED.normalise(SHIPPED.normalise(text)) == SHIPPED.normalise(text)


@given(st.text(max_size=80))
@settings(max_examples=300, deadline=None)
def test_every_text_is_found_by_its_own_words(text: str) -> None:
    assert not query_terms(text, SHIPPED) or _finds(text, text)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[abbreviations]\nk8s = 3", "abbreviations.k8s"),
        ("[synonyms]\npostgresql = 'postgres'", "synonyms.postgresql"),
        ("[synonyms]\na = ['b']\nc = ['b']", "already stands for"),
        ("[abbreviations]\na = 'b c'\nb = 'd'", "leads on to"),
        ("[other]\n", "other"),
        ("[synonyms\n", "line 1"),
        (f"[abbreviations]\n{'a' * 65} = 'b'", "64 characters"),
    ],
)
def test_a_bad_vocabulary_file_is_refused_by_name(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "terms.toml").write_text(content, encoding="utf-8")
    with pytest.raises(SetupRefused) as refused:
        load_vocabulary(tmp_path / "terms.toml")
    assert named in str(refused.value)


def test_a_missing_vocabulary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupRefused, match="can't be read"):
        load_vocabulary(tmp_path / "terms.toml")


def test_a_tsvector_doubles_quotes_and_backslashes_and_numbers_positions() -> None:
    assert tsvector_literal(["o'brien", "a", "o'brien"], "p\\:", 1000) == "'p\\\\:o''brien':1,3 'p\\\\:a':2"


def test_a_tsvector_keeps_postgres_bounds_on_positions() -> None:
    literal = tsvector_literal(["a"] * 300 + [f"w{i}" for i in range(16_300)], "", 1_000_000)
    positions = [int(at) for at in re.findall(r"(?<=[:,])\d+", literal)]
    assert max(positions) == 16_383
    assert literal.split(" ")[0].count(",") == 254


def test_a_query_is_any_of_its_terms_and_a_lone_character_a_prefix() -> None:
    assert tsquery_literal(["redi", "缓存", "猫", "o'b"], "p:") == "'p:redi' | 'p:缓存' | 'p:猫':* | 'p:o''b'"
    assert tsquery_literal([], "p:") == ""


def _stored_bytes(literal: str) -> int:
    """Bytes as Postgres counts them; positions are an even start, a 2-byte count and 2 bytes each."""
    total = 0
    for quoted, positions in re.findall(r"'((?:[^']|'')*)'(?::([\d,]+))?", literal):
        size = len(quoted.replace("''", "'").encode())
        total += size + (size % 2 + 2 + 2 * len(positions.split(",")) if positions else 0)
    return total


def _hostile_texts() -> dict[str, str]:
    dice = random.Random(5)
    return {
        "random han": "".join(chr(dice.randint(0x4E00, 0x9FFF)) for _ in range(CONTENT_BYTES // 3)),
        "random words": " ".join(f"{dice.getrandbits(32):x}" for _ in range(CONTENT_BYTES // 9)),
        "random compounds": " ".join(
            f"{dice.getrandbits(16):x}_{dice.getrandbits(16):x}" for _ in range(CONTENT_BYTES // 10)
        ),
        "astral han": "".join(chr(dice.randint(0x20000, 0x2A000)) for _ in range(CONTENT_BYTES // 4)),
        "expanding": "\ufdfa" * (CONTENT_BYTES // 3),
        **{
            f"{piece!r} repeated": piece * (CONTENT_BYTES // len(piece))
            for piece in ("a", "A", "a-", "-", "a'", "a.b/", "1,", "1,111", "aB", "a+", "://", "k8s ", "env ")
        },
    }


@pytest.mark.parametrize("name", _hostile_texts())
def test_any_256_kib_text_fits_a_tsvector_in_bounded_time(name: str) -> None:
    text = _hostile_texts()[name]
    started = time.process_time()
    terms = keyword_terms(text, SHIPPED)
    literal = tsvector_literal(terms, "0123456789abcdef:", 2_000_000)
    assert time.process_time() - started < 5  # measured 0.02 to 1.0 s; anything quadratic takes minutes
    assert _stored_bytes(literal) <= TSVECTOR_BYTES_HARD_MAX
    assert literal == tsvector_literal(terms, "0123456789abcdef:", 2_000_000)


def test_a_too_big_tsvector_loses_positions_then_compounds_then_terms_at_even_distances() -> None:
    terms = ["a_b", "a", "b"] * 3
    assert tsvector_literal(terms, "", 100) == "'a_b':1,4,7 'a':2,5,8 'b':3,6,9"
    assert tsvector_literal(terms, "", 5) == "'a_b' 'a' 'b'"
    assert tsvector_literal(terms, "", 4) == "'a' 'b'"
    thinned = tsvector_literal([f"w{i:03}" for i in range(100)], "", 200).split(" ")
    assert len(thinned) == 50
    assert thinned[-1] == "'w099'"
