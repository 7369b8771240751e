// The console without this script is pages that one reloads. With it they change in place.
"use strict";
(() => {
  const body = document.body, page = body.dataset.page;
  const two = (n) => String(n).padStart(2, "0");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "the browser's zone";

  // Times are in the viewer's zone; the whole one, and how long ago it was, on hover.
  const localize = (root) => {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const d = new Date(t.getAttribute("datetime"));
      if (isNaN(d)) continue;
      const today = new Date().toDateString() === d.toDateString();
      const text = (today ? "" : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} `) +
        `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
      if (t.textContent !== text) t.textContent = text;
      const s = Math.round((Date.now() - d) / 1000), a = Math.abs(s);
      const rel = a < 60 ? `${a} s` : a < 3600 ? `${Math.floor(a / 60)} min` : `${Math.floor(a / 3600)} h ${Math.floor(a / 60) % 60} min`;
      t.title = `${d.toLocaleString()} ${zone}, ${s >= 0 ? rel + " ago" : "in " + rel}`;
    }
    for (const t of root.querySelectorAll("text[data-time]")) {
      const d = new Date(t.dataset.time);
      t.textContent = `${two(d.getHours())}:${two(d.getMinutes())}`;
    }
  };

  // Tables are sorted by a click on a head, and stay so when they change.
  const sorted = {};
  const value = (row, i) => {
    const c = row.cells[i], t = c.querySelector("time");
    if (t) return Date.parse(t.getAttribute("datetime"));
    const text = c.textContent.trim(), n = parseFloat(text.replace(/[,\s]/g, ""));
    return c.classList.contains("n") ? (isNaN(n) ? -1 : n * (/\bk\b/.test(text) ? 1e3 : /\bM\b/.test(text) ? 1e6 : 1)) : text.toLowerCase();
  };
  const apply = (table, id) => {
    const s = sorted[id];
    if (!s) return;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const x = value(a, s.i), y = value(b, s.i);
      return (x < y ? -1 : x > y ? 1 : 0) * s.dir;
    });
    table.tBodies[0].append(...rows);
    for (const [i, th] of [...table.tHead.rows[0].cells].entries()) {
      if (i === s.i) th.setAttribute("aria-sort", s.dir > 0 ? "ascending" : "descending");
      else th.removeAttribute("aria-sort");
    }
  };
  const sortable = (root) => {
    for (const table of root.querySelectorAll("table[data-sort]")) {
      const id = (table.closest("[id]") || {}).id || "table";
      for (const [i, th] of [...table.tHead.rows[0].cells].entries()) {
        if (th.tagName !== "TH" || th.classList.contains("nosort") || th.querySelector("button")) continue;
        const b = document.createElement("button");
        b.type = "button";
        b.textContent = th.textContent;
        b.addEventListener("click", () => {
          const s = sorted[id], first = th.classList.contains("n") ? -1 : 1;
          sorted[id] = { i, dir: s && s.i === i ? -s.dir : first };
          apply(table, id);
        });
        th.replaceChildren(b);
      }
      apply(table, id);
    }
  };

  const dress = (root) => { localize(root); sortable(root); };
  dress(document);
  const z = document.getElementById("zone");
  if (z) z.textContent = zone;

  // A change asks once more, in the words of its form.
  for (const f of document.querySelectorAll("form[data-confirm]")) {
    f.addEventListener("submit", (e) => { if (!window.confirm(f.dataset.confirm)) e.preventDefault(); });
  }
  for (const i of document.querySelectorAll("input[name=limit]")) {
    i.addEventListener("input", () => { document.getElementById("kind-limit").checked = true; });
  }
  if (!page || !window.EventSource || !document.getElementById("zone")) return;

  // What changes comes as server-sent events. A part in which someone is typing waits, and so does one with a selection.
  const busy = (el) => {
    const a = document.activeElement, s = window.getSelection();
    return (el.contains(a) && /^(INPUT|TEXTAREA|SELECT|SUMMARY)$/.test(a.tagName)) ||
      (s && !s.isCollapsed && el.contains(s.anchorNode));
  };
  const stale = document.getElementById("stale");
  let last = Date.now(), source = null;
  const put = (m) => {
    const el = document.getElementById(m.id);
    if (!el || busy(el)) return;
    const at = el.contains(document.activeElement) ? path(el, document.activeElement) : null;
    const open = [...el.querySelectorAll("details")].map((d) => d.open);
    const scroll = [...el.querySelectorAll(".wide")].map((d) => d.scrollLeft);
    el.innerHTML = m.html;
    el.querySelectorAll("details").forEach((d, i) => { d.open = !!open[i]; });
    el.querySelectorAll(".wide").forEach((d, i) => { d.scrollLeft = scroll[i] || 0; });
    dress(el);
    if (at) focusAt(el, at);
  };
  const path = (root, el) => [...root.querySelectorAll("a,button,[tabindex]")].indexOf(el);
  const focusAt = (root, i) => { const el = root.querySelectorAll("a,button,[tabindex]")[i]; if (el) el.focus({ preventScroll: true }); };
  const connect = () => {
    const q = body.dataset.query;
    source = new EventSource(`/stream?page=${page}${q ? "&" + q : ""}`);
    source.onmessage = (e) => put(JSON.parse(e.data));
    source.addEventListener("at", () => { last = Date.now(); stale.hidden = true; body.classList.remove("old"); });
  };
  connect();
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source.close(); } else { last = Date.now(); connect(); }
  });
  setInterval(() => {
    if (document.hidden || Date.now() - last < 3500) return;
    const d = new Date(last);
    stale.textContent = `Stale since ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}: this member does not answer.`;
    stale.hidden = false;
    body.classList.add("old");
    if (source.readyState === EventSource.CLOSED) connect();
  }, 1000);
})();
