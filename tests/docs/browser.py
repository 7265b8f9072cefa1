"""Opens each page of the built manual in Chromium, as a file: `make docs-look`.

Pages are opened wide and narrow, in light and dark colours. A page that is wider than its window, a
link that leads nowhere, an image that is not drawn, an error of a script and a search that finds
nothing end the run with 1. Screenshots of the tops of pages are kept in `build/look`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from playwright.sync_api import Browser, Page, sync_playwright

SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNDRAWN = "[...document.images].filter(one => !one.naturalWidth).map(one => one.src)"
TARGETS = "[...document.querySelectorAll('a[href]')].map(one => one.href)"
ANCHORS = "[...document.querySelectorAll('[id]')].map(one => one.id)"


def faults(page: Page) -> Iterator[str]:
    """What is wrong with a page as it is drawn."""
    wider = page.evaluate(OVERFLOW)
    if wider > 0:
        yield f"is {wider} pixels wider than its window"
    for image in page.evaluate(UNDRAWN):
        yield f"does not draw {image}"


def broken_links(links: dict[Path, list[str]], anchors: dict[Path, set[str]]) -> Iterator[str]:
    """Links within the site to files or headings that do not exist."""
    for file, targets in links.items():
        for target in targets:
            parts = urlparse(target)
            if parts.scheme != "file":
                continue
            linked = Path(unquote(parts.path))
            if not linked.exists():
                yield f"{file.name} links to {linked.name}, which does not exist"
            elif parts.fragment and unquote(parts.fragment) not in anchors.get(linked, set()):
                yield f"{file.name} links to {linked.name}#{parts.fragment}, which does not exist"


def search_faults(page: Page, start: Path) -> Iterator[str]:
    """Whether the search finds pages when the site is opened as a file."""
    page.goto(start.as_uri())
    page.keyboard.press("/")
    page.keyboard.type("debezium", delay=20)
    try:
        page.wait_for_selector(".md-search-result__item a", timeout=10_000)
    except Exception:
        yield "the search finds nothing"


def visit(browser: Browser, site: Path, shots: Path) -> list[str]:
    """The faults of a site's pages. Writes the screenshots."""
    problems: list[str] = []
    links: dict[Path, list[str]] = {}
    anchors: dict[Path, set[str]] = {}
    files = sorted(file for file in site.rglob("*.html") if file.name != "404.html")
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page.on("pageerror", lambda error: problems.append(f"a script failed: {error}"))
            for file in files:
                name = str(file.relative_to(site).with_suffix("")).replace("/", "-")
                page.goto(file.as_uri())
                page.screenshot(path=shots / f"{name}-{size}-{scheme}.png")
                problems.extend(f"{name}, {size}, {scheme}: {fault}" for fault in faults(page))
                links[file] = page.evaluate(TARGETS)
                anchors[file] = set(page.evaluate(ANCHORS))
            if size == "wide" and scheme == "light":
                problems.extend(search_faults(page, site / "index.html"))
            page.close()
    return problems + sorted(set(broken_links(links, anchors)))


def main(site: Path, shots: Path) -> int:
    shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # Chromium of the system, or the one of `playwright install chromium`.
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        problems = visit(browser, site.resolve(), shots)
        browser.close()
    sys.stdout.write("".join(f"{fault}\n" for fault in problems) + f"{shots}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path("build/docs"), Path("build/look")))
