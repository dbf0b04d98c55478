// What works only with a script: dragging the slider, keys, copying, and following the log. All else is plain HTML.
"use strict";

// The slider: while it is dragged, the page below follows; when it is let go, the URL has the moment.
let dragging = false;
let waiting = 0;

// Of each step: the moment for the URL, empty for now; its time; its position, empty where that is not told.
const step = (slider) => JSON.parse(slider.dataset.steps)[Number(slider.value)];

function target(slider) {
  const url = new URL(slider.dataset.now, location.href);
  const [at] = step(slider);
  if (at) url.searchParams.set("at", at);
  return url.pathname + url.search;
}

function follow(slider) {
  const [at, time, position] = step(slider);
  const bar = slider.closest(".time");
  bar.classList.toggle("past", Boolean(at));
  bar.querySelector(".moment .what").textContent = at ? "As of" : "Now";
  const place = document.createElement("span");
  place.className = "position";
  place.textContent = position;
  bar.querySelector(".moment .where").replaceChildren(time, " ", place);
  for (const drawn of bar.querySelectorAll(".histogram .bar")) {
    drawn.classList.toggle("later", Number(drawn.getAttribute("x")) >= Number(slider.value));
  }
  describe(slider);
}

// A screen reader says of the slider what is written beside it.
function describe(slider) {
  const moment = slider.closest(".time").querySelector(".moment");
  slider.setAttribute("aria-valuetext", moment.textContent.trim().replace(/\s+/g, " "));
}

function show(slider) {
  htmx.ajax("GET", target(slider), { source: slider, target: "#main", select: "#main", swap: "outerHTML" });
}

// What surrounds the slider (links to the moments before and after, forms, the menu) has the moment too. One page is
// fetched at a time: where the thumb was moved on in the meantime, the next one is that of where it is then.
let wanted = null;

async function settle(slider) {
  clearTimeout(waiting);
  const isUnderWay = wanted !== null;
  wanted = slider.value;
  if (isUnderWay) return;
  try {
    for (let reached = null; slider && reached !== wanted;) {
      reached = wanted;
      const url = target(slider);
      await htmx.ajax("GET", url, { target: "body", swap: "innerHTML" });
      slider = document.querySelector(".slider");
      slider?.focus({ preventScroll: true });
      if (slider && reached !== wanted) {
        slider.value = wanted;
        follow(slider);
      } else {
        history.pushState(null, "", url);
        address = withoutPart(location.href);
      }
    }
  } finally {
    wanted = null;
  }
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

// The way back to another moment. A link to a part of this page is also one of the browser's steps, and stays.
const withoutPart = (url) => url.split("#")[0];
let address = withoutPart(location.href);
addEventListener("popstate", () => withoutPart(location.href) === address || location.reload());

// The live page: whatever /v1/tail sends, the list is loaded again, twice a second at most.
let followed = null;
let source = null;

function followLog(place) {
  if (place === followed) return;
  source?.close();
  followed = place;
  source = new EventSource(place.dataset.tail);
  let due = 0;
  const say = (text) => (place.querySelector(".said").textContent = text);
  source.onopen = () => say("Following: new events appear here.");
  source.onerror = () => say(source.readyState === EventSource.CLOSED ? "The server ended the connection. Reload the page." : "The connection was lost; trying again.");
  source.onmessage = () => {
    due ||= setTimeout(() => {
      due = 0;
      if (followed === place) htmx.trigger(place, "news");
    }, 500);
  };
  const pause = place.querySelector(".pause");
  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (followed === null) location.reload();
    source.close();
    followed = null;
    pause.textContent = "Resume";
    say("Paused.");
  });
}

// `/` or Ctrl K: to the search, from wherever nothing is being typed.
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input:not([type=range], [type=checkbox]), textarea, select");
  const isAsked = event.key === "k" ? event.ctrlKey || event.metaKey : event.key === "/" && !isTyping;
  const search = document.getElementById("search");
  if (!isAsked || !search) return;
  event.preventDefault();
  search.focus();
  search.select();
});

// The review of answers, while the focus is in it: to the next answer or the one before, and what is said of its turns.
document.addEventListener("keydown", (event) => {
  const review = event.target.closest("#review");
  const isTyping = event.target.closest("input:not([type=checkbox])") || event.ctrlKey || event.metaKey || event.altKey;
  if (!review || isTyping) return;
  review.querySelector({ j: "a[rel=next]", k: "a[rel=prev]" }[event.key] ?? "none")?.click();
  const form = review.querySelector("form");
  if (event.key === "Enter" && event.target === review) form?.requestSubmit();
  if (event.key === "0" && form) form.elements.nothing.checked ^= true;
  const [good, bad] = form?.querySelectorAll("li")[Number(event.key) - 1]?.querySelectorAll("input") ?? [];
  if (good) [good.checked, bad.checked] = [!good.checked && !bad.checked, good.checked];
});

// The proposals, while the focus is on one: to the next or the one before, tick it, approve it, say why not.
document.addEventListener("keydown", (event) => {
  const item = event.target.closest("#proposals > li");
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea") || event.ctrlKey || event.metaKey || event.altKey;
  if (!item || isTyping) return;
  const next = { j: item.nextElementSibling, k: item.previousElementSibling }[event.key];
  next?.querySelector("h2 :is(input, a)").focus();
  const found = item.querySelector({ x: "[type=checkbox]", a: ".yes button", d: "[name=reason]" }[event.key] ?? "none");
  if (event.key === "d") found?.focus();
  else found?.click();
  if (found || next) event.preventDefault();
});

// A text is copied by a button, where the browser lets a page do that.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.parentElement.querySelector("pre, code").textContent);
  button.textContent = "Copied";
});

// Times are shown in the zone of the reader, which this cookie names: without it the page came in UTC.
const zone = `mnemolog_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
if (!document.cookie.split("; ").includes(zone)) {
  document.cookie = `${zone}; path=/; max-age=31536000; samesite=strict`;
  const shown = document.documentElement.dataset.zone; // Not of a page that answers a form: it is not loaded again.
  if (shown && !zone.endsWith(`=${shown}`) && document.cookie.split("; ").includes(zone)) location.reload();
}

function begin(root) {
  if (followed && !followed.isConnected) source.close();
  for (const slider of root.querySelectorAll(".slider[hidden]")) {
    slider.hidden = false;
    describe(slider);
  }
  root.querySelectorAll(".tail[data-tail]").forEach(followLog);
  // What scrolls sideways can be scrolled with the keyboard.
  for (const place of root.querySelectorAll(".table")) {
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  }
  for (const keys of root.querySelectorAll("[data-keys]")) keys.hidden = false;
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  root.dispatchEvent(new CustomEvent("console:begin", { bubbles: true }));
}

document.addEventListener("DOMContentLoaded", () => begin(document.body));
document.addEventListener("htmx:afterSwap", (event) => begin(event.detail.target.isConnected ? event.detail.target : document.body));
