"""The built site in Chromium, at the widths of a desktop and of a phone: ``tox run -e browser``.

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
LESSONS = "notebooks/gpus/", "notebooks/in_notebooks/"
expect.set_options(timeout=30_000)  # the index of the search takes seconds where the machine is busy
WIDE = "", "gallery/", "tutorials/author/", "reference/api/", "tensors/placement/", *LESSONS


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
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
        pytest.exit("no Chromium is installed: apt install chromium, or set CHROMIUM to a Chrome's path", returncode=2)
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
        "request", lambda asked: None if asked.url.startswith((address, "data:", "blob:")) else wrong.append(asked.url)
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
        page.locator("label.md-nav__title[for=__nav_1]").click()  # back from the group that is open to all groups
        page.locator("nav.md-nav--primary > ul > li > label", has_text="Lessons").click()
        page.locator("nav.md-nav--primary a:visible", has_text="Automatic parallelism").click()
    else:
        tabs = page.locator(".md-tabs__link")
        expect(tabs).to_have_count(6)
        tabs.filter(has_text="Lessons").click()
        page.locator(".md-nav--primary a:visible", has_text="Automatic parallelism").click()
    expect(page.locator("h1")).to_contain_text("Automatic parallelism")


def test_search_finds_a_name_and_leads_to_it(page):
    page.goto("/")
    if is_phone(page):
        page.locator("label.md-header__button[for=__search]").click()
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially("to_device")
    results = page.locator(".md-search-result__link")
    expect(results.first).to_be_visible()
    results.first.click()
    expect(page.locator("article")).to_contain_text("to_device")


def test_code_is_copied_as_it_is_written(page):
    page.goto("/tutorials/student/")
    block = page.locator("div.highlight", has_text="xdevice.virtual_gpus(2)").first
    block.hover()
    block.locator("button.md-clipboard, [data-md-type=copy]").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == block.locator("code").inner_text().strip()
    assert copied.startswith("# two_gpus.py\nimport xdevice\n")


def test_pictures_load_and_fit(page):
    page.goto("/gallery/")
    page.wait_for_load_state("networkidle")
    pictures = page.locator("article img:visible")
    assert pictures.count() >= 6
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0"), picture.get_attribute("src")
        shown = picture.locator("xpath=..").bounding_box()
        assert shown["x"] + shown["width"] <= page.viewport_size["width"]


def test_terminals_can_be_read(page):
    """Rich draws letters of 20 units; a phone's are at least 11 pixels, and the terminal scrolls sideways."""
    page.goto("/gallery/")
    page.wait_for_load_state("networkidle")
    for picture in page.locator("img.terminal").all():
        assert picture.evaluate("image => 20 * image.getBoundingClientRect().width / image.naturalWidth") >= 9


@pytest.mark.parametrize("path", ["gallery/", "", "several/virtual/"])
def test_commands_are_not_cut_off(page, path):
    page.goto(f"/{path}")
    for block in page.locator(".language-shell pre > code").all():
        assert block.evaluate("code => code.scrollWidth <= code.clientWidth"), block.inner_text()


def test_words_of_code_stay_whole_in_tables(page):
    """A word is as high as one line: one that were broken would be two."""
    page.goto("/several/virtual/")
    for code in page.locator("td code").all():
        if not re.search(r"[\s-]", code.inner_text()):
            assert code.evaluate("code => code.getClientRects().length") == 1, code.inner_text()


def test_dark_colours_are_chosen_and_kept(page):
    page.goto("/gallery/")
    page.locator("label[title='Dark colours']").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    expect(page.locator("img[src*='transfer_dark.svg']")).to_be_visible()
    expect(page.locator("img[src*='transfer.svg']")).to_be_hidden()
    page.goto("/")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


@pytest.mark.parametrize("path", WIDE)
def test_a_page_does_not_scroll_sideways(page, path):
    page.goto(f"/{path}")
    wide = page.evaluate("document.scrollingElement.scrollWidth")
    assert wide <= page.viewport_size["width"]
    folder = os.environ.get("XDEVICE_PICTURES")
    if folder:
        name = f"{path.strip('/').replace('/', '_') or 'home'}_{page.viewport_size['width']}.png"
        page.screenshot(path=Path(folder, name), full_page=path != "reference/api/")


def test_the_tabs_of_a_page_change_what_is_shown(page):
    page.goto("/tutorials/author/")
    expect(page.locator("code", has_text="import torch").first).to_be_visible()
    page.locator(".tabbed-labels label", has_text="MXNet").click()
    expect(page.locator("code", has_text="npx.set_np").first).to_be_visible()
    expect(page.locator("code", has_text="import torch").first).to_be_hidden()
