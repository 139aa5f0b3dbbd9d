// The additions to a page where scripts run: sorting, filtering, short tables and buttons that copy. Without it all
// is there.
"use strict";
const shownRows = 25;
const factors = { M: 1e6, G: 1e9, T: 1e12, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50, us: 1e-6, ms: 1e-3, s: 1 };

// "1.50 GiB" as a number; null for text.
function numberOf(text) {
  const match = /^([-+]?[\d.]+(?:e[-+]?\d+)?) ?([A-Za-z%]*)$/.exec(text.trim().replaceAll(",", ""));
  return match ? Number(match[1]) * (factors[match[2]] ?? 1) : null;
}

function sortBy(table, column, direction) {
  const rows = [...table.tBodies[0].rows];
  const key = (row) => row.cells[column]?.textContent ?? "";
  rows.sort((a, b) => {
    const [x, y] = [numberOf(key(a)), numberOf(key(b))];
    const order = x !== null && y !== null ? x - y : key(a).localeCompare(key(b), undefined, { numeric: true });
    return direction * order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  let word = "", all = body.rows.length <= shownRows;
  const more = document.createElement("button");
  const show = () => {
    let shown = 0, matching = 0;
    for (const row of body.rows) {
      const matches = row.textContent.toLowerCase().includes(word);
      matching += matches;
      row.hidden = !matches || (!all && shown >= shownRows);
      shown += !row.hidden;
    }
    more.hidden = all || matching <= shownRows;
    more.textContent = `show all ${matching} rows`;
  };
  heads.forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sortBy(table, column, up ? 1 : -1);
      show();
    });
  });
  if (body.rows.length > 10) {
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "filter rows";
    filter.setAttribute("aria-label", "filter rows of: " + (table.caption?.textContent ?? "table"));
    filter.addEventListener("input", () => { word = filter.value.toLowerCase(); show(); });
    table.parentElement.before(filter);
    table.parentElement.after(more);
    more.addEventListener("click", () => { all = true; show(); });
  }
  show();
  addEventListener("beforeprint", () => { for (const row of body.rows) row.hidden = false; });
  addEventListener("afterprint", show);
  const reveal = () => { // a link to a row that is not shown
    const row = document.getElementById(location.hash.slice(1));
    if (row?.hidden && body.contains(row)) { all = true; show(); row.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
}

// All names of "layers.0..11.up", "MatMul_{7,9,40}", "n_40..115..15".
function unfolded(text) {
  const range = /^(.*?)(\d+)\.\.(\d+)(?:\.\.(\d+))?(.*)$/.exec(text);
  const braces = range ? null : /^(.*?)\{(.*)\}(.*)$/.exec(text);
  if (braces) return braces[2].split(",").map((middle) => braces[1] + middle + braces[3]);
  if (!range) return [text];
  const names = [];
  for (let i = Number(range[2]); i <= Number(range[3]); i += Number(range[4] ?? 1)) names.push(range[1] + i + range[5]);
  return names;
}

const map = document.getElementById("operations");
if (map) {
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "search by name or axis";
  search.setAttribute("aria-label", "search operations and parameters by name or axis");
  map.before(search);
  for (const summary of map.querySelectorAll(".operation > summary"))
    summary.title = [...summary.parentElement.querySelectorAll("li")].map((line) => line.textContent).join("\n");
  const entries = [...map.querySelectorAll(".operation")].map((element) => ({
    element,
    text: [...unfolded(element.querySelector(".name").textContent), element.querySelector("summary").textContent,
      element.querySelector("ul").textContent].join("\n").toLowerCase(),
  }));
  search.addEventListener("input", () => {
    const word = search.value.toLowerCase();
    for (const { element, text } of entries) element.hidden = !text.includes(word);
    for (const part of map.children) {
      part.hidden = !part.querySelector(".operation:not([hidden])");
      part.open = word !== "" && !part.hidden;
    }
  });
  addEventListener("beforeprint", () => { for (const part of map.children) part.open = true; });
}

// A key that leads to an element at the edge of a region that scrolls shows all of it; browsers are content with a part.
addEventListener("focusin", ({ target }) => {
  if (target.matches(".scroll *:focus-visible")) target.scrollIntoView({ block: "nearest", inline: "nearest" });
});

// Where a chart is wider than the screen, its choice is shown first.
for (const point of document.querySelectorAll(".scroll .chosen")) {
  const region = point.closest(".scroll"), [outer, inner] = [region.getBoundingClientRect(), point.getBoundingClientRect()];
  region.scrollLeft = inner.left - outer.left - outer.width / 2;
}

for (const code of document.querySelectorAll("code.copy")) {
  const button = document.createElement("button");
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch { // not allowed here: a key does it
      getSelection().selectAllChildren(code);
      button.textContent = "selected: copy it with the keyboard";
    }
  });
  code.after(" ", button);
}
