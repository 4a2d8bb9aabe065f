"""Misspelt options of ``xdevice run`` among the script's own options, after SCRIPT.

What is not an option of xdevice goes to the script, so a misspelt option would
be ignored silently.
"""

from collections.abc import Collection

from xdevice.tools.cli.parser import DASHES, Parser

SIMILAR = 0.83  # difflib's ratio: ``--stict`` and ``--strcit`` are near, ``--restrict`` is not
SHORTEST = 5  # letters: shorter words are neither compared nor taken for a beginning


def near_miss(word: str, parser: Parser) -> str | None:
    """The option that was probably meant; ``None`` if the word is the script's own option.

    A value that is part of the word follows the option: ``--jobs 4`` for ``--jobs4``.
    """
    typed, _, value = word.partition("=")
    if word[:1] not in DASHES or typed in parser.options or any(map(str.isspace, word)):
        return None
    options = {_letters(option): option for option in parser.options if option[:2] == "--"}
    letters = _letters(typed)
    if letters in options:  # only dashes or capitals differ
        return options[letters]
    for name, option in options.items():
        suffix = letters.removeprefix(name)
        if suffix != letters and not value and _is_value(suffix, parser, option):
            return f"{option} {suffix}"
    name_meant = _similar_name(letters, options)
    if name_meant is None:
        return None
    return options[name_meant]


def _letters(option: str) -> str:
    return option.lstrip(DASHES).lower().replace("_", "-")


def _similar_name(letters: str, names: Collection[str]) -> str | None:
    if len(letters) < SHORTEST or _is_first_words(letters, names):
        return None
    for name in names:
        if name.startswith(letters):
            return name
    from difflib import get_close_matches  # 3 ms

    candidates = [
        name
        for name in names
        if len(name) >= SHORTEST and name[0] == letters[:1] and not _contains(letters, name)
    ]
    return next(iter(get_close_matches(letters, candidates, 1, SIMILAR)), None)


def _is_first_words(letters: str, names: Collection[str]) -> bool:
    """Whether it is the first words of an option, as ``--watch`` of ``--watch-transfers``.

    Scripts have such options of their own.
    """
    return any(name.startswith(f"{letters}-") for name in names)


def _contains(letters: str, name: str) -> bool:
    """Whether it is another word around an option's name: ``--report-to``; not ``--reports``."""
    return name in letters and len(letters) > len(name) + 1


def _is_value(text: str, parser: Parser, option: str) -> bool:
    """Whether the text that follows an option without a space is its value: ``--jobs4``."""
    from xdevice.framework.adapters import registered  # 20 ms

    if not parser.takes_value(option):
        return False
    return text.isdigit() or (option == "--backend" and text in registered())
