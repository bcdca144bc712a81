// Draw each figure when it comes into view: a page holds dozens.
document.addEventListener("DOMContentLoaded", () => {
  const draw = (target) => {
    const figure = JSON.parse(target.querySelector("script").textContent);
    const plot = target.appendChild(document.createElement("div"));
    Plotly.newPlot(plot, figure.data, figure.layout, {responsive: true, displaylogo: false})
      .then(() => target.classList.add("wb-drawn"));
  };
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }), {rootMargin: "400px"});
  document.querySelectorAll(".wb-figure").forEach((target) => seen.observe(target));
  // A table that is wider than the page can be scrolled with the keyboard, and only then.
  const scrollable = new ResizeObserver((entries) => entries.forEach(({target}) => {
    if (target.scrollWidth > target.clientWidth + 1) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }));
  document.querySelectorAll(".bd-article table, .wb-figure").forEach((box) => scrollable.observe(box));
});
