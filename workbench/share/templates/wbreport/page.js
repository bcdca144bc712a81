// Turns the pictures of a report into live figures. Without plotly.js nothing happens
// and the pictures stay.
(function () {
  "use strict";
  if (!window.Plotly) return;
  document.documentElement.classList.add("wb-live");

  function draw(box) {
    var figure = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    var plot = box.querySelector(".wb-plot");
    var settings = { responsive: true, displaylogo: false };
    return Plotly.newPlot(plot, figure.data, figure.layout, settings).then(function () {
      box.classList.add("wb-drawn");
      return figure.frames && figure.frames.length ? Plotly.addFrames(plot, figure.frames) : null;
    });
  }

  // One after another, with the browser's own work in between, so that a long page
  // can be read while it is drawn.
  function drawAll(boxes) {
    if (!boxes.length) {
      document.documentElement.classList.add("wb-ready");
      return;
    }
    draw(boxes[0]).catch(function (error) {
      console.error(error);
      boxes[0].querySelector(".wb-plot").textContent = "";
    }).then(function () {
      setTimeout(drawAll, 0, boxes.slice(1));
    });
  }

  document.addEventListener("DOMContentLoaded", function () {
    drawAll(Array.from(document.querySelectorAll(".wb-figure")));
  });
})();
