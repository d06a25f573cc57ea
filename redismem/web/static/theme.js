// Dark or light colours: the system's choice, or the user's choice in this browser.

import { byId } from "./dom.js";

const CHOICES = ["system", "light", "dark"];
const SIGNS = { system: "◐", light: "○", dark: "●" };
const WORDS = { system: "Colours: system", light: "Colours: light", dark: "Colours: dark" };
const KEY = "redismem.colours";

function apply(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  byId("theme").setAttribute("aria-label", WORDS[choice]);
  byId("theme").title = WORDS[choice];
  byId("theme-sign").textContent = SIGNS[choice];
}

const readChoice = () => (CHOICES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "system");

export function beginTheme() {
  apply(readChoice());
  byId("theme").addEventListener("click", () => {
    const next = CHOICES[(CHOICES.indexOf(readChoice()) + 1) % CHOICES.length];
    localStorage.setItem(KEY, next);
    apply(next);
  });
}
