// Text of strangers made safe to look at: what would hide or reorder other text is shown as its code, not obeyed.

// C0 without tab and line feed, DEL, C1; then bidi marks, zero width, line separators, tags; and halves of surrogates.
const ACTS =
  "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb" +
  "\\ud800-\\udfff\\u{e0000}-\\u{e007f}";
const ACTING = new RegExp(`[${ACTS}]`, "gu");
const ACTING_OR_BREAK = new RegExp(`[${ACTS}\\t\\n]+`, "gu");

const SPACES = /^[\t-\r\x1c-\x1f\x85\u2028\u2029]+$/u;

/** The text with its line breaks; every character that acts is written as its code. */
export function text(value) {
  return String(value ?? "").replaceAll("\r\n", "\n").replace(ACTING, code);
}

/** The text as one line. */
export function line(value) {
  return String(value ?? "").replace(ACTING_OR_BREAK, spaced).trim();
}

function spaced(found) {
  return SPACES.test(found) ? " " : [...found].map((one) => ("\t\n".includes(one) ? " " : one.replace(ACTING, code))).join("");
}

function code(found) {
  const number = found.codePointAt(0);
  return number < 0x100 ? `\\x${number.toString(16).padStart(2, "0")}` : `\\u${number.toString(16).padStart(4, "0")}`;
}
