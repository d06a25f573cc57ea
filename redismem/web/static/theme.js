// Dark or light: as the system has it, or as somebody has chosen here.

import { byId } from "./dom.js";

const CHOICES = ["system", "light", "dark"];
const SIGNS = { system: "◐", light: "○", dark: "●" };
const WORDS = { system: "Colours: as the system has them", light: "Colours: light", dark: "Colours: dark" };
const KEY = "redismem.colours";

function put(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  byId("theme").setAttribute("aria-label", WORDS[choice]);
  byId("theme").title = WORDS[choice];
  byId("theme-sign").textContent = SIGNS[choice];
}

const chosen = () => (CHOICES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "system");

export function beginTheme() {
  put(chosen());
  byId("theme").addEventListener("click", () => {
    const next = CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length];
    localStorage.setItem(KEY, next);
    put(next);
  });
}
