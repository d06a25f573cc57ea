// A streamed response. Options: text, turn_id, break_after (events: the rest is then asked for by `starting_after`).
import OpenAI from "openai";
import { ResponseStream } from "openai/lib/responses/ResponseStream";
import { answer, options } from "./options.mjs";

const client = new OpenAI({ baseURL: `${options.base}/openai`, apiKey: options.key ?? "none", maxRetries: 0 });

const stream = await client.responses.create(
  { model: "any", input: options.text, conversation: options.session, stream: true, background: true },
  { headers: { "idempotency-key": options.turn_id } },
);
const events = [];
for await (const event of stream) {
  events.push(event);
  if (events.length === options.break_after) break;
}
const id = events[0].response.id;
if (options.break_after !== undefined) {
  const starting_after = events.at(-1).sequence_number;
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after })) events.push(event);
}
const lines = new Blob(events.map((event) => `${JSON.stringify(event)}\n`)).stream();
const rebuilt = await ResponseStream.fromReadableStream(lines).finalResponse();
const replayed = await client.responses.stream({ response_id: id }).finalResponse();
answer({ numbers: events.map((event) => event.sequence_number), types: events.map((event) => event.type), rebuilt, replayed });
