// What works only with a script: dragging the slider, keys, copying, and the live tail. Everything else is plain HTML.
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
  bar.querySelector(".moment .where").replaceChildren(time, " ", element("span", { class: "position" }, position));
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

// A time in seconds as the pages write it: in the zone of the server.
function written(seconds) {
  const there = new Date((seconds + Number(document.body.dataset.utcOffset)) * 1000);
  return there.toISOString().slice(0, 19).replace("T", " ");
}

// The live tail: events from /v1/tail are put on top of those that the page has, as text.
const SHOWN_MAX = 500;
// What steers text or hides it, as mnemolog.domain.display has it: not the tags of a flag.
const escaped = /\u{1f3f4}[\u{e0030}-\u{e0039}\u{e0061}-\u{e007a}]{3,6}\u{e007f}|[\u0000-\u001f\u007f-\u009f\u200b\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\u{e0000}-\u{e007f}]/gu;
const escape = (code) => (code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);
const visible = (text) => text.replace(escaped, (found) => (found.startsWith("\u{1f3f4}") ? found : escape(found.codePointAt(0))));

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function eventLine(list, moment) {
  const time = element("time", { datetime: moment.at }, written(Date.parse(moment.at) / 1000));
  const address = list.dataset.event.replace("/event/0", `/event/${moment.position}`);
  const place = element("a", { class: "position", href: address }, `@${moment.position.toLocaleString("en")}`);
  const what = element("span", { class: "what" });
  if (moment.session) {
    const href = list.dataset.session.replace("SESSION", encodeURIComponent(moment.session));
    what.append(element("span", { class: "in" }, element("a", { href }, element("bdi", {}, visible(moment.who)))), " ");
  }
  what.append(element("span", { dir: "auto" }, visible(moment.what)));
  return element("li", { class: "fresh" }, element("span", { class: "when" }, time, " ", place), what);
}

function followLog(place) {
  const list = place.querySelector(".events");
  const said = place.querySelector(".said");
  const pause = place.querySelector(".pause");
  const waiting = [];
  let paused = false;
  const source = new EventSource(place.dataset.tail);

  function put(moment) {
    const line = eventLine(list, moment);
    list.prepend(line);
    setTimeout(() => line.classList.remove("fresh"), 1000);
    while (list.children.length > SHOWN_MAX) list.lastElementChild.remove();
  }

  function say(text) {
    if (said.textContent !== text) said.textContent = text;
  }

  source.onopen = () => say(paused ? "Paused." : "Following: new events appear here.");
  source.onerror = () => say(source.readyState === EventSource.CLOSED ? "The server ended the connection. Reload the page." : "The connection was lost; trying again.");
  source.onmessage = (message) => {
    const moment = JSON.parse(message.data);
    if (!paused) put(moment);
    else if (waiting.push(moment) > SHOWN_MAX) waiting.shift();
    if (paused) say(`Paused; ${waiting.length} new.`);
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    if (!paused) waiting.splice(0).forEach(put);
    say(paused ? "Paused." : "Following: new events appear here.");
  });
  new MutationObserver((_, observer) => {  // The page was replaced.
    if (place.isConnected) return;
    source.close();
    observer.disconnect();
  }).observe(document.body, { childList: true, subtree: true });
  addEventListener("pagehide", () => source.close(), { once: true });
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

// A text is copied by a button, where the browser lets a page do that.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.parentElement.querySelector("pre, code").textContent);
  button.textContent = "Copied";
});

function begin(root) {
  for (const slider of root.querySelectorAll(".slider[hidden]")) {
    slider.hidden = false;
    describe(slider);
  }
  root.querySelectorAll(".tail[data-tail]").forEach(followLog);
  // What scrolls sideways can be scrolled with the keyboard.
  for (const place of root.querySelectorAll(".table")) {
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0;
  }
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
  root.dispatchEvent(new CustomEvent("console:begin", { bubbles: true }));
}

document.addEventListener("DOMContentLoaded", () => begin(document.body));
document.addEventListener("htmx:afterSwap", (event) => begin(event.detail.target.isConnected ? event.detail.target : document.body));
