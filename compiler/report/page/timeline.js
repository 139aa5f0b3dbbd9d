// Draws the predicted step from the data of timeline.cpp: for each rank a lane for passes, one for the collectives that
// they wait for, one for what is sent. The region scrolls, and what is in sight is drawn.
"use strict";
const lanes = [{ top: 2, height: 16 }, { top: 19, height: 7 }, { top: 27, height: 7 }];
const rankHeight = 38, axisHeight = 26, labelWidth = 64;

// "1.5 ms"
function secondsText(value) {
  const [unit, factor] = value >= 1 ? ["s", 1] : value >= 1e-3 ? ["ms", 1e3] : ["us", 1e6];
  return `${Number((value * factor).toPrecision(3))} ${unit}`;
}

// For each lane what the rank does, in order: {begin, end, colour, tell}; of a pass {microbatch, more}, more: its collectives
// and what it sends.
function spansOf(rank, data) {
  const spans = [[], [], []], next = new Map(), time = (units) => secondsText(units * data.unit);
  let now = 0;
  for (const word of rank.passes.split(" ")) {
    const [code, microbatch, wait, delay] = /^(\w+)(?:\.(\w+))?(?:\+(\w+))?(?:~(\w+))?$/.exec(word).slice(1)
      .map((digits) => digits && parseInt(digits, 36));
    const kind = code % 4, number = rank.stages[code >> 2], stage = data.stages[number], back = kind > 0 ? 1 : 0;
    const pass = data.kinds[kind];
    const one = microbatch ?? next.get(code) ?? 0;
    next.set(code, one + 1);
    const begin = now + (wait ?? 0), end = now = begin + stage.passes[kind];
    const waited = Math.min(stage.collectives[kind], end - begin), sent = stage.sends[kind];
    const where = `microbatch ${one}, stage ${number}${stage.blocks ? ` (${stage.blocks})` : ""}`;
    const name = `${pass}, ${where}`;
    const more = [], add = (lane, span) => { spans[lane].push(span); more.push(span); };
    spans[0].push({ begin, end, colour: pass.replace(" ", "-"), microbatch: one, more, tell: () =>
      `${name}: ${time(end - begin)}, of which ${time(waited)} collectives; from ${time(begin)} to ${time(end)}` });
    if (waited > 0)
      add(1, { begin: end - waited, end, colour: "exposed", tell: () =>
        [`collectives that the pass waits for, ${time(waited)}: ${name}${data.stages.length > 1 ? "; the mean of the stages is" : ""}`,
          ...(back ? data.backward : data.forward)].join("\n") });
    const to = number + (back ? -1 : 1), start = end + (delay ?? 0);
    if (sent > 0 && data.stages[to] && !rank.stages.includes(to))
      add(2, { begin: start, end: start + sent, colour: "pp", tell: () =>
        `${back ? "gradients" : "activations"} of ${where} to stage ${to}: ${stage.bytes[back]} in ${time(sent)}` });
  }
  if (rank.after) {
    const [reduction, update, end] = rank.after;
    if (update > reduction)
      spans[1].push({ begin: reduction, end: update, colour: "ep", tell: () =>
        [`collectives once a step, ${time(update - reduction)}; passes hide those that stand below them`, ...data.step].join("\n") });
    if (end > update)
      spans[0].push({ begin: update, end, colour: "other", more: [], tell: () => `update of the parameters: ${time(end - update)}` });
  }
  return spans;
}

// The last span that begins at a time or before, or -1.
function lastAt(spans, time) {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].begin <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// A distance between ticks, 1, 2 or 5 times a power of ten, and not less than `least`.
function tickDistance(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= least);
}

function element(name, attributes, ...inner) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inner);
  return made;
}

