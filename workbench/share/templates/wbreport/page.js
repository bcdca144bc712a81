// The theme of a page, and live figures in place of pictures. Without plotly.js the pictures stay.
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = matchMedia("(prefers-color-scheme: dark)");
  var NARROW = 620, SHORT_LABEL = 18, PAPER = 680, printing = false;

  function stored() {
    try { return localStorage.getItem("wb-theme") || "auto"; } catch (error) { return "auto"; }
  }
  function apply(theme) {
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
  }
  apply(stored()); // before the body is painted

  function isDark() {
    if (printing) return false;
    var set = root.getAttribute("data-theme");
    return set ? set === "dark" : dark.matches;
  }

  // Figures are made in the colours of a light page; these have a shade of their own on a dark one.
  var SHADES = {
    "#0072b2": "#2b8fce", "#d9d9d9": "#4a5159", "#bfbfbf": "#6b747d", "#333333": "#d0d4d9",
    "#000000": "#e9ebee", "#555555": "#a4adb7", "#1a1a1a": "#e9ebee", "#595959": "#aeb6bf",
    "#e6e6e6": "#363c44", "#ffffff": "#131619", "#d9f0e9": "#1e3b33",
    "rgba(255,255,255,0.8)": "rgba(19,22,25,0.8)"
  };
  // Where texts stand on cells or bars, both keep the shades that were chosen for each other.
  function keepsShades(trace) {
    return ["heatmap", "treemap", "icicle", "sunburst", "sankey", "table"].indexOf(trace.type) >= 0 ||
      (trace.type === "bar" && /inside|auto/.test(trace.textposition || ""));
  }
  function shaded(value) {
    if (typeof value === "string") return SHADES[value.toLowerCase()] || value;
    if (Array.isArray(value)) return value.map(shaded);
    if (!value || Object.getPrototypeOf(value) !== Object.prototype || value.bdata) return value;
    var copy = {};
    Object.keys(value).forEach(function (key) { copy[key] = shaded(value[key]); });
    return copy;
  }
  function inTheme(data, layout) {
    if (!isDark()) return { data: data, layout: layout };
    var cells = (data || []).some(function (trace) { return trace.type === "heatmap"; });
    var copy = shaded(layout);
    if (cells) copy.annotations = layout.annotations;
    copy.font = Object.assign({}, copy.font, { color: "#e9ebee" });
    copy.hoverlabel = Object.assign({}, copy.hoverlabel, {
      bgcolor: "#1c2025", bordercolor: "#87919c", font: { color: "#e9ebee" }
    });
    copy.modebar = Object.assign({}, copy.modebar, { color: "#87919c", activecolor: "#e9ebee" });
    return {
      data: (data || []).map(function (trace) { return keepsShades(trace) ? trace : shaded(trace); }),
      layout: copy
    };
  }

  function words(text) {
    // Texts of plotly are a subset of HTML; a document of its own runs nothing of it.
    return new DOMParser().parseFromString((text || "").replace(/<br>/g, " "), "text/html")
      .documentElement.textContent;
  }
  function paragraph(box, name, text) {
    if (!text) return;
    var line = document.createElement("p");
    line.className = name;
    line.textContent = text;
    box.appendChild(line);
  }
  function lines(text) { return text ? text.split("<br>").length : 0; }

  // The figures of an explorer are many; the table of the one that is shown is made on demand.
  function offerTable(plot, box) {
    var button = document.createElement("button");
    button.type = "button";
    button.className = "wb-link";
    button.textContent = "Data of this figure as CSV";
    button.addEventListener("click", function () {
      var rows = [["series", "x", "y"]];
      drawn.get(plot)[0].forEach(function (trace, number) {
        var shown = plot.data[number] || trace, xs = shown.x || [], ys = shown.y || [];
        for (var at = 0; at < Math.max(xs.length, ys.length); at++) {
          rows.push([words(trace.name), xs[at], ys[at]]);
        }
      });
      var text = rows.map(function (row) {
        return row.map(function (cell) {
          return '"' + String(cell === undefined || cell === null ? "" : cell).replace(/"/g, '""') + '"';
        }).join(",");
      }).join("\n");
      var link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      link.download = "figure.csv";
      link.click();
      setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
    });
    box.appendChild(button);
  }

  // Title, note and source become text of the page, which wraps at every width.
  function framed(plot, data, layout) {
    var copy = Object.assign({}, layout), title = layout.title || {};
    var subtitle = (title.subtitle && title.subtitle.text) || "";
    var isSource = function (note) {
      return note.xref === "paper" && note.x === 0 && note.y === 0 && /^Source: /.test(note.text || "");
    };
    var notes = layout.annotations || [], source = notes.filter(isSource)[0];
    var head = plot.previousElementSibling;
    if (!head || !head.classList.contains("wb-frame")) {
      head = document.createElement("div");
      head.className = "wb-frame";
      plot.parentNode.insertBefore(head, plot);
      plot.insertAdjacentHTML("afterend", '<div class="wb-frame"></div>');
    }
    var foot = plot.nextElementSibling;
    head.textContent = foot.textContent = "";
    paragraph(head, "wb-claim", words(title.text));
    paragraph(head, "wb-note", words(subtitle));
    paragraph(foot, "wb-source", source && words(source.text));
    if (plot.classList.contains("wb-explorer-figure")) offerTable(plot, foot);
    plot.setAttribute("role", "figure");
    plot.setAttribute("aria-label", words(title.text) || "figure");
    copy.title = undefined;
    copy.annotations = notes.filter(function (note) { return note !== source; });
    if (!data.length) { // only words: they wrap as text of the page
      copy.annotations.forEach(function (note) { paragraph(head, "wb-note", words(note.text)); });
      copy.annotations = [];
    }
    var margin = Object.assign({ l: 70, r: 24, t: 60, b: 84 }, layout.margin);
    // As workbench.plot lays out: 38 px for the title, 21 for each further line, then the note.
    var over = title.text ? 36 + 21 * (lines(title.text) - 1) : 0;
    over += subtitle ? 22 + 16 * (lines(subtitle) - 1) : 0;
    var under = source ? 20 + 15 * lines(source.text) : 0;
    over = Math.min(over, margin.t - 8);
    under = Math.min(under, margin.b - 44);
    margin.t -= over;
    margin.b -= Math.max(under, 0);
    margin.r = Math.max(margin.r, 40); // the mode bar stands there
    copy.margin = margin;
    if (copy.height) copy.height -= over + Math.max(under, 0);
    if (!data.length) copy.height = 10;
    copy.modebar = Object.assign({ orientation: "v", bgcolor: "rgba(0,0,0,0)" }, copy.modebar);
    copy.paper_bgcolor = copy.plot_bgcolor = "rgba(0,0,0,0)";
    return copy;
  }

  function shortened(text) {
    var name = words(text);
    return name.length > SHORT_LABEL
      ? name.slice(0, SHORT_LABEL - 6) + "\u2026" + name.slice(-5) : name;
  }
  // On a narrow page names beside the plot are cut in their middle; the table has them whole.
  function narrowed(data, layout, width) {
    var copy = Object.assign({}, layout);
    copy.margin = Object.assign({}, layout.margin, { l: 8, r: 34 });
    delete copy.width;
    Object.keys(layout).filter(function (key) { return /^yaxis\d*$/.test(key); }).concat("yaxis")
      .forEach(function (key) {
        var axis = Object.assign({}, copy[key], { automargin: true });
        var ref = key.replace("axis", "");
        var names = [];
        data.forEach(function (trace) {
          if ((trace.yaxis || "y") === ref && Array.isArray(trace.y)) names = names.concat(trace.y);
        });
        names = names.filter(function (name, at) {
          return typeof name === "string" && names.indexOf(name) === at;
        });
        if (axis.ticktext && !axis.ticktext.bdata) {
          axis.ticktext = Array.from(axis.ticktext, function (name) { return shortened(String(name)); });
        } else if (names.length && names.length < 200 && names.some(function (n) { return n.length > SHORT_LABEL; })) {
          Object.assign(axis, { tickmode: "array", tickvals: names, ticktext: names.map(shortened) });
        }
        copy[key] = axis;
      });
    Object.keys(layout).filter(function (key) { return /^xaxis\d*$/.test(key); }).forEach(function (key) {
      var title = (layout[key].title && layout[key].title.text) || "";
      // In two lines what is longer than the plot, in steps of about 7 px a letter.
      var half = title.lastIndexOf(" ", Math.ceil(title.length / 2) + 4);
      if (words(title).length * 7 < width - 90 || half < 0 || /</.test(title)) return;
      var broken = title.slice(0, half) + "<br>" + title.slice(half + 1);
      copy[key] = Object.assign({}, layout[key], { automargin: true });
      copy[key].title = Object.assign({}, layout[key].title, { text: broken });
    });
    copy.legend = Object.assign({}, layout.legend);
    if (copy.legend.title) copy.legend.title = Object.assign({ side: "top" }, copy.legend.title);
    var legend = data.filter(function (trace) { return trace.showlegend !== false && trace.name; });
    if (layout.showlegend !== false && legend.length > 1 && copy.height) {
      var wide = legend.reduce(function (all, trace) { return Math.max(all, trace.name.length); }, 0);
      var rows = Math.ceil(legend.length / Math.max(1, Math.floor(width / (48 + 6.4 * wide))));
      copy.height += 20 * Math.max(rows - 1, 0);
      // Several rows hang lower, onto the title of an axis above the plot.
      if (rows > 1 && copy.legend.y > 1) copy.legend.y += 10 / copy.height;
    }
    return copy;
  }

  // Words beside or on what is drawn, and plots side by side, need a width of their own: such a
  // figure scrolls on a narrow page, and nothing of it is cut.
  function needsWidth(data, layout) {
    function isLong(text) { return typeof text === "string" && words(text).length > 8; }
    var beside = (layout.annotations || []).filter(function (note) {
      return isLong(note.text) && (note.x >= 1 || layout.annotations.length > 12);
    });
    var printed = data.some(function (trace) {
      var shows = trace.type === "bar" || trace.texttemplate || /text/.test(trace.mode || "");
      return shows && ([trace.text].flat(3).some(isLong));
    });
    var aside = Object.keys(layout).some(function (key) {
      var domain = /^xaxis\d*$/.test(key) && layout[key].domain;
      return domain && domain[1] - domain[0] < 0.6;
    });
    return beside.length > 0 || printed || aside;
  }

  var drawn = new Map();
  var settings = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  function put(call, plot, data, layout) {
    var laid = framed(plot, data || [], layout || {});
    // Of the box around it: a plot that scrolls is wider than what is seen of it.
    var width = printing ? PAPER : plot.parentNode.clientWidth || window.innerWidth;
    var isWide = width < NARROW && needsWidth(data || [], laid);
    plot.parentNode.classList.toggle("wb-scroll", isWide);
    if (width < NARROW) laid = narrowed(data || [], laid, width);
    if (printing) laid.width = PAPER;
    if (laid.height > 900) plot.classList.add("wb-tall");
    var figure = inTheme(data, laid);
    return call(plot, figure.data, figure.layout, settings);
  }
  function redraw() {
    drawn.forEach(function (figure, plot) { put(react, plot, figure[0], figure[1]); });
  }
  // Paper is white and narrow.
  ["beforeprint", "afterprint"].forEach(function (name) {
    window.addEventListener(name, function () {
      printing = name === "beforeprint";
      redraw();
    });
  });
  // What was drawn in a closed fold had no width to fit; what was not drawn is drawn now.
  function unfolded(fold) {
    drawn.forEach(function (figure, plot) {
      if (fold.contains(plot)) put(react, plot, figure[0], figure[1]);
    });
    drawAll(Array.from(fold.querySelectorAll(".wb-figure:not(.wb-drawn)")).filter(isShown));
  }
  function isShown(box) { return !box.closest("details:not([open])"); }
  var react;
  // Explorers bring scripts of their own; what they draw is framed and coloured here as well.
  function takeOver() {
    react = Plotly.react.bind(Plotly);
    ["react", "newPlot"].forEach(function (name) {
      var call = Plotly[name].bind(Plotly);
      Plotly[name] = function (plot, data, layout) {
        drawn.set(plot, [data, layout]);
        return put(call, plot, data, layout);
      };
    });
  }

  function draw(box) {
    var figure = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    var plot = box.querySelector(".wb-plot");
    return Plotly.newPlot(plot, figure.data, figure.layout).then(function () {
      box.classList.add("wb-drawn");
      return figure.frames && figure.frames.length ? Plotly.addFrames(plot, figure.frames) : null;
    });
  }

  // One after another, with the browser's own work in between, so that a long page
  // can be read while it is drawn.
  function drawAll(boxes) {
    if (!boxes.length) {
      root.classList.add("wb-ready");
      return;
    }
    draw(boxes[0]).catch(function (error) {
      console.error(error);
      boxes[0].querySelector(".wb-plot").textContent = "";
    }).then(function () {
      setTimeout(drawAll, 0, boxes.slice(1));
    });
  }

  function themeButton() {
    var button = document.querySelector(".wb-theme"), now = stored();
    var order = ["auto", "light", "dark"];
    if (!button) return;
    function show() {
      button.textContent = "\u25d0 " + now;
      button.setAttribute("aria-label", "Theme: " + now + ". Change");
    }
    button.hidden = false;
    show();
    button.addEventListener("click", function () {
      now = order[(order.indexOf(now) + 1) % order.length];
      try { localStorage.setItem("wb-theme", now); } catch (error) { /* a file without storage */ }
      apply(now);
      show();
      redraw();
    });
    dark.addEventListener("change", redraw);
  }

  // A box that scrolls can be reached with the keyboard, and only then.
  function scrollers() {
    if (!window.ResizeObserver) return;
    var watch = new ResizeObserver(function (entries) {
      entries.forEach(function (entry) {
        var box = entry.target;
        var overflows = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
        if (overflows) box.setAttribute("tabindex", "0");
        else box.removeAttribute("tabindex");
      });
    });
    document.querySelectorAll(".wb-table, .wb-stream, .scroll").forEach(function (box) { watch.observe(box); });
  }

  if (window.Plotly) {
    root.classList.add("wb-live");
    takeOver();
  }
  document.addEventListener("DOMContentLoaded", function () {
    themeButton();
    scrollers();
    if (!window.Plotly) return;
    document.querySelectorAll("details").forEach(function (fold) {
      fold.addEventListener("toggle", function () { if (fold.open) unfolded(fold); });
    });
    drawAll(Array.from(document.querySelectorAll(".wb-figure")).filter(isShown));
  });
})();
