"""well_formed.py PAGE: every element of a page is closed in order, runs no
script, and its drawings are XML with finite coordinates."""
import html.parser
import re
import sys
import xml.etree.ElementTree

VOID = {"meta"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.elements = [], 0

    def handle_starttag(self, tag, attributes):
        assert tag != "script" and not any(name.startswith("on") for name, _ in attributes), (tag, self.getpos())
        self.elements += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements += 1

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> at {self.getpos()} inside {self.open}"
        self.open.pop()


with open(sys.argv[1]) as file:
    text = file.read()
page = Page()
page.feed(text)
page.close()
assert not page.open, f"not closed: {page.open}"
drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
for drawing in drawings:
    for element in xml.etree.ElementTree.fromstring(drawing).iter():
        for name in ("points", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
            for number in re.split(r"[ ,]+", element.get(name, "0")):
                assert abs(float(number)) < 1e4, (name, element.get(name))
print(f"{page.elements} elements, {len(drawings)} drawings")
