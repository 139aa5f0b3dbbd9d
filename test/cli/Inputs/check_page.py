"""Checks a report's page: check_page.py PAGE.html MOST_BYTES [ranks|sides|clusters]"""
import html.parser
import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text()
assert len(text.encode()) <= int(sys.argv[2]), len(text.encode())
assert not re.search(r"https?:|src=|@import|url\(", text)  # nothing is loaded


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links, self.tags, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if "href" in attributes:
            self.links.append(attributes["href"])

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open[-3:], tag, self.getpos())  # every tag is closed in its turn
        self.open.pop()


page = Page()
page.feed(text)
assert not page.open, page.open
assert len(page.ids) == len(set(page.ids))
for link in page.links:
    assert link.startswith("#") and link[1:] in page.ids, link
count = lambda tag: sum(name == tag for name, _ in page.tags)
assert count("header") == count("main") == count("nav") == count("h1") == 1
assert count("table") == count("caption") == count("thead") == count("tbody") > (0 if "clusters" in sys.argv else 4)
assert all(attributes.get("scope") == "col" for tag, attributes in page.tags if tag == "th")
assert all(attributes.get("aria-label") or attributes.get("aria-hidden") for tag, attributes in page.tags if tag == "svg")
assert any(attributes.get("name") == "viewport" for tag, attributes in page.tags if tag == "meta")
assert any(attributes.get("lang") == "en" for tag, attributes in page.tags if tag == "html")
# Five kinds of memory, for each pipeline rank.
assert count("polygon") == {"sides": 10, "clusters": 0, "ranks": 5 * 16}.get(sys.argv[-1], 5)

# Contrast by WCAG 2.2: 4.5 for text, 3 for what pictures are made of; in the light scheme and in the dark one.
def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


schemes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", text, re.S)]
assert len(schemes) == 2
for scheme in schemes:
    for colour in ("text", "soft", "link"):
        for ground in ("ground", "panel"):
            assert contrast(scheme[colour], scheme[ground]) >= 4.5, (colour, ground)
    assert contrast(scheme["text"], scheme["ground"]) >= 7
    for colour in ("compute", "exposed", "bubble", "parameters", "gradients", "optimizer", "workspace", "forward", "backward",
                   "dp", "tp", "pp", "cp", "ep", "whole"):
        assert contrast(scheme[colour], scheme["ground"]) >= 3, colour
