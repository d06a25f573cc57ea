// A client runs the tool that the model calls, and goes on. Options: client (ai_sdk, ag_ui or openai), text, tool (a function
// of OpenAI's chat format), output. Answers with the text of the last answer, and the calls that the client was told of.
import { HttpAgent } from "@ag-ui/client";
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import OpenAI from "openai";
import { answer, options } from "./options.mjs";

const { base, session, text, tool, output } = options;

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => void (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(init) {
    super({ ...init, state: new State() });
  }
}

async function aiSdk() {
  const calls = [];
  let finished;
  const ended = new Promise((resolve) => (finished = resolve));
  const chat = new Chat({
    id: session,
    transport: new DefaultChatTransport({ api: `${base}/ui/chat`, body: { tools: [tool] } }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall: ({ toolCall }) => {
      calls.push(toolCall.input);
      chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output });
    },
    onError: (error) => finished(error.message),
    onFinish: ({ message }) => message.parts.at(-1).type === "text" && finished(),
  });
  await chat.sendMessage({ id: "m1", role: "user", parts: [{ type: "text", text }] });
  const error = await ended;
  const messages = chat.messages;
  return { calls, error, text: messages.at(-1).parts.at(-1).text, roles: messages.map((message) => message.role) };
}

async function agUi() {
  const agent = new HttpAgent({ url: `${base}/ag-ui`, threadId: session });
  const tools = [{ parameters: {}, description: "", ...tool.function }];
  agent.addMessage({ id: "m1", role: "user", content: text });
  await agent.runAgent({ runId: "r1", tools });
  const [call] = agent.messages.at(-1).toolCalls;
  agent.addMessage({ id: "t1", role: "tool", toolCallId: call.id, content: output });
  await agent.runAgent({ runId: "r2", tools });
  const calls = [JSON.parse(call.function.arguments)];
  return { calls, text: agent.messages.at(-1).content, roles: agent.messages.map((message) => message.role) };
}

async function openai() {
  const client = new OpenAI({ baseURL: `${base}/openai`, apiKey: "none" });
  const tools = [{ type: "function", strict: false, ...tool.function }];
  const first = await client.responses.create({ model: "any", input: text, conversation: session, tools });
  const call = first.output.find((item) => item.type === "function_call");
  const input = [{ type: "function_call_output", call_id: call.call_id, output }];
  const second = await client.responses.create({ model: "any", input, previous_response_id: first.id, tools });
  return { calls: [JSON.parse(call.arguments)], text: second.output_text, roles: [] };
}

answer(await { ai_sdk: aiSdk, ag_ui: agUi, openai }[options.client]());
process.exit(0);
