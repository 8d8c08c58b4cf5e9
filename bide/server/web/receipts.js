// What became of each input, by the words of the log.

/** Where an input still has something before it. */
export const OPEN = new Set(["accepted", "delivered", "withdrawing", "unconfirmed"]);

const HOW = { steer: "into the turn", interrupt: "instead of the turn" };

export class Receipts {
  #found = new Map(); // by input id
  #known = 0; // up to this seq the log is in what the server gave as a list

  /** Takes the list of receipts as it was when the log had at least `seq` events. */
  begin(inputs, seq) {
    this.#known = seq;
    for (const input of inputs) this.#found.set(input.id, { ...input, at: seq });
  }

  /** Takes an event. Older ones than what is known change nothing. */
  hear(event) {
    if (event.seq <= this.#known || !event.type.startsWith("user.")) return;
    const { data } = event;
    if (event.type === "user.edited") {
      const found = this.#found.get(data.input_id);
      if (found) this.#found.set(data.input_id, { ...found, text: data.text, delivery: data.delivery });
      return;
    }
    if (event.type !== "user.receipt") {
      if (!data.id || this.#found.has(data.id)) return;
      const { id, text, delivery } = data;
      this.#found.set(id, { id, type: event.type, author: event.actor, text: text ?? "", delivery, seq: event.seq, status: "accepted", at: event.seq });
      return;
    }
    const found = this.#found.get(data.input_id);
    if (found && found.at <= event.seq) {
      const { status, how, turn, code } = data;
      this.#found.set(data.input_id, { ...found, status, how, turn: turn || found.turn, code, at: event.seq });
    }
  }

  of(id) {
    return this.#found.get(id);
  }

  /** Those that are still on their way, the oldest first. */
  open() {
    return [...this.#found.values()].filter((one) => OPEN.has(one.status)).sort((a, b) => a.seq - b.seq);
  }
}

/** A receipt in words. */
export function words({ status, how, turn, code }) {
  const way = HOW[how] ?? (how === "next_turn" ? "" : how);
  const place = turn ? ` in turn ${turn}` : "";
  switch (status) {
    case "accepted":
      return way ? `queued: ${way}` : "queued";
    case "delivered":
      return `delivered${place}${way ? `, ${way}` : ""}`;
    case "consumed":
      return `received${place}`;
    case "unconfirmed":
      return `not known whether it arrived${way ? `: ${way}` : ""}`;
    default:
      return [status, way && `: ${way}`, code && ` (${code})`].filter(Boolean).join("");
  }
}
