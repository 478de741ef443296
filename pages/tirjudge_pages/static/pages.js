// Every page works without this script. It adds keys and copy buttons.
"use strict";
document.addEventListener("keydown", (event) => {
  // One key for each element with data-key; not while typing, and not with Control, Alt or Meta.
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
  for (const element of document.querySelectorAll("[data-key]")) {
    if (element.dataset.key !== event.key) continue;
    event.preventDefault();
    if (element.matches("input, textarea, select")) element.focus();
    else element.click();
    return;
  }
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent);
  button.textContent = "Copied";
});
