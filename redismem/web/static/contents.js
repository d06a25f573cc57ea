// The parts of a stored message, in the formats of OpenAI, Anthropic and Gemini: texts, tool calls with their results,
// pictures. Users choose what is in a message, so nothing here trusts a type.

const MOST_PARTS = 100;

const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const textIn = (value) => (typeof value === "string" ? value : "");

// Returns parts {kind, …}: text {text}, call {id, name, value}, result {id, name, value, isError}, picture {url} or
// {mime, base64}, other {name, value}. A value is a text or JSON.
export function contentsOf(message) {
  const type = message.type;
  if (type === "function_call") return [call(message.call_id, message.name, message.arguments)];
  if (type === "function_call_output") return result(message.call_id, "", message.output);
  if (message.role === "tool" || message.role === "function") return result(message.tool_call_id, message.name, message.content);
  const parts = partsIn(message.content ?? message.parts);
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls.filter(isRecord) : [];
  const rest = calls.map((each) => call(each.id, each.function?.name ?? each.name, each.function?.arguments ?? each.args ?? each.arguments));
  const refusal = textIn(message.refusal) ? [{ kind: "text", text: message.refusal }] : [];
  const contents = [...parts, ...refusal, ...rest];
  const isEmpty = Object.keys(message).every((name) => name === "role" || name === "content");
  return contents.length || isEmpty ? bounded(contents) : [{ kind: "other", name: textIn(type) || "message", value: message }];
}

// Returns the names of the tools that messages call, by the ids of the calls.
export function toolNames(messages) {
  const names = new Map();
  for (const { message } of messages) {
    if (!calls.has(message)) calls.set(message, contentsOf(message).filter((part) => part.kind === "call" && part.id));
    for (const part of calls.get(message)) names.set(part.id, part.name);
  }
  return names;
}

// The calls in each message, which may be one of thousands.
const calls = new WeakMap();

const call = (id, name, value) => ({ kind: "call", id: textIn(id), name: textIn(name), value: value ?? {} });

// Pictures of a result come after it.
function result(id, name, value, isError = false) {
  const parts = Array.isArray(value) ? partsIn(value) : [];
  const isReadable = parts.length > 0 && parts.every((part) => part.kind === "text" || part.kind === "picture");
  const text = isReadable ? parts.filter((part) => part.kind === "text").map((part) => part.text).join("\n") : value ?? "";
  return [{ kind: "result", id: textIn(id), name: textIn(name), value: text, isError }, ...(isReadable ? parts.filter((part) => part.kind === "picture") : [])];
}

function bounded(parts) {
  if (parts.length <= MOST_PARTS) return parts;
  return [...parts.slice(0, MOST_PARTS), { kind: "text", text: `… and ${parts.length - MOST_PARTS} more parts` }];
}

function partsIn(content) {
  if (content === null || content === undefined || content === "") return [];
  if (typeof content === "string") return [{ kind: "text", text: content }];
  if (!Array.isArray(content)) return [{ kind: "other", name: "content", value: content }];
  const parts = content.slice(0, MOST_PARTS).flatMap(partIn);
  return content.length > MOST_PARTS ? [...parts, { kind: "text", text: `… and ${content.length - MOST_PARTS} more parts` }] : parts;
}

function partIn(part) {
  if (typeof part === "string") return [{ kind: "text", text: part }];
  if (!isRecord(part)) return [{ kind: "other", name: "part", value: part }];
  const gemini = part.functionCall ?? part.function_call;
  if (isRecord(gemini)) return [call(gemini.id, gemini.name, gemini.args)];
  const response = part.functionResponse ?? part.function_response;
  if (isRecord(response)) return result(response.id, response.name, response.response);
  if (part.type === "tool_use") return [call(part.id, part.name, part.input)];
  if (part.type === "tool_result") return result(part.tool_use_id, "", part.content, part.is_error === true);
  const picture = pictureIn(part);
  if (picture) return [{ kind: "picture", ...picture }];
  if (typeof part.text === "string") return [{ kind: "text", text: part.text }];
  return [{ kind: "other", name: textIn(part.type) || "part", value: part }];
}

function pictureIn(part) {
  const url = part.image_url?.url ?? part.image_url ?? (part.type === "image" ? part.source?.url : undefined);
  if (typeof url === "string") return { url };
  const blob = part.inlineData ?? part.inline_data ?? (part.type === "image" ? part.source : undefined);
  const mime = textIn(blob?.mimeType ?? blob?.mime_type ?? blob?.media_type);
  return mime.startsWith("image/") && typeof blob.data === "string" ? { mime, base64: blob.data } : null;
}
