// A run of an agent. Options: text, run_id, break_after (bytes: the run is then asked for again, as a new page would), resumes
// (the same agent asks again), report_at.
import { HttpAgent } from "@ag-ui/client";
import { answer, breakingFetch, headers, options, report } from "./options.mjs";

// The client cancels the body of a broken connection, and leaves the rejection of that to nobody.
process.on("unhandledRejection", () => {});
const request = breakingFetch(options.break_after);

function newAgent() {
  const agent = new HttpAgent({ url: `${options.base}/ag-ui`, threadId: options.session, headers, fetch: request });
  agent.addMessage({ id: "question", role: "user", content: options.text });
  return agent;
}

async function run(agent) {
  const events = [];
  let failure;
  try {
    await agent.runAgent(
      { runId: options.run_id },
      {
        onEvent: ({ event }) => void events.push(event),
        onTextMessageContentEvent: ({ event, textMessageBuffer }) => report(textMessageBuffer + event.delta),
        onRunErrorEvent: ({ event }) => {
          failure = event.message;
        },
      },
    );
  } catch (error) {
    failure = error.message;
  }
  const types = events.map((event) => event.type);
  return { messages: structuredClone(agent.messages), types, end: events.at(-1), failure };
}

function hasEnded({ end }) {
  return end?.type === "RUN_FINISHED" || end?.type === "RUN_ERROR";
}

const agent = newAgent();
const runs = [await run(agent)];
if (options.break_after !== undefined) runs.push(await run(newAgent()));
while (options.resumes && !hasEnded(runs.at(-1)) && runs.length < 5) runs.push(await run(agent));
answer(runs);
