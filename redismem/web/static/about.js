// What the server says of itself: namespace, model, and what the key may do.

import { ask } from "./api.js";
import { byId, setText, show } from "./dom.js";
import { tellHealth } from "./health.js";
import { describeError } from "./words.js";

const AGAIN_MS = 2_000;

// Asks until the server answers, and names it in the header. Returns null, after telling why, if the key reads nothing.
export async function readAbout() {
  for (;;) {
    try {
      const about = await ask("GET", "/v1/about");
      setText(byId("identity"), `${about.namespace} · ${about.model ? about.model.name : "no model"}`);
      return about;
    } catch (error) {
      if (error.status === 401) return null;
      if (error.status === 403) {
        setText(byId("banner"), describeError(error));
        show(byId("banner"), true);
        return null;
      }
      tellHealth(error.status ? "well" : "lost");
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}
