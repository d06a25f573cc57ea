// Requests to the service. The key stays in this tab's session storage and is sent in a header only.

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

// Sends a request and returns the response, whose body may be a stream. Throws Refused, Unreachable, or AbortError if
// the signal aborts.
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

// Sends a request and returns the JSON document of the answer; null if the answer has no body.
export async function ask(method, path, options) {
  const response = await open(method, path, options);
  return response.status === 204 ? null : response.json();
}
