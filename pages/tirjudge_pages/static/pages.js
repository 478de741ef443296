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
// An element with data-live is replaced by that of the same page every so many seconds, until the page no longer has it.
const follow = async (element) => {
  const answer = await fetch(location.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = page.getElementById(element.id);
  if (!next) return location.reload();
  // Not while the reader is in the element or has selected a part of it.
  if (!element.contains(document.activeElement) && !element.contains(getSelection().anchorNode)) {
    element.replaceWith(next);
    element = next;
  }
  if (next.dataset.live) setTimeout(follow, 1000 * next.dataset.live, element);
};
addEventListener("DOMContentLoaded", () => {
  const element = document.querySelector("[data-live]");
  if (element) setTimeout(follow, 1000 * element.dataset.live, element);
});
