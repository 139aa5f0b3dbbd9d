"""check_in_browser.py AXE.js PICTURES PAGE.html...: opens each page in headless Chromium, light and dark, wide and as narrow as
a phone, and leaves a picture of each in the folder PICTURES (of the environment: PAGE_PICTURES).

With every part unfolded no rule of axe-core is broken, no script fails, nothing is written to the console, and the page is
no wider than the window. The Tab key leads through all that takes the focus, in the document's order, with an outline
that nothing cuts off; Enter and Space do what a click does. The timeline tells of the bar under the pointer.
"""
import base64
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from chromium import Chromium

axe = pathlib.Path(sys.argv[1]).read_text()
pictures = pathlib.Path(os.environ.get("PAGE_PICTURES", sys.argv[2]))

UNFOLD = "document.querySelectorAll('details').forEach(one => one.open = true)"
UNFOLD_FIRST = "document.querySelectorAll('.part:first-child, .part:first-child .operation:first-child').forEach(one => one.open = true)"
RULES = """axe.run(document, {resultTypes: ['violations']}).then(found => ({rules: found.passes.length,
  wide: document.documentElement.scrollWidth - innerWidth, dark: matchMedia('(prefers-color-scheme: dark)').matches,
  broken: found.violations.map(v => [v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))])}))"""
# The colours of a picture: how many, and the most frequent one with its part of the picture.
COLOURS = """fetch('data:image/png;base64,%s').then(r => r.blob()).then(createImageBitmap).then(image => {
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext('2d');
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer), counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const [most, count] = [...counts].reduce((a, b) => b[1] > a[1] ? b : a);
  return {colours: counts.size, part: count / pixels.length, red: most & 255};
})"""
# All that takes the focus, in the document's order.
FOCUSABLE = """window.focusable = [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
  .filter(one => one.checkVisibility()), focusable.length"""
# The element that has the focus: its place, and the faults of its outline. Where an ancestor scrolls or hides, the outline
# has to lie within it; a link in a picture is outlined by the browser as its box is.
FOCUSED = """(() => {
  const one = document.activeElement, style = getComputedStyle(one), faults = [];
  const width = parseFloat(style.outlineWidth), reach = width + parseFloat(style.outlineOffset);
  if (style.outlineStyle === 'none' || width < 2) faults.push('no outline');
  const box = one.getBoundingClientRect();
  if (box.bottom < 0 || box.top > innerHeight || box.right < 0 || box.left > innerWidth) faults.push('out of sight');
  for (let above = one.parentElement; above; above = above.parentElement) {
    if (getComputedStyle(above).overflowX === 'visible' || above === document.documentElement || above === document.body) continue;
    const edge = above.getBoundingClientRect();
    if (box.left - reach < edge.left - 0.5 || box.right + reach > edge.right + 0.5 || box.top - reach < edge.top - 0.5 || box.bottom + reach > edge.bottom + 0.5)
      faults.push('cut off by ' + (above.className.baseVal ?? above.className) + '; ' + reach);
  }
  return {place: focusable.indexOf(one), what: one.outerHTML.slice(0, 120), faults};
})()"""


def check_keys(browser):
    count = browser.value(FOCUSABLE)
    for place in range(count):
        browser.press("Tab")
        seen = browser.value(FOCUSED)
        assert seen["place"] == place and not seen["faults"], (place, seen)

    def does(selector, effect, *keys):
        """Each key, on the first such element, changes what `effect` tells."""
        if not browser.value(f"Boolean(window.one = document.querySelector({json.dumps(selector)}))"):
            return 0
        for key in keys:
            browser.value("one.focus()")
            before = browser.value(effect)
            browser.press(key)
            end = time.monotonic() + 20
            while browser.value(effect) == before:
                assert time.monotonic() < end, (selector, key, before)
        return len(keys)

    done = does("th button", "one.closest('th').ariaSort + one.closest('table').tBodies[0].textContent", "Enter", " ")
    done += does("summary", "one.parentElement.open", "Enter", " ")
    done += does(".operation > summary", "one.parentElement.open", " ", "Enter")
    done += does(".scroll + button:not([hidden])", "one.previousElementSibling.querySelectorAll('tr[hidden]').length", "Enter")
    done += does(".timeline button", "document.querySelector('.timeline .scroll').scrollWidth", "Enter", " ")
    done += does(".timeline canvas", "document.querySelector('.timeline output').textContent", "ArrowRight", "ArrowRight")
    done += does("svg a", "location.hash", "Enter")
    done += does("code.copy + button", "one.textContent", "Enter")
    return count, done


# A bar under the pointer tells about itself: near the step's begin, and what the picture has there.
POINTED = """(() => {
  const canvas = document.querySelector('.timeline canvas');
  if (!canvas) return null;
  canvas.scrollIntoView({block: 'center'});
  const box = canvas.getBoundingClientRect();
  const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return {x: box.left + 64 + 1, y: box.top + 10, bar: pixels[10 * canvas.width + 64 + 1], ground: pixels[0]};
})()"""


def check_pointer(browser):
    seen = browser.value(POINTED)
    if seen:
        assert seen["bar"] != seen["ground"], seen
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=seen["x"], y=seen["y"])
        told = browser.value("document.querySelector('.timeline output').textContent")
        assert re.match(r"forward, microbatch [01], stage 0\b", told), told  # many passes share a few pixels


pictures.mkdir(parents=True, exist_ok=True)
with Chromium() as browser:
    for page in map(pathlib.Path, sys.argv[3:]):
        for dark, width, height in ((False, 1200, 900), (True, 1200, 900), (False, 400, 800)):
            browser.open(page.resolve().as_uri(), width, height, dark)
            browser.value(UNFOLD_FIRST)
            tall = min(8000, browser.value("document.documentElement.scrollHeight"))
            picture = browser.call("Page.captureScreenshot", captureBeyondViewport=True,
                                   clip={"x": 0, "y": 0, "width": width, "height": tall, "scale": 1})["data"]
            scheme = "dark" if dark else "light"
            (pictures / f"{page.stem}-{scheme}-{width}.png").write_bytes(base64.b64decode(picture))
            browser.value(axe + "; 0")
            browser.value(UNFOLD)
            seen = browser.value(RULES)
            assert not seen["broken"] and seen["rules"] > 10, json.dumps(seen, indent=1)
            assert seen["dark"] == dark, seen
            assert seen["wide"] <= 0, f"{page} is {seen['wide']} pixels wider than the window of {width}"
            colours = browser.value(COLOURS % picture)
            # The ground is the most frequent colour, and a page of some lines and pictures has many others.
            assert colours["colours"] > 30 and colours["part"] < 0.995 and (colours["red"] < 64) == dark, colours
            assert not browser.complaints(), browser.complaints()
            print(f"{page.name} {scheme} {width}: {seen['rules']} rules hold")
        browser.open(page.resolve().as_uri(), 1200, 900, False)
        browser.value(UNFOLD_FIRST)
        check_pointer(browser)
        count, done = check_keys(browser)
        assert not browser.complaints(), browser.complaints()
        print(f"{page.name}: {count} take the focus in turn, {done} keys do what a click does")
