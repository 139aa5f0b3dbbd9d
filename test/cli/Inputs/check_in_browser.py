"""check_in_browser.py AXE.js PAGE.html...: opens each page in headless Chromium, light and dark, wide and as narrow as a phone,
with every part unfolded. No rule of axe-core is broken, no script fails, nothing is written to the console, and the page
is no wider than the window."""
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

FAULTS = """<script>window.faults = [];
addEventListener('error', e => faults.push(e.message));
for (const kind of ['error', 'warn']) console[kind] = (...words) => faults.push(words.join(' '));</script>"""
LOOK = """<script>addEventListener('load', async () => {
document.querySelectorAll('details').forEach(one => one.open = true);
const found = await axe.run(document, {resultTypes: ['violations']});
const told = document.createElement('pre');
told.id = 'told';
told.textContent = JSON.stringify({faults, wide: document.documentElement.scrollWidth - innerWidth, rules: found.passes.length,
  dark: matchMedia('(prefers-color-scheme: dark)').matches,
  broken: found.violations.map(v => [v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))])});
document.body.append(told);
});</script>"""

axe = pathlib.Path(sys.argv[1]).read_text().replace("</script", "<\\/script")
for page in sys.argv[2:]:
    text = pathlib.Path(page).read_text()
    text = text.replace("<head>", "<head>" + FAULTS, 1).replace("</body>", f"<script>{axe}</script>{LOOK}</body>", 1)
    assert FAULTS in text and LOOK in text
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # the browser may still write there
        copy = pathlib.Path(scratch) / "page.html"
        copy.write_text(text)
        for scheme, size in (("light", "1200,900"), ("dark", "1200,900"), ("light", "500,800")):
            shown = subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 f"--user-data-dir={scratch}/profile",
                 "--virtual-time-budget=200000", f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
                 f"--window-size={size}", "--dump-dom", copy.as_uri()], capture_output=True, text=True, timeout=600)
            told = re.search(r'<pre id="told">(.*?)</pre>', shown.stdout, re.S)
            assert told, shown.stderr[-2000:]
            seen = json.loads(html.unescape(told[1]))
            assert not seen["faults"] and not seen["broken"] and seen["rules"] > 10, json.dumps(seen, indent=1)
            assert seen["dark"] == (scheme == "dark"), seen
            assert seen["wide"] <= 0, f"{page} is {seen['wide']} pixels wider than the window of {size}"
            print(f"{pathlib.Path(page).name} {scheme} {size}: {seen['rules']} rules hold")
