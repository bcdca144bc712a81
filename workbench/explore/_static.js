(function () {
  "use strict";
  var root = document.currentScript.parentNode;
  var states = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  var form = root.querySelector("form");
  var inputs = Array.from(form.querySelectorAll("[data-wb]"));
  var message = root.querySelector(".wb-explorer-message");
  var view = root.querySelector(".wb-explorer-figure");
  var drawn = false;

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

  // The states are in the order of an odometer: the last control turns fastest.
  function draw() {
    var number = 0;
    inputs.forEach(function (input, index) {
      var label = states.labels[index][place(input)];
      var output = input.type === "range" && input.parentNode.parentNode.querySelector("output");
      number = number * states.labels[index].length + place(input);
      if (output) {
        output.textContent = label;
        input.setAttribute("aria-valuetext", label);
      }
    });
    var figure = states.figures[states.order[number]];
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
    form.hidden = false;
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    inputs.forEach(function (input) { input.addEventListener("input", draw); });
    draw();
  }

  // plotly.js may come later than this script, or never: then the picture stays.
  var tries = 0;
  (function wait() {
    if (window.Plotly) start();
    else if (tries++ < 300) setTimeout(wait, 100);
  })();
})();
