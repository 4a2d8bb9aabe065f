"""The built site in Chromium, at the widths of a desktop and of a phone: ``tox run -c tox-weekly.ini -e browser``.

XDEVICE_PICTURES names a folder for a screenshot of each page at both widths.
"""

import functools
import http.server
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
expect.set_options(
    timeout=30_000
)  # the index of the search takes seconds where the machine is busy


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(site):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def browser():
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.exit(
            "no Chromium is installed: apt install chromium, or set CHROMIUM to a Chrome's path",
            returncode=2,
        )
    with sync_playwright() as playwright:
        # Chromium's sandbox cannot be used by root, who runs the tests in a container; the pages are ours
        arguments = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=found, args=arguments)
        yield opened
        opened.close()


@pytest.fixture(params=[DESKTOP, PHONE], ids=["desktop", "phone"])
def page(request, browser, address):
    """A page of that size, which fails the test if the site asks for something elsewhere or has an error."""
    context = browser.new_context(viewport=request.param, base_url=address)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened, wrong = context.new_page(), []
    opened.on(
        "request",
        lambda asked: (
            None if asked.url.startswith((address, "data:", "blob:")) else wrong.append(asked.url)
        ),
    )
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else None)
    yield opened
    context.close()
    assert wrong == []


def is_phone(page):
    return page.viewport_size["width"] == PHONE["width"]


def test_navigation_opens_and_leads_to_a_page(page):
    page.goto("/")
    if is_phone(page):
        page.locator("label.md-header__button[for=__drawer]").click()
        page.locator("nav.md-nav--primary > ul > li > label", has_text="Learn").click()
        page.locator("nav.md-nav--primary a:visible", has_text="Many devices").click()
    else:
        tabs = page.locator(".md-tabs__link")
        expect(tabs).to_have_count(6)
        tabs.filter(has_text="Learn").click()
        page.locator(".md-nav--primary a:visible", has_text="Many devices").click()
    expect(page.locator("h1")).to_contain_text("Many devices")


def search(page, words):
    """The pages that are found, best first."""
    page.goto("/")
    if is_phone(page):
        page.locator("label.md-header__button[for=__search]").click()
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially(words)
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible()
    return results


def test_search_finds_a_name_and_leads_to_it(page):
    search(page, "to_device").first.click()
    expect(page.locator("article")).to_contain_text("to_device")


@pytest.mark.parametrize("words", ["install", "installation", "pip install"])
def test_search_finds_the_installation_page_first(page, words):
    assert "/installation/" in search(page, words).first.get_attribute("href")


def test_code_is_copied_as_it_is_written(page):
    page.goto("/learn/student/")
    block = page.locator("div.highlight", has_text="xdevice.virtual_gpus(2)").first
    block.hover()
    block.locator("button.md-clipboard, [data-md-type=copy]").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == block.locator("code").text_content().strip()
    assert copied.startswith("# two_gpus.py\nimport xdevice\n")


@pytest.mark.parametrize(
    ("path", "words", "copied"),
    [
        (
            "",
            "jax gpu:0",
            "XDEVICE_BACKEND=torch python two_gpus.py\nXDEVICE_BACKEND=jax python two_gpus.py",
        ),
        (
            "use/devices/",
            ">>> xdevice.num_gpus()",
            'xdevice.num_gpus(), xdevice.count("cpu")\nxdevice.devices()',
        ),
        ("use/devices/", ">>> gpu(-1)", "gpu(-1)"),
    ],
)
def test_of_a_session_the_commands_are_copied(page, path, words, copied):
    page.goto(f"/{path}")
    block = page.locator("div.highlight", has_text=words).first
    block.hover()
    block.locator("button.md-clipboard, [data-md-type=copy]").first.click()
    assert page.evaluate("navigator.clipboard.readText()").strip() == copied


def test_pictures_load_and_fit(page):
    page.goto("/learn/lessons/")
    page.wait_for_load_state("networkidle")
    pictures = page.locator("article img:visible")
    assert pictures.count() >= 4
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0"), (
            picture.get_attribute("src")
        )
        shown = picture.locator("xpath=..").bounding_box()
        assert shown["x"] + shown["width"] <= page.viewport_size["width"]


