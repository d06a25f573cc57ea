// The options of a driver, its answer, and a connection that breaks.
//
// A driver is started as `node driver.mjs '{"base": "http://…", "session": "…", "key": "…", …}'`. It prints lines of JSON:
// {"step": …} on the way, and {"answer": …} at the end. With `resumes` it connects again whenever its connection breaks.

export const options = JSON.parse(process.argv[2]);

export const headers = options.key ? { authorization: `Bearer ${options.key}` } : {};

function print(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

export function answer(value) {
  print({ answer: value });
}

let isReported = options.report_at === undefined;

/** Print the step "seen" once the text has so many characters as the option `report_at` says. */
export function report(text) {
  if (isReported || text.length < options.report_at) return;
  isReported = true;
  print({ step: "seen" });
}

/** A fetch whose broken bodies say "network error", as those of Chrome do; the AI SDK resumes only behind that. */
export async function browserFetch(url, init) {
  const response = await fetch(url, init);
  if (!response.body) return response;
  const reader = response.body.getReader();
  const body = new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch {
        controller.error(new TypeError("network error"));
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
  return new Response(body, response);
}

/** A fetch whose first response breaks after so many bytes, as a lost network does. */
export function breakingFetch(bytes) {
  let isBroken = bytes === undefined || bytes === null;
  return async (url, init) => {
    const response = await fetch(url, init);
    if (isBroken || !response.body) return response;
    isBroken = true;
    let left = bytes;
    const broken = new TransformStream({
      transform(chunk, controller) {
        controller.enqueue(chunk.subarray(0, left));
        left -= chunk.length;
        if (left <= 0) controller.error(new TypeError("network error"));
      },
    });
    return new Response(response.body.pipeThrough(broken), response);
  };
}
