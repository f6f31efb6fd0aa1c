r"""Syntax of Java's regular expressions that Python's `re` does not have, or reads differently.

The lists of a connector are Java's. Most of their syntax is Python's too. Python gives some of the rest another
meaning, at most with a warning: `[A-Z&&[^X]]` is a class, and a bracket after it.
"""

from __future__ import annotations

import re
from functools import lru_cache

TOKEN = re.compile(
    r"(?P<quote>\\Q.*?(?:\\E|\Z))"
    r"|(?P<escape>\\(?:[xb]\{|.))"
    r"|\[\^?\]?(?P<inside>(?:\\.|[^\]\\])*)\]?"
    r"|(?P<flags>\(\?[a-zA-Z]*(?:-[a-zA-Z]+)?\))"
    r"|(?P<group>\(\?<(?![=!]))",
    re.DOTALL,
)
QUOTE = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
CLASS_ESCAPE = re.compile(r"\\(?:x\{|.)", re.DOTALL)
FIRST_FLAGS = re.compile(r"\(\?[aimsux]+\)")

_WHOLE = "Remove it: a pattern matches the whole name."
_CHARACTERS = "List the characters in a class, as [A-Za-z]; \\w is all letters, digits and _."
_CODE = "Write the character itself, or \\uhhhh."
ESCAPES = {
    "\\E": "Remove it, and put a backslash before each sign that stands for itself.",
    "\\p": _CHARACTERS,
    "\\P": _CHARACTERS,
    "\\h": "Write [ \\t] instead.",
    "\\H": "Write [^ \\t] instead.",
    "\\v": "Write \\n instead.",
    "\\V": "Write [^\\n] instead.",
    "\\R": "Write \\n instead.",
    "\\X": "Write a dot instead.",
    "\\z": _WHOLE,
    "\\G": _WHOLE,
    "\\b{": "Write \\b instead.",
    "\\k": "Write (?P=name) instead.",
    "\\0": _CODE,
    "\\c": _CODE,
    "\\e": _CODE,
    "\\x{": _CODE,
}
IN_CLASS = {
    "&&": "Put one of the two before the other: (?=[^X])[A-Z] is [A-Z&&[^X]].",
    "[": "Write one class: [abc] is [a[bc]]. A bracket that stands for itself is \\[.",
    "--": "Write the sign once.",
    "||": "Write the sign once.",
    "~~": "Write the sign once.",
}


@lru_cache(maxsize=10_000)
def find_java(expression: str) -> tuple[str, str] | None:
    """Return the first syntax that is not Python's, with the Python form, None where there is none."""
    for token in TOKEN.finditer(expression):
        match token.lastgroup:
            case "quote":
                return "\\Q...\\E", f"Write {QUOTE.sub(lambda quote: re.escape(quote[1]), expression)} instead."
            case "escape" if token[0] in ESCAPES:
                return token[0], ESCAPES[token[0]]
            case "inside" if java_form := _in_class(token["inside"]):
                return java_form
            case "flags" if token.start() > 0 or not FIRST_FLAGS.fullmatch(token[0]):
                return token[0], "Remove it: case is ignored everywhere. Other flags stand at the start."
            case "group":
                return "(?<name>...)", "Write (?P<name>...), or a plain (...)."
    return None


def _in_class(inside: str) -> tuple[str, str] | None:
    for escape in CLASS_ESCAPE.findall(inside):
        if escape in ESCAPES:
            return escape, ESCAPES[escape]
    plain = CLASS_ESCAPE.sub("..", inside)
    return next(((f"{sign} in a class", form) for sign, form in IN_CLASS.items() if sign in plain), None)
