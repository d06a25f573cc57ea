// A chat in the browser: it streams answers, goes on after a reload or a broken connection, and stops the model.
import createClient from "openapi-fetch";
import type { components, paths } from "./client";

type TurnEvent = components["schemas"]["TurnEvent"];

// `redismem serve` without keys. With keys, let your backend pass these requests on: it knows the key and the user.
const server = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8080";
const client = createClient<paths>({ baseUrl: server });
const session_id: string = (localStorage.chat ??= crypto.randomUUID());
const find = <E extends HTMLElement>(id: string) => document.getElementById(id) as E;
const [thread, form, text, stop] = [find("thread"), find("form"), find<HTMLInputElement>("text"), find("stop")];

function show(role: string, content: string): HTMLElement {
  const entry = thread.appendChild(document.createElement("p"));
  entry.className = role;
  entry.textContent = content;
  return entry;
}

/** Show the answer of a turn, from its first event. The browser connects again by itself, behind the last event. */
function follow(turn: string): void {
  const entry = show("assistant", "");
  const source = new EventSource(`${server}/v1/sessions/${session_id}/turns/current?turn=${turn}`);
  const hear = ({ data }: MessageEvent<string>) => {
    const event: TurnEvent = JSON.parse(data);
    if (event.type === "text") entry.append(event.delta);
    if (event.type === "notice") show("notice", event.text);
    if (event.type === "reset") entry.replaceChildren(); // the answer comes anew
    if (event.type === "end") source.close();
    if (event.type === "end" && event.outcome !== "done") entry.append(` (${event.outcome})`);
    stop.hidden = event.type === "end";
  };
  for (const type of ["text", "notice", "reset", "end"]) source.addEventListener(type, hear);
  stop.hidden = false;
  stop.onclick = () =>
    client.POST("/v1/sessions/{session_id}/turns/current/stop", { params: { path: { session_id } }, body: { turn } });
}

form.onsubmit = async (submitted) => {
  submitted.preventDefault();
  const content = text.value;
  text.value = ""; // a double click sends nothing twice
  if (!content) return;
  const turn = crypto.randomUUID(); // send the same one with a retry
  const { error } = await client.POST("/v1/sessions/{session_id}/turns", {
    params: { path: { session_id }, header: { "idempotency-key": turn, prefer: "respond-async" } },
    body: { message: { role: "user", content, metadata: { turn } }, when_busy: "wait" },
  });
  show(error ? "notice" : "user", error ? error.title : content);
  if (!error) follow(turn);
};

const { data } = await client.GET("/v1/sessions/{session_id}/messages", { params: { path: { session_id } } });
for (const { message, beside } of data?.messages ?? []) {
  const why = (beside?.metadata as { incomplete?: string } | undefined)?.incomplete; // such as "stopped"
  show(String(message.role), `${message.content}${why ? ` (${why})` : ""}`);
}
const last = data?.messages.at(-1); // after a reload, its turn may still run
if (last?.message.role === "user") follow((last.beside?.metadata as { turn: string }).turn);
