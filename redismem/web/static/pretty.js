// JSON with a line for each member. Values stay as they were written: JSON.parse would round long numbers.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const MOST_CHARS = 50_000;
// Each line is indented by its depth, so a hostile depth would make the text grow quadratically.
const MOST_DEPTH = 20;

// Returns the indented text; the given text if it is no JSON, too long, or too deep. The time is linear.
export function indentJson(text) {
  if (text.length > MOST_CHARS || !isJson(text)) return text;
  const lines = [];
  let line = "";
  let depth = 0;
  const end = () => {
    lines.push(line);
    line = "  ".repeat(depth);
  };
  const tokens = text.match(TOKEN) ?? [];
  for (const [at, token] of tokens.entries()) {
    const isOpening = token === "{" || token === "[";
    const isClosing = token === "}" || token === "]";
    const isEmpty = isClosing && (tokens[at - 1] === "{" || tokens[at - 1] === "[");
    if (isOpening) depth += 1;
    if (isClosing) depth -= 1;
    if (depth > MOST_DEPTH) return text;
    if (isClosing && !isEmpty) end();
    line += token.startsWith('"') ? readable(token) : token;
    if (token === ":") line += " ";
    if (token === "," || (isOpening && tokens[at + 1] !== "}" && tokens[at + 1] !== "]")) end();
  }
  return [...lines, line].join("\n");
}

// Texts and numbers alone are shown as they are.
function isJson(text) {
  if (!/^\s*[{[]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// Decodes \u escapes, but no line breaks.
const readable = (token) => JSON.stringify(JSON.parse(token));

// Decodes \u escapes of letters and signs in the beginning of a JSON text, which JSON.parse cannot read. Other texts stay.
export const unescapeLetters = (text) =>
  /^\s*[{[]/.test(text) ? text.replace(/\\(?:u([0-9a-f]{4})|.)/gi, (escape, hex) => (parseInt(hex, 16) > 0xa0 ? String.fromCharCode(parseInt(hex, 16)) : escape)) : text;
