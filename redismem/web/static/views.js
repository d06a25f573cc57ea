// The views of the page: chat, project and operations.

import { byId, setText, show } from "./dom.js";
import { hrefOfProject } from "./place.js";
import { shortId } from "./words.js";

const VIEWS = ["chat", "project", "operations"];

// Names the open conversation in the title of the window.
export function nameWindow(name) {
  document.title = `${shortId(name)} · redismem`;
}

// Shows a view, and names it in the title. `sessionId` is that of the chat, or null.
export function showView(view, sessionId) {
  document.body.dataset.view = view;
  for (const name of VIEWS) {
    show(byId(`${name}-view`), name === view);
    if (name === view) byId(`to-${name}`).setAttribute("aria-current", "page");
    else byId(`to-${name}`).removeAttribute("aria-current");
  }
  const titles = { operations: "Operations · redismem", chat: sessionId === null ? "redismem" : `${shortId(sessionId)} · redismem` };
  document.title = titles[view] ?? "redismem";
}

// Links the project that the chat has as background.
export function linkProject(name) {
  show(byId("chat-project"), name !== null);
  if (name === null) return;
  setText(byId("chat-project-link"), name);
  for (const id of ["chat-project-link", "to-project"]) byId(id).href = hrefOfProject({ name, part: "tasks" });
}
