/* The game's page: a price for each step, against the clock if there is one. */
(function () {
  "use strict";
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const part = (name) => document.getElementById(name);
  const chart = (name) => window.reportCharts.get(part(name));
  let left = facts.seconds, over = false, busy = false;

  function fill(figure, name, values) {
    const series = figure.spec.series.find((s) => s.name === name);
    if (series) series.y = series.x.map((_, i) => (values && i < values.length ? values[i] : null));
  }

  function show(state) {
    part("you").textContent = state.points.you.toFixed(1);
    part("optimum").textContent = state.points.optimum.toFixed(1);
    const context = state.context ? ", " + state.context : "";
    part("when").textContent = `${state.clock}, step ${state.time} of ${state.horizon}${context}`;
    part("words").textContent = state.words;
    for (const name of ["you", "optimum", "uncontrolled"]) fill(chart("power"), name, state.power[name]);
    fill(chart("power"), "asked", state.asked);
    fill(chart("market"), "market", state.signal);
    chart("power").draw();
    chart("market").draw();
    over = state.done;
    part("go").disabled = over;
    left = facts.seconds;
  }

  async function send(name, content) {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(name, content === undefined ? {} : { method: "POST", body: JSON.stringify(content) });
      const state = await answer.json();
      if (answer.ok) show(state); else part("words").textContent = state.error;
    } catch (error) {
      over = true;
      part("words").textContent = "The game has ended in the terminal.";
    }
    busy = false;
  }

  const price = () => Number(part("price").value);
  const step = () => { if (!over) send("step", { price: price() }); };
  part("price").addEventListener("input", () => { part("shown").textContent = price().toFixed(2); });
  part("price").addEventListener("keydown", (event) => { if (event.key === "Enter") step(); });
  part("go").addEventListener("click", step);
  part("new").addEventListener("click", () => send("new", {}));
  part("clock").hidden = !facts.seconds;
  if (facts.seconds) setInterval(() => {
    if (over || busy) return;
    left -= 0.1;
    part("clock").value = Math.max(0, left / facts.seconds);
    if (left <= 0) step();
  }, 100);
  send("state");
})();
