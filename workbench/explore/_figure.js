// The figure of an explorer: drawn into one div for good, so that zoom and legend stay.
const MIME = "application/vnd.plotly.v1+json";
const PATIENCE_MS = 300;
let loading;

// plotly.js is on the page once a figure was shown; JupyterLab and Notebook 7 serve it with
// plotly's own extension; elsewhere the kernel sends it, once per page. Never from the network.
async function load(content) {
  if (window.Plotly?.react) return window.Plotly;
  const extension = window._JUPYTERLAB?.["jupyterlab-plotly"];
  if (extension) {
    const { rendererFactory } = (await extension.get("./mimeExtension"))();
    const renderer = rendererFactory.createRenderer({ mimeType: MIME });
    await renderer.renderModel({ data: { [MIME]: { data: [], layout: {} } }, setData() {} });
    for (let tries = 0; !window.Plotly && tries < 100; tries++) {
      await new Promise(done => setTimeout(done, 50));
    }
    if (window.Plotly) return window.Plotly;
  }
  const [script] = await new Promise(resolve => {
    const answered = (message, buffers) => {
      if (message !== "plotly.js") return;
      content.off("msg:custom", answered);
      resolve(buffers);
    };
    content.on("msg:custom", answered);
    content.send("plotly.js");
  });
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  await import(address);
  URL.revokeObjectURL(address);
  return window.Plotly;
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

// A zoom is kept as long as its axis means the same, a hidden entry as long as a trace has the name.
function kept({ data, layout }) {
  layout.uirevision = "kept";
  for (const name of Object.keys(layout).filter(key => /^[xy]axis\d*$/.test(key))) {
    const { title, type, ticktext } = layout[name];
    layout[name].uirevision ??= JSON.stringify([title?.text, type, ticktext]);
  }
  const seen = {};
  for (const trace of data) {
    // The id becomes part of selectors, so no character of the name may stand in it.
    let code = 0;
    for (const letter of trace.name ?? "") code = (code * 31 + letter.codePointAt(0)) >>> 0;
    seen[code] = (seen[code] ?? 0) + 1;
    trace.uid ??= `wb${code}n${seen[code]}`;
  }
}

function titleOf(layout) {
  const html = (layout.title?.text ?? "figure").replace(/<br>/g, " ");
  return new DOMParser().parseFromString(html, "text/html").documentElement.textContent;
}

async function render({ model, el }) {
  const name = model.get("content").replace("IPY_MODEL_", "");
  const content = await model.widget_manager.get_model(name);
  const box = document.createElement("div");
  box.className = "workbench-figure";
  box.setAttribute("role", "figure");
  const sign = document.createElement("div");
  sign.setAttribute("role", "status");
  Object.assign(sign.style, { position: "absolute", top: "0", right: "0", padding: "2px 8px" });
  el.style.position = "relative";
  el.append(box, sign);
  let isDrawing = false, isStale = true, isGone = false, width = 0, patience, Plotly;

  // While one state is drawn others may arrive: only the newest of them is drawn next. Out of
  // sight nothing is drawn: plotly would take 700 px for the width.
  async function draw() {
    if (isDrawing) return;
    isDrawing = true;
    try {
      Plotly ??= await (loading ??= load(content));
      while (isStale && !isGone && el.clientWidth && content.get("value")) {
        isStale = false;
        width = el.clientWidth;
        const figure = await unpacked(content.get("value"));
        kept(figure);
        const isFirst = !box.data;
        await Plotly.react(box, figure.data, figure.layout, { displaylogo: false });
        if (isFirst) listen();
        box.setAttribute("aria-label", titleOf(figure.layout));
        work(false);
        await new Promise(requestAnimationFrame);
      }
    } finally {
      isDrawing = false;
    }
  }

  function work(isWorking) {
    clearTimeout(patience);
    if (isWorking) patience = setTimeout(() => { sign.textContent = "computing …"; }, PATIENCE_MS);
    else sign.textContent = "";
  }

  function listen() {
    box.on("plotly_relayout", change => {
      const ends = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (change["xaxis.autorange"]) content.send({ zoom: null });
      else if (ends[0] !== undefined) content.send({ zoom: ends });
    });
    box.on("plotly_click", ({ points: [point] }) => {
      if (typeof point?.customdata === "number") content.send({ click: point.customdata });
    });
  }

  const changed = () => {
    isStale = true;
    draw();
  };
  const told = message => {
    if (message.working !== undefined) work(message.working);
  };
  // `responsive` of plotly would make Plotly.react draw anew, and sees the window only.
  const watch = new ResizeObserver(() => {
    if (isStale) draw();
    else if (el.clientWidth && el.clientWidth !== width && !isDrawing) {
      width = el.clientWidth;
      Plotly.Plots.resize(box);
    }
  });
  watch.observe(el);
  content.on("change:value", changed);
  content.on("msg:custom", told);
  return () => {
    isGone = true;
    watch.disconnect();
    content.off("change:value", changed);
    content.off("msg:custom", told);
    Plotly?.purge(box);
  };
}

export default { render };
