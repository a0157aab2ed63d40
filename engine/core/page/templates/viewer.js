"use strict";
// Sorts, filters and searches the items of the page. The first ones stand in it as plain HTML; all others lie in a compressed block
// and are drawn as the reader scrolls to them. An address opens its item, and can set the viewer:
// report.html?kind=trigger&search=hats#items
(() => {
  const CHUNK = 100;
  const section = document.getElementById("items");
  const list = section.querySelector(".list");
  const controls = section.querySelector(".controls");
  const output = controls.querySelector("output");
  const end = section.querySelector(".end");
  const packed = section.querySelector(".packed");
  const fields = Object.fromEntries([...controls.querySelectorAll("[name]")].map((field) => [field.name, field]));
  const items = [...list.children].map((element, place) => ({
    element,
    place,
    anchor: element.querySelector(".body").id,
    kind: element.dataset.kind,
    group: element.dataset.group,
    tags: JSON.parse(element.dataset.tags),
    values: JSON.parse(element.dataset.values),
  }));
  let shown = [];
  let drawn = 0;

  function words(item) {
    if (item.text === undefined) {
      const scratch = document.createElement("template");
      if (!item.element) scratch.innerHTML = `${item.summary} ${item.body} ${item.group} ${item.key}`;
      item.text = (item.element || scratch.content).textContent.toLowerCase();
    }
    return item.text;
  }

  // The words of summary, body, group and key were escaped when the page was written, so that they are text here too.
  function element(item) {
    if (!item.element) {
      const details = document.createElement("details");
      details.className = "item";
      details.innerHTML = `<summary>${item.summary}</summary><div class="body">${item.body}<p class="address"><a>#</a> <span></span>, <code></code></p></div>`;
      details.querySelector(".body").id = item.anchor;
      details.querySelector(".address a").href = `#${item.anchor}`;
      details.querySelector(".address span").textContent = item.group;
      details.querySelector(".address code").textContent = item.key;
      item.element = details;
    }
    return item.element;
  }

  function draw(count) {
    const next = shown.slice(drawn, drawn + count);
    list.append(...next.map(element));
    drawn += next.length;
    end.hidden = drawn >= shown.length;
  }

  function offer(field, names) {
    const chosen = field.value;
    const options = [...new Set(names)].map((name) => new Option(name.replace(/^[+-]/, ""), name));
    field.replaceChildren(field.options[0], ...options);
    field.value = options.some((option) => option.value === chosen) ? chosen : "";
  }

  function orders(offered) {
    const names = [...new Set(offered.flatMap((item) => Object.keys(item.values)))];
    return names.flatMap((name) => [`-${name}, high first`, `+${name}, low first`]);
  }

  function refresh() {
    const ofKind = items.filter((item) => !fields.kind.value || item.kind === fields.kind.value);
    offer(fields.group, ofKind.map((item) => item.group));
    const ofGroup = ofKind.filter((item) => !fields.group.value || item.group === fields.group.value);
    offer(fields.tag, ofGroup.flatMap((item) => item.tags));
    offer(fields.order, orders(ofGroup));
    const wanted = fields.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = ofGroup.filter(
      (item) => (!fields.tag.value || item.tags.includes(fields.tag.value)) && wanted.every((word) => words(item).includes(word)),
    );
    const [sign, name] = [fields.order.value[0] === "-" ? -1 : 1, fields.order.value.slice(1).replace(/, (high|low) first$/, "")];
    const rank = (item) => (name in item.values ? sign * item.values[name] : Infinity);
    if (name) shown.sort((a, b) => (rank(a) === rank(b) ? a.place - b.place : rank(a) - rank(b)));
    list.replaceChildren();
    drawn = 0;
    draw(CHUNK);
    output.value = `${shown.length.toLocaleString("en")} of ${items.length.toLocaleString("en")}`;
  }

  function follow() {
    const anchor = decodeURIComponent(location.hash.slice(1));
    const item = items.find((candidate) => candidate.anchor === anchor);
    if (!item) return;
    const target = element(item);
    if (!target.isConnected) list.prepend(target);
    target.open = true;
    target.scrollIntoView();
  }

  function start() {
    offer(fields.kind, items.map((item) => item.kind));
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (!(name in fields)) continue;
      refresh();
      fields[name].value = value;
      if (fields[name].value !== value) fields[name].value = "";
    }
    refresh();
    follow();
  }

  async function unpack() {
    const bytes = Uint8Array.from(atob(packed.content.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const lines = (await new Response(stream).text()).split("\n").filter(Boolean);
    for (const line of lines) {
      const [anchor, kind, group, key, tags, values, summary, body] = JSON.parse(line);
      items.push({ place: items.length, anchor, kind, group, key, tags, values, summary, body });
    }
  }

  controls.addEventListener("input", refresh);
  addEventListener("hashchange", follow);
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && draw(CHUNK), {
    rootMargin: "1000px",
  }).observe(end);
  end.querySelector("button").addEventListener("click", () => draw(CHUNK));
  controls.hidden = false;
  start();
  if (packed) {
    section.ariaBusy = "true";
    output.value = `${items.length} of more: reading`;
    unpack()
      .then(start, () => (output.value = `${items.length} alone: this browser cannot read the others`))
      .then(() => (section.ariaBusy = "false"));
  }
})();
