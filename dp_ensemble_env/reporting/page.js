/* What moves on a page: charts drawn from their JSON, words, sorted tables.
   Everything works with a mouse, a finger and a keyboard, and nothing is loaded. */
(function () {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const node = (name, attributes, parent, text) => {
    const made = document.createElementNS(SVG, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  };
  const html = (name, properties, parent) => {
    const made = Object.assign(document.createElement(name), properties);
    if (parent) parent.appendChild(made);
    return made;
  };
  const colour = (series) => "var(--" + series.color + ")";
  const clock = (hours) => {
    const minutes = Math.round(60 * hours);
    return String(Math.floor(minutes / 60) % 24).padStart(2, "0") + ":" + String(minutes % 60).padStart(2, "0");
  };

  /* A scale takes numbers to pixels; its ticks are round numbers, or those that the chart names. */
  function scale(low, high, from, to, named) {
    if (low === high) { low -= 1; high += 1; }
    const of = (v) => from + (to - from) * (v - low) / (high - low);
    let ticks = [];
    if (named) {
      ticks = named;
    } else {
      let rough = (high - low) / Math.max(2, Math.min(5, Math.abs(to - from) / 40)), step;
      do { // until there are three ticks
        const power = 10 ** Math.floor(Math.log10(rough));
        step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
        rough = step / 2.6;
      } while (Math.floor(high / step) - Math.ceil(low / step) < 2);
      for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) {
        const value = Math.abs(v) < 1e-9 * step ? 0 : v;
        ticks.push([value, number.format(value)]);
      }
    }
    return { of, ticks: ticks.filter((t) => t[0] >= low * (1 - 1e-9) && t[0] <= high * (1 + 1e-9)) };
  }

  class Chart {
    constructor(figure) {
      this.spec = JSON.parse(figure.querySelector("script").textContent);
      this.live = figure.querySelector(".live");
      this.hidden = new Set(this.spec.series.filter((s) => !s.shown).map((s) => s.name));
      this.cursor = null;
      html("p", { className: "title", textContent: this.spec.title }, this.live);
      this.svg = node("svg", { tabindex: 0, role: "img" }, this.live);
      this.values = html("div", { className: "values", hidden: true }, this.live);
      this.values.setAttribute("role", "status");
      this.legend();
      this.listen();
      this.draw();
    }

    legend() {
      if (this.spec.series.length < 2) return;
      const box = html("div", { className: "legend" }, this.live);
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Series of the figure: " + this.spec.title);
      for (const series of this.spec.series) {
        const button = html("button", { type: "button" }, box);
        const key = node("svg", { width: 26, height: 10, "aria-hidden": true, style: "width:26px" }, button);
        const style = { stroke: colour(series), "stroke-width": 2.5, "stroke-dasharray": series.dash };
        if (series.line) node("line", { x1: 0, x2: 26, y1: 5, y2: 5, ...style }, key);
        if (series.dots) node("circle", { cx: 13, cy: 5, r: 4, fill: colour(series) }, key);
        if (series.bars) node("rect", { x: 3, y: 0, width: 20, height: 10, fill: colour(series) }, key);
        button.append(series.name);
        button.setAttribute("aria-pressed", !this.hidden.has(series.name));
        button.addEventListener("click", () => {
          this.hidden[this.hidden.has(series.name) ? "delete" : "add"](series.name);
          button.setAttribute("aria-pressed", !this.hidden.has(series.name));
          this.draw();
        });
      }
    }

    shown() {
      return this.spec.series.filter((s) => !this.hidden.has(s.name));
    }

    frame(series) {
      const spec = this.spec, wide = this.live.clientWidth || 600, rows = spec.rows;
      const tall = rows ? 26 * rows.length + 52 : Math.max(250, Math.min(340, 0.6 * wide));
      const left = rows ? Math.min(0.42 * wide, 8 + 6.9 * Math.max(...rows.map((r) => r.length))) : 46;
      const around = (s) => [...(s.low || []), ...(s.high || [])];
      const xs = [...this.spec.series.flatMap((s) => [...(rows ? [0] : []), ...s.x, ...(rows ? around(s) : [])]), ...spec.marks.map((m) => m[0])];
      const ys = series.flatMap((s) => [...s.y, ...(rows ? [] : around(s))]).filter((v) => v !== null);
      let low = Math.min(...ys), high = Math.max(...ys);
      if (!ys.length) { low = 0; high = 1; }
      const room = 0.05 * (high - low || 1);
      const y = rows ? { of: (v) => 12 + 26 * (v + 0.5), ticks: rows.map((r, i) => [i, r]) }
        : scale(low - room, high + room, tall - 44, 24);
      const most = Math.floor(0.3 * wide / 6.9), short = (note) => (note.length > most ? note.split(/[ ,]/)[0] : note);
      const words = Math.max(0, ...this.spec.series.flatMap((s) => (s.notes || []).map((note) => short(note).length)));
      const cut = !rows && low - room > 0;
      const few = spec.x_ticks && spec.x_ticks.filter((_, i, all) => (all.length - 1 - i) % Math.ceil(all.length * 52 / wide) === 0);
      const x = scale(Math.min(...xs), Math.max(...xs), left + 12, wide - (rows ? 14 + 6.9 * words : 16), few);
      return { wide, tall, left, x, y, short, cut };
    }

    draw() {
      const spec = this.spec, series = this.shown(), svg = this.svg;
      const { wide, tall, left, x, y, cut } = (this.places = this.frame(series));
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${wide} ${tall}`);
      svg.setAttribute("aria-label", `${spec.title}. ${spec.y_label} against ${spec.x_label}. Arrow keys read the values.`);
      const axis = { stroke: "var(--line)" };
      for (const span of spec.windows) {
        const [a, b] = span.map(x.of);
        node("rect", { x: a, y: 20, width: b - a, height: tall - 64, style: "fill:var(--window)" }, svg);
        node("text", { x: a + 4, y: tall - 50 }, svg, "event");
      }
      for (const [v, text] of y.ticks) {
        if (!series.some((s) => s.bars)) node("line", { x1: left, x2: wide - 4, y1: y.of(v), y2: y.of(v), ...axis }, svg);
        const most = Math.floor((left - 8) / 6.9), short = text.length > most ? text.slice(0, most - 1) + "…" : text;
        node("text", { x: left - 6, y: y.of(v) + 4, "text-anchor": "end" }, svg, spec.rows ? short : text);
      }
      for (const [v, text] of x.ticks) {
        node("line", { x1: x.of(v), x2: x.of(v), y1: tall - 44, y2: tall - 39, stroke: "var(--ink)" }, svg);
        const half = 3.4 * text.length, middle = Math.min(x.of(v), wide - half);
        node("text", { x: middle, y: tall - 26, "text-anchor": "middle" }, svg, text);
      }
      const label = spec.x_label;
      const middle = Math.max(3.2 * label.length, Math.min((left + wide) / 2, wide - 3.2 * label.length));
      node("text", { x: middle, y: tall - 7, "text-anchor": "middle" }, svg, label);
      if (!spec.rows) {
        node("text", { x: 2, y: 11 }, svg, spec.y_label + (cut ? " (axis starts above 0)" : ""));
      }
      const places = spec.marks.map((m) => x.of(m[0])), crowded = Math.max(...places) - Math.min(...places) < 80 && places.length > 1;
      for (const [v, text] of spec.marks) {
        const at = x.of(v), half = 3.4 * text.length, anchor = !crowded ? "middle" : at > Math.min(...places) ? "start" : "end";
        node("line", { x1: at, x2: at, y1: 16, y2: tall - 44, stroke: "var(--grey)", "stroke-dasharray": "4 3", "stroke-width": 1.5 }, svg);
        const inside = crowded ? at : Math.max(left + half, Math.min(at, wide - half));
        node("text", { x: inside, y: 11, "text-anchor": anchor }, svg, text);
      }
      for (const one of series) this.line(one);
      this.hand = node("line", { y1: 20, y2: tall - 44, stroke: "var(--ink)", visibility: "hidden" }, svg);
      if (this.cursor !== null) this.read(this.cursor);
    }

    line(series) {
      const { x, y, short } = this.places;
      const points = series.x.map((v, i) => [v, series.y[i], i]).filter((p) => p[1] !== null);
      const path = (list) => list.map((p, i) => (i ? "L" : "M") + x.of(p[0]).toFixed(1) + " " + y.of(p[1]).toFixed(1)).join("");
      if (series.low && this.spec.rows) {
        for (const [, v, i] of points) node("line", { x1: x.of(series.low[i]), x2: x.of(series.high[i]), y1: y.of(v), y2: y.of(v), style: `stroke:${colour(series)};stroke-width:2.2` }, this.svg);
      } else if (series.low) {
        const edge = (of) => series.x.map((v, i) => [v, of[i]]).filter((p) => p[1] !== null);
        const area = path(edge(series.low)) + path(edge(series.high).reverse()).replace("M", "L") + "Z";
        node("path", { d: area, style: `fill:${colour(series)};opacity:0.2` }, this.svg);
      }
      const style = `stroke:${colour(series)};fill:none;stroke-width:2.2`;
      if (series.line) node("path", { d: path(points), style, "stroke-dasharray": series.dash, "data-name": series.name }, this.svg);
      for (const p of series.dots || series.bars ? points : []) {
        const [from, to] = [x.of(0), x.of(p[0])].sort((a, b) => a - b), fill = { style: `fill:${colour(series)}` };
        if (series.bars) node("rect", { x: from, y: y.of(p[1]) - 8, width: to - from, height: 16, ...fill }, this.svg);
        else node("circle", { cx: x.of(p[0]), cy: y.of(p[1]), r: 4, ...fill }, this.svg);
        const edge = "paint-order:stroke;stroke:var(--paper);stroke-width:4px";
        if (!series.notes) continue;
        const words = short(series.notes[p[2]]), right = x.of(p[0]), near = right + 9 + 6.9 * words.length;
        const crossed = this.spec.rows ? this.spec.marks.map((m) => x.of(m[0])).filter((at) => at >= right && at < near) : [];
        node("text", { x: Math.max(right, ...crossed) + 9, y: y.of(p[1]) + 4, style: edge }, this.svg, words);
      }
    }

    /* Show the values at the i-th place: a time, a number on the x axis, or a row. */
    stops() {
      if (this.spec.rows) return this.spec.rows.map((_, i) => i);
      return [...new Set(this.shown().flatMap((s) => s.x))].sort((a, b) => a - b);
    }

    read(index) {
      const stops = this.stops(), { x, y, wide } = this.places, rows = this.spec.rows;
      if (!stops.length) return;
      this.cursor = Math.max(0, Math.min(stops.length - 1, index));
      const v = stops[this.cursor], spec = this.spec;
      const named = (spec.x_ticks || []).find((t) => t[0] === v);
      const head = rows ? rows[v] : spec.clock ? clock(v) : named && isNaN(named[1]) ? named[1] : `${spec.x_name} ${number.format(v)}`;
      this.values.replaceChildren();
      html("b", { textContent: head }, this.values);
      let place = x.of(v);
      for (const s of this.shown()) {
        const i = (rows ? s.y : s.x).indexOf(v);
        if (i < 0 || s.y[i] === null) continue;
        const line = html("div", {}, this.values), value = rows ? s.x[i] : s.y[i];
        html("i", {}, line).style.background = colour(s);
        const range = s.low ? ` (${number.format(s.low[i])} to ${number.format(s.high[i])})` : "";
        line.append(`${rows ? spec.x_name : s.name} ${number.format(value)}${spec.unit}${range}`);
        if (rows) place = x.of(s.x[i]);
      }
      this.values.hidden = false;
      const across = rows ? "y" : "x", at = rows ? y.of(v) : place;
      for (const end of [1, 2]) this.hand.setAttribute(across + end, at);
      for (const end of [1, 2]) if (rows) this.hand.setAttribute("x" + end, end === 1 ? this.places.left : wide);
      this.hand.setAttribute("visibility", "visible");
      const size = this.values.offsetWidth;
      this.values.style.left = Math.max(0, place + 14 + size < wide ? place + 14 : place - 14 - size) + "px";
      this.values.style.top = rows ? Math.min(at + 34, this.places.tall - 20) + "px" : "";
    }

    leave() {
      this.cursor = null;
      this.values.hidden = true;
      this.hand.setAttribute("visibility", "hidden");
    }

    listen() {
      const near = (event) => {
        const box = this.svg.getBoundingClientRect(), rows = this.spec.rows;
        const [of, at] = rows ? [this.places.y.of, event.clientY - box.top] : [this.places.x.of, event.clientX - box.left];
        const far = this.stops().map((v) => Math.abs(of(v) - at));
        this.read(far.indexOf(Math.min(...far)));
      };
      this.svg.addEventListener("pointermove", near);
      this.svg.addEventListener("pointerdown", near);
      this.svg.addEventListener("pointerleave", () => this.leave());
      this.svg.addEventListener("blur", () => this.leave());
      this.svg.addEventListener("keydown", (event) => {
        const last = this.stops().length - 1, now = this.cursor === null ? -1 : this.cursor;
        const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: last };
        if (event.key === "Escape") this.leave();
        if (!(event.key in next)) return;
        event.preventDefault();
        this.read(next[event.key]);
      });
    }
  }

  function words() {
    const tip = html("div", { id: "tip", hidden: true }, document.body);
    tip.setAttribute("role", "tooltip");
    const hide = () => { tip.hidden = true; };
    document.querySelectorAll("a.term").forEach((term) => {
      const show = () => {
        tip.textContent = document.querySelector(term.getAttribute("href")).nextElementSibling.textContent;
        tip.hidden = false;
        const place = term.getBoundingClientRect(), below = place.bottom + 6 + tip.offsetHeight < innerHeight;
        tip.style.left = Math.max(8, Math.min(place.left, innerWidth - tip.offsetWidth - 8)) + "px";
        tip.style.top = (below ? place.bottom + 6 : place.top - 6 - tip.offsetHeight) + "px";
      };
      term.setAttribute("aria-describedby", "tip");
      ["mouseenter", "focus"].forEach((name) => term.addEventListener(name, show));
      ["mouseleave", "blur"].forEach((name) => term.addEventListener(name, hide));
    });
    addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  }

  /* A click on a heading sorts by it: numbers as numbers, dashes last. A table wider than its box says so. */
  function sortable(button) {
    button.addEventListener("click", () => {
      const th = button.parentNode, body = th.closest("table").tBodies[0];
      const column = [...th.parentNode.children].indexOf(th), down = th.getAttribute("aria-sort") !== "descending";
      const value = (row) => {
        const text = row.children[column].textContent.trim(), parsed = parseFloat(text.replace(/,/g, ""));
        return isNaN(parsed) ? text : parsed;
      };
      [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b), mixed = typeof x !== typeof y;
        const order = mixed ? (typeof x === "number" ? -1 : 1) : x < y ? -1 : x > y ? 1 : 0;
        return !mixed && down ? -order : order;
      }).forEach((row) => body.appendChild(row));
      [...th.parentNode.children].forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  }

  function mark() {
    document.querySelectorAll("div.table").forEach((box) => {
      box.classList.toggle("wide", box.firstChild.offsetWidth > box.clientWidth);
    });
  }

  document.documentElement.classList.add("js");
  const charts = new Map();
  document.querySelectorAll("figure.chart").forEach((figure) => charts.set(figure, new Chart(figure)));
  window.reportCharts = charts;
  document.querySelectorAll("th button").forEach(sortable);
  words();
  mark();
  addEventListener("resize", () => { mark(); charts.forEach((chart) => chart.draw()); });
})();
