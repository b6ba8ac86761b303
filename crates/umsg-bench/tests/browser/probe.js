// Looks into each frame of the page once all are loaded, and leaves what it finds as JSON in the element "found".
function look(frame) {
  const page = frame.contentDocument;
  page.querySelectorAll("details").forEach((details) => { details.open = true; });
  const text = (element) => (element ? element.textContent.trim() : "");
  const plots = [...page.querySelectorAll("figure.plot")].map((figure) => {
    const drawing = figure.querySelector("svg.drawing");
    const box = drawing.getBoundingClientRect();
    const data = [...drawing.querySelectorAll("path.line, path.bar")];
    const numbers = [];
    drawing.querySelectorAll("circle, text").forEach((element) => {
      ["cx", "cy", "r", "x", "y"].forEach((name) => {
        if (element.hasAttribute(name)) numbers.push(element.getAttribute(name));
      });
    });
    return {
      id: figure.id,
      title: text(drawing.querySelector("title")),
      description: text(drawing.querySelector("desc")),
      width: box.width,
      height: box.height,
      paths: data.map((path) => [path.getAttribute("d"), path.getTotalLength()]),
      numbers,
    };
  });
  const tables = [...page.querySelectorAll("table")].map((table) => ({
    name: table.closest("[id]").id,
    columns: table.tHead.rows[0].cells.length,
    rows: [...table.tBodies[0].rows].map((row) => [...row.cells].map(text)),
  }));
  const width = frame.clientWidth;
  const outside = [...page.body.querySelectorAll("*")].filter((element) => {
    if (element.closest(".scroll table, svg")) return false;
    const box = element.getBoundingClientRect();
    return box.width > 0 && (box.right > width + 0.5 || box.left < -0.5);
  }).map((element) => element.tagName + "." + element.className + ": " + text(element).slice(0, 60));
  return { plots, tables, outside, scroll_width: page.documentElement.scrollWidth };
}

window.addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map(look);
  document.getElementById("found").textContent = JSON.stringify(found);
});
