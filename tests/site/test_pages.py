"""The built site: its links lead somewhere, it loads nothing from elsewhere, and its reference is complete."""

import re
from functools import cache
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

import xdevice
from xdevice import distributed, testing


class Page(HTMLParser):
    """What a page links to, what it loads, and where links to it may lead."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors, self.pictures = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        has = dict(attrs)
        self.anchors |= {has[key] for key in ("id", "name") if has.get(key)}
        if tag == "a" and has.get("href"):
            self.links.append(has["href"])
        if tag == "img":
            self.pictures.append(has)
        if has.get("src") or (
            tag == "link" and has.get("rel") in ("stylesheet", "icon", "preload")
        ):
            self.loaded.append(has.get("src") or has["href"])


@cache
def page(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def pages(site):
    found = [path for path in site.rglob("*.html") if path.name != "404.html"]
    assert len(found) > 25
    return found


def lead_nowhere(pages, site, links):
    """The links within the site to a file or to an anchor that is not there."""
    for path in pages:
        for link in links(page(path)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_relative_to(site), f"{path} links out of the site: {link}"
            anchor = unquote(parts.fragment)
            of_theme = (
                not anchor or target.suffix != ".html" or anchor.startswith("__") or link == "#"
            )
            if not target.is_file() or not (of_theme or anchor in page(target).anchors):
                yield f"{path.relative_to(site)}: {link}"


def test_links_and_anchors_lead_somewhere(pages, site):
    assert list(lead_nowhere(pages, site, lambda page: page.links)) == []
    assert list(lead_nowhere(pages, site, lambda page: page.loaded)) == []


def test_nothing_is_loaded_from_elsewhere(pages, site):
    loaded = {link for path in pages for link in page(path).loaded}
    assert loaded
    assert not [link for link in loaded if urlsplit(link).netloc]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles)


def test_a_picture_has_words_for_those_who_cannot_see_it(pages):
    pictures = [picture for path in pages for picture in page(path).pictures]
    assert len(pictures) >= 8
    assert [picture["src"] for picture in pictures if len(picture.get("alt", "")) < 20] == []


@pytest.fixture(scope="session")
def reference(site):
    """Each documented object by its name: the part of its page that is about it."""
    found = {}
    for path in (site / "reference").rglob("index.html"):
        text = path.read_text(encoding="utf-8")
        heads = list(re.finditer(r'<h\d id="(xdevice(?:[.]\w+)*)" class="doc doc-heading">', text))
        ends = [head.start() for head in heads[1:]] + [len(text)]
        found |= {
            head[1]: text[head.start() : end]
            for head, end in zip(heads, ends[: len(heads)], strict=True)
        }
    return found


def is_error(name):
    found = getattr(xdevice, name)
    return isinstance(found, type) and issubclass(found, (xdevice.XDeviceError, Warning))


CALLED = [f"xdevice.{name}" for name in xdevice.__all__ if not is_error(name)]
CALLED += [f"xdevice.distributed.{name}" for name in distributed.__all__ if name.islower()]
ERRORS = [f"xdevice.errors.{name}" for name in xdevice.__all__ if is_error(name)]


@pytest.mark.parametrize("name", CALLED)
def test_a_public_name_has_a_signature_types_an_example_and_its_source(reference, name):
    about = reference[name]
    word = name.rpartition(".")[2]
    found = getattr(distributed if "distributed" in name else xdevice, word)
    if "__init__" in vars(found) or not isinstance(found, type):
        signature = re.search(r'<div class="doc-signature.*?</div>', about, re.DOTALL)
        plain = re.sub(r"<[^>]+>", "", signature[0]).strip()
        assert plain.startswith(f"{word}(")
        arguments = re.findall(r"^    (\w+)(.?)", plain, re.MULTILINE)
        assert [argument for argument, colon in arguments if colon != ":"] == [], (
            f"arguments without a type: {plain}"
        )
        assert isinstance(found, type) or "-&gt;" in plain
    assert '<span class="gp">&gt;&gt;&gt; </span>' in about
    assert "Source code in <code>xdevice/" in about


@pytest.mark.parametrize(
    "name", [*ERRORS, *(f"xdevice.testing.{name}" for name in testing.__all__)]
)
def test_an_error_and_what_an_adapter_tests_with_is_described_with_its_source(reference, name):
    assert "<p>" in reference[name]
    assert "Source code in <code>xdevice/" in reference[name]
