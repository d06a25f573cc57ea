// A bot of a team's chat: it keeps the team's decisions and tasks in a project, and answers questions with them.
//
// The chat platform posts {"id", "channel", "user", "text"} to it, perhaps more than once, and shows the "text" that it
// gets back. The id of the message is the idempotency key, so a repeated message changes nothing and gets the same answer.
import { createServer } from "node:http";
import createClient from "openapi-fetch";
import type { components, paths } from "./client";

type Message = { id: string; channel: string; user: string; text: string };

const { REDISMEM_SERVER: baseUrl = "http://127.0.0.1:8080", REDISMEM_KEY: key = "", PORT: port = "8001" } = process.env;
const client = createClient<paths>({ baseUrl, headers: key ? { authorization: `Bearer ${key}` } : {} });
const name = process.env.PROJECT ?? "team";

/** Return the data of a response. Throw the problem's text, which says what to do and never what was said. */
function take<T>({ data, error }: { data?: T; error?: components["schemas"]["ProblemDocument"] }): T {
  if (error) throw new Error(error.detail || error.title);
  return data as T;
}

async function decide(said: Message, words: string): Promise<string> {
  const [title = "", rationale = ""] = words.split(" because ");
  const params = { path: { name }, header: { "idempotency-key": said.id } };
  const body = { title, rationale, tags: [said.channel] };
  return `Decided: ${take(await client.POST("/v1/projects/{name}/decisions", { params, body })).title}`;
}

async function addTask(said: Message, title: string): Promise<string> {
  const params = { path: { name }, header: { "idempotency-key": said.id } };
  const body = { title, assignee: said.user, status: "in_progress" } as const;
  const task = take(await client.POST("/v1/projects/{name}/tasks", { params, body }));
  return `Noted for ${task.assignee}: ${task.title}`;
}

async function findTask(text: string, status?: "completed") {
  const query = { text, limit: 1, status }; // without a status, those that are not finished
  return take(await client.GET("/v1/projects/{name}/tasks", { params: { path: { name }, query } })).items[0];
}

async function complete(said: Message, text: string): Promise<string> {
  const task = await findTask(text);
  const done = task ?? (await findTask(text, "completed"));
  if (task) {
    const params = { path: { name, item_id: task.id } };
    const body = { status: "completed", reason: `said by ${said.user}`, expect: task.version } as const;
    take(await client.POST("/v1/projects/{name}/tasks/{item_id}/status", { params, body }));
  }
  return done ? `Done: ${done.title}` : `There is no task about ${text}.`;
}

async function showBoard(): Promise<string> {
  const board = take(await client.GET("/v1/projects/{name}/board", { params: { path: { name } } }));
  const lines = board.columns.flatMap(({ status, items }) => items.map(({ title }) => `${status}: ${title}`));
  return lines.join("\n") || "The board is empty.";
}

/** Ask the model of the server, which gets what the project has about the question. */
async function ask(said: Message): Promise<string> {
  const stream = take(
    await client.POST("/v1/sessions/{session_id}/turns", {
      params: { path: { session_id: said.channel }, header: { "idempotency-key": said.id } },
      body: { message: { role: "user", name: said.user, content: said.text }, when_busy: "wait", project: name },
      parseAs: "text",
    }),
  );
  const data = [...String(stream).matchAll(/^data: (.*)$/gm)];
  const events = data.map(([, json = ""]): components["schemas"]["TurnEvent"] => JSON.parse(json));
  return events.map((event) => (event.type === "text" ? event.delta : "")).join("") || "The model does not answer.";
}

async function answer(said: Message): Promise<string> {
  const [word = "", ...words] = said.text.split(" ");
  const rest = words.join(" ");
  if (word === "/decide") return decide(said, rest);
  if (word === "/task") return addTask(said, rest);
  if (word === "/done") return complete(said, rest);
  if (word === "/board") return showBoard();
  return ask(said);
}

createServer(async (request, response) => {
  try {
    const said: Message = JSON.parse(Buffer.concat(await request.toArray()).toString());
    response.end(JSON.stringify({ text: await answer(said) }));
  } catch (error) {
    response.writeHead(503).end(JSON.stringify({ text: `Not done: ${(error as Error).message}` }));
  }
}).listen(Number(port), "127.0.0.1", () => console.log(`The bot listens on http://127.0.0.1:${port}`));
