// Pictures in messages. Only bytes within the message are shown: an address would tell its owner who looks, and when.

import { el } from "./dom.js";
import { safeUrl } from "./markdown.js";
import { formatBytes } from "./words.js";

const MOST_CHARS = 7_000_000;
// A small file can unpack to gigabytes.
const MOST_PIXELS = 25_000_000;
const HEAD_CHARS = 64_000;
const DATA = /^data:(image\/[a-z0-9.+-]+);base64,/i;
const MIMES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

// `picture` is {url} or {mime, base64}.
export function makePicture({ url, mime, base64 }) {
  const head = url === undefined ? null : DATA.exec(url.slice(0, 100));
  if (url !== undefined && !head) return linkTo(url);
  const kind = (head ? head[1] : mime).toLowerCase();
  const body = head ? url.slice(head[0].length) : base64;
  if (body.length > MOST_CHARS) return named(`${formatBytes(body.length * 0.75)}, too large to show`);
  if (!MIMES.has(kind) || !/^[A-Za-z0-9+/]+={0,2}$/.test(body)) return named("of a kind that is not shown");
  const size = sizeOf(body);
  if (size === null) return named("unreadable");
  if (size.width * size.height > MOST_PIXELS) return named(`${size.width} × ${size.height} pixels, too large to show`);
  return el("img", { class: "picture", src: `data:${kind};base64,${body}`, alt: "Picture in this message", width: size.width, height: size.height, loading: "lazy", decoding: "async" });
}

const named = (why) => el("p", { class: "word", text: `A picture: ${why}.` });

function linkTo(address) {
  const url = safeUrl(address.slice(0, 8_000));
  if (url === null || url.protocol === "mailto:") return named("its address is not shown");
  return el("p", { class: "word" }, "A picture at ", el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", text: url.host }), " (opening it shows your address there).");
}

// Returns the size that the head of a file says, or null.
function sizeOf(base64) {
  let bytes;
  try {
    bytes = Uint8Array.from(atob(base64.slice(0, HEAD_CHARS - (HEAD_CHARS % 4))), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
  const view = new DataView(bytes.buffer);
  const isAt = (place, text) => [...text].every((char, at) => bytes[place + at] === char.charCodeAt(0));
  try {
    if (isAt(1, "PNG")) return { width: view.getUint32(16), height: view.getUint32(20) };
    if (isAt(0, "GIF8")) return { width: view.getUint16(6, true), height: view.getUint16(8, true) };
    if (isAt(0, "RIFF") && isAt(8, "WEBP")) return sizeOfWebp(view, isAt);
    return bytes[0] === 0xff && bytes[1] === 0xd8 ? sizeOfJpeg(view) : null;
  } catch {
    return null; // the head is cut off
  }
}

function sizeOfWebp(view, isAt) {
  if (isAt(12, "VP8X")) return { width: 1 + (view.getUint32(24, true) & 0xffffff), height: 1 + (view.getUint32(26, true) >>> 8) };
  if (isAt(12, "VP8L")) {
    const bits = view.getUint32(21, true);
    return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
  }
  return { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
}

function sizeOfJpeg(view) {
  for (let at = 2; ; ) {
    const marker = view.getUint16(at);
    const isFrame = marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker);
    if (isFrame) return { width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
    if (marker < 0xff00) return null;
    at += 2 + view.getUint16(at + 2);
  }
}
