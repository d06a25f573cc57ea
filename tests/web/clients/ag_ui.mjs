// A run of an agent. Options: text, run_id, break_after (bytes: the run is then asked for again, as a new page would).
import { HttpAgent } from "@ag-ui/client";
import { answer, breakingFetch, headers, options } from "./options.mjs";

// The client cancels the body of a broken connection, and leaves the rejection of that to nobody.
process.on("unhandledRejection", () => {});
const request = breakingFetch(options.break_after);

async function run() {
  const agent = new HttpAgent({ url: `${options.base}/ag-ui`, threadId: options.session, headers, fetch: request });
  agent.addMessage({ id: "question", role: "user", content: options.text });
  const events = [];
  let failure;
  try {
    await agent.runAgent(
      { runId: options.run_id },
      {
        onEvent: ({ event }) => void events.push(event),
        onRunErrorEvent: ({ event }) => {
          failure = event.message;
        },
      },
    );
  } catch (error) {
    failure = error.message;
  }
  return { messages: agent.messages, types: events.map((event) => event.type), end: events.at(-1), failure };
}

const runs = [await run()];
if (options.break_after !== undefined) runs.push(await run());
answer(runs);
