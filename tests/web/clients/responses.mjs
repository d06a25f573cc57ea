// A streamed response. Options: text, turn_id, break_after (events: the rest is then asked for by `starting_after`), resumes,
// report_at, draws_key (true: the SDK draws a key for each request, and sends the request again by itself), cancel_at (an
// address: the response is cancelled there once `report_at` is reached).
import OpenAI from "openai";
import { ResponseStream } from "openai/lib/responses/ResponseStream";
import { answer, options, report } from "./options.mjs";

const client = new OpenAI({ baseURL: `${options.base}/openai`, apiKey: options.key ?? "none", maxRetries: 0 });

if (options.draws_key) {
  client.idempotencyHeader = "Idempotency-Key";
  client.maxRetries = 2;
}
const stream = await client.responses.create(
  { model: "any", input: options.text, conversation: options.session, stream: true, background: true },
  options.draws_key ? {} : { headers: { "idempotency-key": options.turn_id } },
);
const events = [];
let text = "";
let resumed = 0;
let cancelled;

async function read(stream) {
  for await (const event of stream) {
    events.push(event);
    text += event.type === "response.output_text.delta" ? event.delta : "";
    if (events.length === options.break_after) return;
    report(text);
    if (options.cancel_at && !cancelled && text.length >= options.report_at) {
      const other = new OpenAI({ baseURL: `${options.cancel_at}/openai`, apiKey: options.key ?? "none", maxRetries: 0 });
      cancelled = other.responses.cancel(events[0].response.id);
    }
  }
}

async function resume() {
  const starting_after = events.at(-1).sequence_number;
  await read(await client.responses.retrieve(events[0].response.id, { stream: true, starting_after }));
}

const ends = ["response.completed", "response.failed", "response.incomplete"];
try {
  await read(stream);
} catch (error) {
  if (!options.resumes) throw error;
}
const id = events[0].response.id;
if (options.break_after !== undefined) await resume();
while (options.resumes && !ends.includes(events.at(-1).type) && resumed < 5) {
  resumed += 1;
  await resume().catch(() => {});
}
const lines = new Blob(events.map((event) => `${JSON.stringify(event)}\n`)).stream();
const rebuilt = await ResponseStream.fromReadableStream(lines).finalResponse();
const replayed = await client.responses.stream({ response_id: id }).finalResponse();
const numbers = events.map((event) => event.sequence_number);
answer({ numbers, types: events.map((event) => event.type), text, rebuilt, replayed, resumed, cancelled: await cancelled });
