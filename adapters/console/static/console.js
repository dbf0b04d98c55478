// What works only with a script: dragging the slider, charts, and the live tail. Everything else is plain HTML.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The slider: while it is dragged, the page below follows; when it is let go, the URL has the moment.
let dragging = false;
let waiting = 0;

function target(slider) {
  const step = Number(slider.value);
  const position = slider.dataset.positions.trim().split(" ")[step];
  return step === Number(slider.max) ? slider.dataset.now : slider.dataset.here.replace("AT", position);
}

function follow(slider) {
  const step = Number(slider.value);
  const positions = slider.dataset.positions.trim().split(" ");
  const moment = slider.dataset.times.split("|")[step];
  const isNow = step === Number(slider.max);
  const bar = slider.closest(".time");
  const said = `${moment}, position ${Number(positions[step]).toLocaleString("en")}`;
  bar.classList.toggle("past", !isNow);
  bar.querySelector(".moment .what").textContent = isNow ? "Now" : "As of";
  bar.querySelector(".moment .where").textContent = said;
  slider.setAttribute("aria-valuetext", isNow ? `now, ${said}` : said);
  for (const drawn of bar.querySelectorAll(".histogram .bar")) {
    drawn.classList.toggle("later", Number(drawn.getAttribute("x")) >= step);
  }
}

async function show(slider) {
  const url = target(slider);
  await htmx.ajax("GET", url, { target: "#main", select: "#main", swap: "outerHTML" });
}

// What surrounds the slider (links to the moments before and after, forms, the menu) has the moment too.
async function settle(slider) {
  clearTimeout(waiting);
  const url = target(slider);
  await htmx.ajax("GET", url, { target: "body", swap: "innerHTML" });
  history.pushState(null, "", url);
  document.querySelector(".slider")?.focus({ preventScroll: true });
}

document.addEventListener("input", (event) => {
  if (!event.target.matches(".slider")) return;
  dragging = true;
  follow(event.target);
  clearTimeout(waiting);
  waiting = setTimeout(() => dragging && show(event.target), 120);
});

document.addEventListener("change", (event) => {
  if (!event.target.matches(".slider")) return;
  dragging = false;
  settle(event.target);
});

addEventListener("popstate", () => location.reload());

// Charts: <div class="chart" data-chart='{"x": [seconds], "series": [{"label": "", "values": []}]}'>
function draw(place) {
  const data = JSON.parse(place.dataset.chart);
  const strokes = [colour("--accent"), colour("--past"), colour("--ink-3")];
  const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
  const options = {
    width: place.clientWidth,
    height: 220,
    cursor: { drag: { x: false, y: false } },
    series: [{}, ...data.series.map((item, index) => ({
      label: item.label, stroke: strokes[index % strokes.length], width: 1.5, points: { show: false },
      fill: index === 0 ? colour("--accent-soft") : undefined,
    }))],
    axes: [axis, { ...axis, size: 64 }],
  };
  place.replaceChildren();
  const chart = new uPlot(options, [data.x, ...data.series.map((item) => item.values)], place);
  new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: 220 })).observe(place);
}

function begin(root) {
  for (const slider of root.querySelectorAll(".slider[hidden]")) {
    slider.hidden = false;
    const step = Number(slider.value);
    slider.setAttribute("aria-valuetext", slider.dataset.times.split("|")[step]);
  }
  root.querySelectorAll(".chart[data-chart]").forEach(draw);
  root.dispatchEvent(new CustomEvent("console:begin", { bubbles: true }));
}

document.addEventListener("DOMContentLoaded", () => begin(document.body));
document.addEventListener("htmx:afterSwap", (event) => begin(event.detail.target.isConnected ? event.detail.target : document.body));