function drawTimeline(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const ranks = data.ranks.map((rank) => spansOf(rank, data));
  let last = 0, shortest = Infinity;
  for (const spans of ranks)
    for (const one of spans.flat()) {
      last = Math.max(last, one.end);
      if (one.end > one.begin) shortest = Math.min(shortest, one.end - one.begin);
    }
  const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": "What each rank does when. Arrow keys lead " +
    "from pass to pass and from rank to rank, and the text below tells about each." });
  const wide = element("div", {}, canvas), region = element("div", { class: "scroll" }, wide);
  const told = element("output", {}, "Point at a bar, or go from one to the next with the arrow keys, to read about it.");
  const legend = element("ul", { class: "legend" });
  let zoom = 1, byMicrobatch = false, rank = 0, chosen = null;

  const room = () => canvas.clientWidth - labelWidth; // for the time in sight
  const scale = () => room() * zoom / last; // pixels of a unit
  const xOf = (time) => labelWidth + time * scale() - region.scrollLeft;

  function draw() {
    wide.style.width = `calc(${labelWidth}px + (100% - ${labelWidth}px) * ${zoom})`;
    canvas.style.width = `${region.clientWidth - 8}px`; // within the region's padding
    canvas.style.height = `${ranks.length * rankHeight + axisHeight}px`;
    canvas.width = canvas.clientWidth * devicePixelRatio;
    canvas.height = canvas.clientHeight * devicePixelRatio;
    const context = canvas.getContext("2d"), style = getComputedStyle(figure), colours = {};
    const colour = (name) => colours[name] ??= style.getPropertyValue("--" + name);
    context.scale(devicePixelRatio, devicePixelRatio);
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    const right = canvas.clientWidth, perUnit = scale(), scrolled = region.scrollLeft, from = scrolled / perUnit;
    const placeOf = (time) => labelWidth + time * perUnit - scrolled;
    ranks.forEach((spans, r) => {
      const top = r * rankHeight;
      context.fillStyle = colour("panel");
      context.fillRect(labelWidth, top + lanes[0].top, right, lanes[0].height);
      spans.forEach((lane, l) => {
        for (let i = Math.max(0, lastAt(lane, from) - 1); i < lane.length && placeOf(lane[i].begin) < right; ++i) {
          const one = lane[i], x = placeOf(one.begin), width = placeOf(one.end) - x, y = top + lanes[l].top;
          const isPass = one.microbatch !== undefined;
          context.fillStyle = isPass && byMicrobatch ? `oklch(0.62 0.14 ${one.microbatch * 137.5})` : colour(one.colour);
          context.fillRect(x, y, width > 3 ? width - 0.5 : width, lanes[l].height);
          if (one === chosen) {
            context.strokeStyle = colour("text");
            context.lineWidth = 2;
            context.strokeRect(x, y, width, lanes[l].height);
          }
          if (isPass && width > 8 + 7 * String(one.microbatch).length) {
            context.fillStyle = colour("ground");
            context.fillText(one.microbatch, x + width / 2, y + 12);
          }
        }
      });
    });
    context.fillStyle = colour("ground");
    context.fillRect(0, 0, labelWidth, canvas.clientHeight);
    context.fillStyle = context.strokeStyle = colour("text");
    context.textAlign = "right";
    ranks.forEach((_, r) => context.fillText(ranks.length > 1 ? `rank ${r}` : "a device", labelWidth - 6, r * rankHeight + 14));
    context.textAlign = "center";
    const distance = tickDistance(90 / perUnit * data.unit), bottom = ranks.length * rankHeight;
    for (let tick = Math.ceil(from * data.unit / distance); tick * distance <= last * data.unit * 1.0001; ++tick) {
      const x = placeOf(tick * distance / data.unit);
      if (x > right) break;
      context.fillRect(x, bottom, 1, 5);
      context.fillText(tick ? secondsText(tick * distance) : "0", Math.min(x, right - 20), bottom + 18);
    }
  }

  function choose(one, ...more) {
    chosen = one;
    told.textContent = [one, ...more].map((each) => each.tell()).join("\n");
    draw();
  }

  // Around the middle of what is in sight.
  function zoomBy(factor) {
    const middle = (region.scrollLeft + room() / 2) / zoom, most = Math.max(8, 50 * last / (shortest * room()));
    zoom = Math.min(most, Math.max(1, zoom * factor));
    draw();
    region.scrollLeft = middle * zoom - room() / 2;
    draw();
  }

  function showLegend() {
    const used = new Map(); // words by colour
    for (const spans of ranks)
      for (const one of spans.flat())
        if (!byMicrobatch || one.microbatch === undefined) used.set(one.colour, { exposed: "collectives of a pass",
          ep: "collectives once a step", pp: "transfers to another stage", other: "update" }[one.colour] ?? one.colour.replace("-", " "));
    legend.replaceChildren(...[...used].map(([colour, words]) =>
      element("li", {}, element("i", { style: `background:var(--${colour})` }), words)),
      byMicrobatch ? element("li", {}, "a pass has its microbatch's colour") : "");
  }

  canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => {
    const y = offsetY % rankHeight, spans = ranks[Math.floor(offsetY / rankHeight)];
    const lane = lanes.findLastIndex(({ top }) => y >= top), time = (offsetX - labelWidth + region.scrollLeft) / scale();
    if (!spans || lane < 0 || offsetX < labelWidth) return;
    const at = lastAt(spans[lane], time), one = spans[lane].slice(Math.max(0, at - 1), at + 1).findLast(({ end }) => end >= time);
    if (one && one !== chosen) choose(one);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const before = chosen && ranks[rank][0].includes(chosen) ? chosen : null;
    rank = Math.min(ranks.length - 1, Math.max(0, rank + step[0]));
    const passes = ranks[rank][0], at = before ? lastAt(passes, before.begin) + step[1] : 0;
    const one = passes[Math.min(passes.length - 1, Math.max(0, at))];
    if (xOf(one.begin) < labelWidth || xOf(one.end) > canvas.clientWidth) region.scrollLeft += xOf(one.begin) - labelWidth - room() / 3;
    choose(one, ...one.more);
  });
  const button = (text, action) => {
    const made = element("button", {}, text);
    made.addEventListener("click", () => action(made));
    return made;
  };
  figure.append(button("zoom in", () => zoomBy(2)), " ", button("zoom out", () => zoomBy(0.5)), " ",
    button("colour microbatches", (made) => {
      byMicrobatch = !byMicrobatch;
      made.textContent = byMicrobatch ? "colour passes" : "colour microbatches";
      showLegend();
      draw();
    }), legend, region, told);
  showLegend();
  draw();
  region.addEventListener("scroll", draw);
  new ResizeObserver(draw).observe(region);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

document.querySelectorAll("figure.timeline").forEach(drawTimeline);
