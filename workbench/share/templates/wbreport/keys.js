// Names in a legend switch their series on and off; with the keyboard as with the mouse.
(function () {
  "use strict";
  var due, pressed;

  function label() {
    document.querySelectorAll(".js-plotly-plot").forEach(function (plot) {
      var toggles = Array.from(plot.querySelectorAll(".legendtoggle")).filter(function (toggle) {
        return getComputedStyle(toggle).pointerEvents !== "none";
      });
      toggles.forEach(function (toggle) {
        var series = toggle.parentNode, name = series.querySelector(".legendtext");
        toggle.setAttribute("tabindex", "0");
        toggle.setAttribute("role", "checkbox");
        toggle.setAttribute("aria-label", "Show " + (name ? name.textContent : "series"));
        toggle.setAttribute("aria-checked", String(series.style.opacity !== "0.5"));
      });
      // Plotly draws a legend anew when it changes.
      var again = pressed && pressed.plot === plot && toggles[pressed.place];
      if (again && !plot.contains(document.activeElement)) again.focus();
    });
  }
  new MutationObserver(function () {
    clearTimeout(due);
    due = setTimeout(label, 50);
  }).observe(document, { childList: true, subtree: true, attributeFilter: ["style"] });

  document.addEventListener("focusin", function (event) {
    if (!event.target.classList.contains("legendtoggle")) pressed = null;
  });
  document.addEventListener("keydown", function (event) {
    var toggle = event.target, plot = toggle.closest && toggle.closest(".js-plotly-plot");
    if (!plot || !toggle.classList.contains("legendtoggle") || !/^( |Enter)$/.test(event.key)) return;
    event.preventDefault();
    pressed = { plot: plot, place: Array.from(plot.querySelectorAll(".legendtoggle")).indexOf(toggle) };
    ["mousedown", "mouseup"].forEach(function (kind) {
      toggle.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
    });
  });
})();
