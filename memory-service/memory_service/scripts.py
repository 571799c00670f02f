"""In which script is a text written?  Pure.

Decides about the language that the service words something in (Chinese or English) and about calibration curves: one rule for both,
so that a goal, its episode and the labels of its context agree.  It does not recognise languages: everything that is not
Chinese, Japanese or Korean counts as alphabetic, which is named `latin` after the script it was measured on.
"""

import re
from typing import Literal

Script = Literal["latin", "cjk"]
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
KANA_OR_HANGUL = re.compile("[\u3041-\u30fa\uac00-\ud7a3]")
# A Chinese character says about as much as a word: Chinese texts name tools, files and errors in Latin letters.
CJK_SHARE = 0.5
WORD = re.compile(r"[^\W\d_\u3041-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff]+")
READ_CHARS_MAX = 2_000  # the beginning tells; a text may have 256 KiB


def script_of(text: str) -> Script:
    """`cjk` when there are at least as many CJK characters at the beginning as words of other scripts; without letters `latin`."""
    if text.isascii():
        return "latin"
    head = text[:READ_CHARS_MAX]
    cjk = len(HAN.findall(head)) + len(KANA_OR_HANGUL.findall(head))
    return "cjk" if cjk and cjk / (cjk + len(WORD.findall(head))) >= CJK_SHARE else "latin"


def is_chinese(text: str) -> bool:
    """CJK script without kana or hangul, which only Japanese and Korean have.

    Mixed texts are Chinese when they have a Chinese character for each word of another script: "用 deploy 部署 billing" is,
    "rename 张三 in the table" is not.
    """
    return script_of(text) == "cjk" and not KANA_OR_HANGUL.search(text[:READ_CHARS_MAX])
