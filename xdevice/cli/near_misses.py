"""Options of ``xdevice run`` that are misspelt where the script's own options stand.

Whatever is not an option of ours goes to the script, so that a misspelt one would be lost without a word.
"""

from collections.abc import Collection

from xdevice.cli.parser import DASHES, Parser

SIMILAR = 0.83  # of difflib's measure: ``--stict`` and ``--strcit`` are near, ``--restrict`` is not
SHORTEST = 5  # letters of a word that is told from others by its likeness, or by its beginning


def near_miss(word: str, parser: Parser) -> str | None:
    """The option that was probably meant, with its value if that is in the word; ``None`` if it is the script's own."""
    typed, _, value = word.partition("=")
    if word[:1] not in DASHES or typed in parser.options or any(map(str.isspace, word)):
        return None
    known = {_letters(option): option for option in parser.options if option[:2] == "--"}
    letters = _letters(typed)
    if letters in known:  # but for its dashes and capitals
        return known[letters]
    for name, option in known.items():
        rest = letters.removeprefix(name)
        if rest != letters and not value and _is_value(rest, parser, option):
            return f"{option} {rest}"
    found = _meant(letters, known)
    return None if found is None else known[found]


def _letters(option: str) -> str:
    return option.lstrip(DASHES).lower().replace("_", "-")


def _meant(letters: str, known: Collection[str]) -> str | None:
    if len(letters) < SHORTEST or _is_first_words(letters, known):
        return None
    begun = [name for name in known if name.startswith(letters)]
    if begun:
        return begun[0]
    from difflib import get_close_matches  # 3 ms

    alike = [
        name
        for name in known
        if len(name) >= SHORTEST and name[0] == letters[:1] and not _is_longer(letters, name)
    ]
    return next(iter(get_close_matches(letters, alike, 1, SIMILAR)), None)


def _is_first_words(letters: str, known: Collection[str]) -> bool:
    """Whether it is the first words of one of ours, as ``--watch`` is of ``--watch-transfers``.

    Scripts have such options of their own.
    """
    return any(name.startswith(f"{letters}-") for name in known)


def _is_longer(letters: str, name: str) -> bool:
    """Whether it is a word of its own that has ours in it: ``--report-to``, ``--no-normalize``; not ``--reports``."""
    return name in letters and len(letters) > len(name) + 1


def _is_value(text: str, parser: Parser, option: str) -> bool:
    """Whether the text that follows an option without a space is a value of it: ``--jobs4``, ``--backendtorch``."""
    from xdevice.framework.adapters import registered  # 20 ms

    return parser.takes_value(option) and (
        text.isdigit() or (option == "--backend" and text in registered())
    )
