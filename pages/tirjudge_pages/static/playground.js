// The form of the playground works without this script. The script shows each turn of a judgment when it ends.
"use strict";
const form = document.getElementById("playground");
const at = (id) => document.getElementById(id);
let running = null;

const say = (text) => { at("status").textContent = text; };

function clearProblems() {
  for (const slot of form.querySelectorAll(".problem")) { slot.hidden = true; slot.textContent = ""; }
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

function showProblem(field, text) {
  const slot = at(`problem-${field}`) ?? at("problem-");
  slot.textContent = text;
  slot.hidden = false;
  const input = at(field);
  if (!input) return;
  input.closest("details")?.setAttribute("open", "");
  input.setAttribute("aria-invalid", "true");
  input.focus();
}

function show(part) {
  // The server renders the parts with the templates of the page, which escape every text.
  if (part.target === "problem") { say("No judgment."); showProblem(part.field, part.text); return; }
  if (part.target === "status") { say(part.text); return; }
  const template = document.createElement("template");
  template.innerHTML = part.html;
  const target = at(part.target === "turn" ? "turns" : part.target);
  if (part.target !== "turn") target.replaceChildren();
  target.append(template.content);
  if (part.target === "result") at("turns").replaceChildren();
}

async function read(response, isCurrent) {
  // Returns whether the last part came.
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", isOver = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done || !isCurrent()) return isOver;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      if (!block.startsWith("data: ")) continue;
      const part = JSON.parse(block.slice(6));
      show(part);
      isOver ||= part.is_last;
    }
  }
}

async function problemOf(response) {
  try { return (await response.json()).error.message; }
  catch { return `The server answered with the status ${response.status}.`; }
}

async function judge(action, run) {
  const fields = new URLSearchParams(new FormData(form));
  fields.set("action", action);
  const isCurrent = () => running === run;
  try {
    const response = await fetch(form.getAttribute("action"), {
      method: "POST", body: fields, headers: { accept: "text/event-stream" }, signal: run.signal,
    });
    if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
      show({ target: "problem", field: "", text: await problemOf(response) });
    } else if (!await read(response, isCurrent) && isCurrent()) {
      show({ target: "problem", field: "", text: "The connection ended before the verdict. Try again." });
    }
  } catch (error) {
    if (!isCurrent()) return;
    if (error.name === "AbortError") say("Cancelled.");
    else show({ target: "problem", field: "", text: "The server does not answer. Try again." });
  }
}

form?.addEventListener("submit", async (event) => {
  const action = event.submitter?.value ?? "judge";
  if (action !== "judge" && action !== "code") return;
  event.preventDefault();
  running?.abort();
  const run = running = new AbortController();
  clearProblems();
  for (const id of ["result", "turns", "code"]) at(id).replaceChildren();
  say(action === "judge" ? "The request is sent." : "");
  const began = Date.now();
  const tell = () => { at("elapsed").textContent = `${Math.floor((Date.now() - began) / 1000)} s`; };
  const ticking = action === "judge" ? setInterval(tell, 1000) : 0;
  at("cancel").hidden = action !== "judge";
  await judge(action, run);
  clearInterval(ticking);
  if (running !== run) return;
  running = null;
  at("elapsed").textContent = "";
  at("cancel").hidden = true;
});

document.getElementById("cancel")?.addEventListener("click", () => {
  running?.abort();
  form.querySelector("button.primary").focus();
});
