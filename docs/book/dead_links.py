#!/usr/bin/env python3
"""docs/book/dead_links.py FOLDER: every link in the HTML files of a folder that leads to no file or anchor of it.

Links to other sites are not followed. Ends with 1 if there is any.
"""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Names(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, page):
        super().__init__()
        self.links, self.anchors, self.moved_to = [], {"top"}, None
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        if dict(attributes).get("http-equiv") == "refresh":
            self.moved_to = dict(attributes)["content"].partition("URL=")[2]
        for name, value in attributes:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def dead(root, page, link, names):
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_file() or not target.is_relative_to(root):
        return True
    if not parts.fragment or target not in names:
        return False
    if names[target].moved_to:
        target = (target.parent / names[target].moved_to).resolve()
    return unquote(parts.fragment) not in names[target].anchors


root = Path(sys.argv[1]).resolve()
# 404.html has links from the root of the site.
pages = [page for page in root.rglob("*.html") if page.name not in ("404.html", "print.html", "toc.html")]
names = {page: Names(page) for page in pages}
found = sorted({f"{page.relative_to(root)}: {link}" for page in pages for link in names[page].links
                if dead(root, page, link, names)})
print("\n".join(found))
sys.exit(1 if found else 0)