def test_terminals_are_shown_whole(page):
    page.goto("/")
    page.wait_for_load_state("networkidle")
    for picture in page.locator(".screens img").all():
        box = picture.bounding_box()
        assert box["width"] > 300
        assert box["x"] + box["width"] <= page.viewport_size["width"]


def test_a_wrapped_line_of_code_is_further_in_than_it_began(page):
    page.goto("/learn/student/")
    lines = page.locator("div.highlight .line", has_text="xdevice.namespace").or_(
        page.locator("div.highlight .line", has_text="value, gradient =")
    )
    line = lines.last
    indent, shift = line.evaluate(
        "line => [getComputedStyle(line).paddingLeft, getComputedStyle(line).textIndent].map(parseFloat)"
    )
    assert indent == -shift
    assert indent > 0


def test_the_copy_button_covers_no_code(page):
    page.goto("/learn/author/")
    for block in page.locator("div.highlight:visible").all():
        button = block.locator("button.md-clipboard, [data-md-type=copy]").first.bounding_box()
        covered = block.locator(".line").evaluate_all(
            """(lines, button) => lines.some((line) => {
                const words = document.createRange();
                words.selectNodeContents(line);
                return [...words.getClientRects()].some((box) => box.width > 1
                    && box.right > button.x && box.bottom > button.y && box.top < button.y + button.height);
            })""",
            button,
        )
        assert not covered


def test_words_of_code_stay_whole_in_tables(page):
    """A word is as high as one line: one that were broken would be two. Longer words break after `/` and the like."""
    page.goto("/use/virtual/")
    for code in page.locator("td code").all():
        if re.fullmatch(r"[^\s-]{,16}", code.inner_text()):
            assert code.evaluate("code => code.getClientRects().length") == 1, code.inner_text()


def test_dark_colours_are_chosen_and_kept(page):
    page.goto("/learn/lessons/")
    page.locator("label[title='Dark colours']").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    expect(page.locator("img[src*='transfer_dark.svg']")).to_be_visible()
    expect(page.locator("img[src*='transfer.svg']")).to_be_hidden()
    page.goto("/")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


HIDDEN = """() => {
    const scrolls = (part) => part.offsetParent && part.scrollWidth > part.clientWidth + 1;
    const closed = (part) => part.closest("details:not([open])");
    const parts = [...document.querySelectorAll("article pre > code, article table, article .md-typeset__scrollwrap")];
    const wide = parts.filter((part) => scrolls(part) && !closed(part)).map((part) => part.innerText.slice(0, 200));
    return scrolls(document.scrollingElement) ? ["the page", ...wide] : wide;
}"""


def test_nothing_of_a_page_is_hidden_at_its_side(page, site):
    """No page, block of code or table has to be scrolled sideways."""
    pages = sorted(file.parent.relative_to(site).as_posix() for file in site.rglob("index.html"))
    assert len(pages) > 25
    hidden = {}
    for path in pages:
        page.goto("/" if path == "." else f"/{path}/")
        hidden[path] = page.evaluate(HIDDEN)
        folder = os.environ.get("XDEVICE_PICTURES")
        if folder:
            name = (
                f"{path.strip('.').replace('/', '_') or 'home'}_{page.viewport_size['width']}.png"
            )
            page.screenshot(path=Path(folder, name), full_page="reference" not in path)
    assert {path: parts for path, parts in hidden.items() if parts} == {}


def test_a_wide_table_is_cards_on_a_phone(page):
    page.goto("/project/frameworks/")
    head, row = page.locator("thead").first, page.locator("tbody tr").first
    label = row.locator("td").last.evaluate("cell => getComputedStyle(cell, '::before').content")
    if is_phone(page):
        expect(head).to_be_hidden()
        assert label == '"devices: "'
    else:
        expect(head).to_be_visible()
        assert label == "none"


def test_the_tabs_of_a_page_change_what_is_shown(page):
    page.goto("/learn/author/")
    expect(page.locator("code", has_text="import torch").first).to_be_visible()
    page.locator(".tabbed-labels label", has_text="MXNet").click()
    expect(page.locator("code", has_text="npx.set_np").first).to_be_visible()
    expect(page.locator("code", has_text="import torch").first).to_be_hidden()
