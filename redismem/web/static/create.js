// The form that creates a project, where there is none: a project begins with its first item.

import { ask } from "./api.js";
import { byId, setText } from "./dom.js";
import { PARTS, goTo, hrefOfProject } from "./place.js";
import { describeError } from "./words.js";

export function beginCreating() {
  byId("new-project").addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = byId("new-project-name").value.trim();
    byId("new-project-yes").disabled = true;
    try {
      await ask("POST", `/v1/projects/${encodeURIComponent(name)}/tasks`, { body: { title: byId("new-project-task").value.trim() } });
      byId("new-project").reset();
      setText(byId("new-project-fault"), "");
      goTo(hrefOfProject({ name, part: PARTS[0] }));
    } catch (error) {
      setText(byId("new-project-fault"), `The project is not created. ${describeError(error)}`);
    }
    byId("new-project-yes").disabled = false;
  });
}
