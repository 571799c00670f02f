"""Is a mixed text Chinese?  One rule for goals, episodes, summaries, advice and labels."""

from __future__ import annotations

import pytest

from memory_service.experience.trajectory import Trajectory
from memory_service.recall.envelope import CHINESE, ENGLISH, labels_for
from memory_service.scripts import is_chinese, script_of

MIXED_CHINESE = [
    "用 deploy_service 部署 billing 到 production 环境",
    "把 orders-service 回滚到 v1.8.2，然后通知 SRE 团队",
    "修复 ERR_CONN_RESET：重启 nginx 后再看 /var/log/nginx/error.log 里还有没有报错",
    "帮我写个 Python 脚本",
    "部署",
]
MIXED_ENGLISH = [
    "Rename the table 张三 to customers in the staging database",
    "Deploy the billing service and reply to 王磊 when it is done",
    "The build fails with 错误 in the log of the runner",
    "deploy billing",
    "",
    "1234 → 5678",
]


@pytest.mark.parametrize("text", MIXED_CHINESE)
def test_a_chinese_text_full_of_names_in_latin_letters_is_chinese(text: str) -> None:
    assert is_chinese(text)
    assert Trajectory(text, "success").chinese
    assert labels_for(text) is CHINESE


@pytest.mark.parametrize("text", MIXED_ENGLISH)
def test_an_english_text_with_a_chinese_name_is_not(text: str) -> None:
    assert not is_chinese(text)
    assert not Trajectory(text, "success").chinese
    assert labels_for(text) is ENGLISH


@pytest.mark.parametrize("text", ["請求をやり直してください", "배포를 다시 시도하세요", "データを削除する"])
def test_japanese_and_korean_are_written_in_cjk_and_are_not_chinese(text: str) -> None:
    assert script_of(text) == "cjk"
    assert not is_chinese(text)


def test_the_beginning_of_a_long_text_tells() -> None:
    assert is_chinese("部署服务，" * 400 + "and then a long log in English " * 2_000)
    assert not is_chinese("a long log in English " * 100 + "部署服务，" * 10_000)
