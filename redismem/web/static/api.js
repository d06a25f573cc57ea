// Asks the service. The key is kept in this tab alone, and goes into a header alone.

const KEY = "redismem.key";

export class Refused extends Error {
  constructor(status, problem, retryAfterS) {
    super(problem.code);
    this.status = status;
    this.code = problem.code ?? "internal";
    this.title = problem.title ?? "The server refused this";
    this.detail = problem.detail ?? "";
    this.problem = problem;
    this.retryAfterS = retryAfterS;
  }
}

export class Unreachable extends Error {}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.removeItem(KEY);

export const sessionPath = (sessionId, rest = "") => `/v1/sessions/${encodeURIComponent(sessionId)}${rest}`;

// The response, whose body may be a stream. Raises Refused, Unreachable, and AbortError where the signal says so.
export async function open(method, path, { body, headers = {}, signal } = {}) {
  const given = { ...headers };
  if (hasKey()) given.authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  if (body !== undefined) given["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: given,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable(path);
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const refused = new Refused(response.status, problem, Number(response.headers.get("retry-after")) || 1);
  if (refused.status === 401) document.dispatchEvent(new CustomEvent("key-needed", { detail: hasKey() }));
  throw refused;
}

// The JSON document of an answer; null where it has none.
export async function ask(method, path, options) {
  const response = await open(method, path, options);
  return response.status === 204 ? null : response.json();
}
