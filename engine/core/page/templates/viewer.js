"use strict";
// Sorts, filters and searches the items of the page, which stand in it as plain HTML. An address opens its item; the viewer can
// be set by the address too: report.html?kind=trigger&search=hats#items
(() => {
  const section = document.getElementById("items");
  const list = section.querySelector(".list");
  const controls = section.querySelector(".controls");
  const fields = Object.fromEntries([...controls.querySelectorAll("[name]")].map((field) => [field.name, field]));
  const items = [...list.children].map((element, place) => ({
    element,
    place,
    kind: element.dataset.kind,
    group: element.dataset.group,
    tags: JSON.parse(element.dataset.tags),
    values: JSON.parse(element.dataset.values),
    text: element.textContent.toLowerCase(),
  }));

  function offer(field, names) {
    const chosen = field.value;
    const options = [...new Set(names)].map((name) => new Option(name.replace(/^[+-]/, ""), name));
    field.replaceChildren(field.options[0], ...options);
    field.value = options.some((option) => option.value === chosen) ? chosen : "";
  }

  function orders(shown) {
    const names = [...new Set(shown.flatMap((item) => Object.keys(item.values)))];
    return names.flatMap((name) => [`-${name}, high first`, `+${name}, low first`]);
  }

  function refresh() {
    const ofKind = items.filter((item) => !fields.kind.value || item.kind === fields.kind.value);
    offer(fields.group, ofKind.map((item) => item.group));
    const ofGroup = ofKind.filter((item) => !fields.group.value || item.group === fields.group.value);
    offer(fields.tag, ofGroup.flatMap((item) => item.tags));
    offer(fields.order, orders(ofGroup));
    const words = fields.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = new Set(
      ofGroup.filter(
        (item) =>
          (!fields.tag.value || item.tags.includes(fields.tag.value)) && words.every((word) => item.text.includes(word)),
      ),
    );
    const [sign, name] = [fields.order.value[0] === "-" ? -1 : 1, fields.order.value.slice(1).replace(/, (high|low) first$/, "")];
    const rank = (item) => (name in item.values ? sign * item.values[name] : Infinity);
    const before = (a, b) => (rank(a) === rank(b) ? a.place - b.place : rank(a) - rank(b));
    for (const item of items) item.element.hidden = !shown.has(item);
    list.append(...[...items].sort(name ? before : (a, b) => a.place - b.place).map((item) => item.element));
    controls.querySelector("output").value = `${shown.size} of ${items.length}`;
  }

  function follow() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const item = target && target.closest("details.item");
    if (!item) return;
    item.hidden = false;
    item.open = true;
    item.scrollIntoView();
  }

  offer(fields.kind, items.map((item) => item.kind));
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (!(name in fields)) continue;
    refresh();
    fields[name].value = value;
    if (fields[name].value !== value) fields[name].value = "";
  }
  controls.addEventListener("input", refresh);
  addEventListener("hashchange", follow);
  controls.hidden = false;
  refresh();
  follow();
})();
