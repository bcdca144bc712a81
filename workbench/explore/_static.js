(function () {
  "use strict";
  var root = document.currentScript.parentNode;
  var states = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  var form = root.querySelector("form");
  var inputs = Array.from(form.querySelectorAll("[data-wb]"));
  var message = root.querySelector(".wb-explorer-message");
  var view = root.querySelector(".wb-explorer-figure");
  var drawn = false;
  var starts = inputs.map(place);

  function place(input) {
    return input.type === "checkbox" ? Number(input.checked) : Number(input.value);
  }

  // An array that several states draw is kept once; a trace holds its place in the list.
  function whole(value) {
    if (Array.isArray(value)) return value.map(whole);
    if (!value || typeof value !== "object") return value;
    if (value.wbArray !== undefined) return states.arrays[value.wbArray];
    var copy = {};
    Object.keys(value).forEach(function (key) { copy[key] = whole(value[key]); });
    return copy;
  }

  function put(input, number) {
    if (input.type === "checkbox") input.checked = number === 1;
    else input.value = number;
  }

  // A control moves while the others stand where they were when the page was written.
  function draw(moved) {
    inputs.forEach(function (input, index) {
      if (index !== moved) put(input, starts[index]);
      var label = states.labels[index][place(input)];
      var output = input.type === "range" && input.parentNode.parentNode.querySelector("output");
      if (output) {
        output.textContent = label;
        input.setAttribute("aria-valuetext", label);
      }
    });
    var number = moved === undefined ? states.start : states.order[moved][place(inputs[moved])];
    var figure = states.figures[number];
    message.textContent = figure.message || "";
    if (figure.message) return;
    if (!drawn) {
      view.textContent = "";
      view.setAttribute("role", "figure");
      drawn = true;
    }
    var title = (figure.layout.title && figure.layout.title.text) || "figure";
    var words = new DOMParser().parseFromString(title.replace(/<br>/g, " "), "text/html");
    view.setAttribute("aria-label", words.documentElement.textContent);
    var layout = Object.assign({ template: states.template }, figure.layout);
    window.Plotly.react(view, whole(figure.data), layout, { responsive: true, displaylogo: false });
  }

  function start() {
    form.hidden = false;  // else all of it lies in something hidden
    form.hidden = !form.querySelector("small, label:not([hidden]):not([hidden] *)");
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    inputs.forEach(function (input, index) {
      input.addEventListener("input", function () { draw(index); });
    });
    draw();
  }

  // plotly.js may come later than this script, or never: then the picture stays.
  var tries = 0;
  (function wait() {
    if (window.Plotly) start();
    else if (tries++ < 300) setTimeout(wait, 100);
  })();
})();
