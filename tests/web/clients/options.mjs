// The options of a driver, its answer, and a connection that breaks.
//
// A driver is started as `node driver.mjs '{"base": "http://…", "session": "…", "key": "…", …}'`, and prints one line of JSON.

export const options = JSON.parse(process.argv[2]);

export const headers = options.key ? { authorization: `Bearer ${options.key}` } : {};

export function answer(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
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
