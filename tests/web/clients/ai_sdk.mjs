// useChat without React: sends a message, or resumes the stream of a chat. Options: text, message_id, break_after (bytes),
// resume (true: only resume), resumes ("by hand": by `resumeStream`, as the SDK does not take every break for one of the
// network), report_at, names_turn (true: a resumed stream may also be that of an ended turn).
import { AbstractChat, DefaultChatTransport } from "ai";
import { answer, breakingFetch, browserFetch, headers, options, report } from "./options.mjs";

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, structuredClone(message));
    report(message.parts.map((part) => part.text ?? "").join(""));
  };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(init) {
    super({ ...init, state: new State() });
  }
}

const transport = new DefaultChatTransport({
  api: `${options.base}/ui/chat`,
  headers,
  prepareReconnectToStreamRequest: ({ api, id }) =>
    options.names_turn ? { api: `${api}/${encodeURIComponent(id)}/stream?turn=${options.message_id}` } : {},
  fetch: options.resumes === true ? browserFetch : breakingFetch(options.break_after),
});
const seen = { data: [], tools: [], finishes: [], resumed: 0 };
const chat = new Chat({
  id: options.session,
  transport,
  onData: (part) => seen.data.push(part),
  onToolCall: ({ toolCall }) => void seen.tools.push(toolCall.toolCallId),
  onFinish: ({ isDisconnect, finishReason }) => seen.finishes.push({ isDisconnect, finishReason }),
});
const message = { id: options.message_id, role: "user", parts: [{ type: "text", text: options.text }] };
if (options.resume) {
  chat.messages = [message];
  await chat.resumeStream();
} else {
  await chat.sendMessage(message);
  if (options.break_after !== undefined) await chat["~resumeStreamIfDisconnected"]();
  while (options.resumes === "by hand" && chat.status === "error" && seen.resumed < 5) {
    seen.resumed += 1;
    await chat.resumeStream();
  }
  while (options.resumes === true && seen.finishes.at(-1).isDisconnect && seen.resumed < 5) {
    seen.resumed += 1;
    await chat["~resumeStreamIfDisconnected"]();
  }
}
answer({ status: chat.status, error: chat.error?.message, messages: chat.messages, ...seen });
