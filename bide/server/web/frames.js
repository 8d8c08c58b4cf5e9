// Bytes of an event stream become frames, wherever the line cuts them.

export class Frames {
  #decoder = new TextDecoder();
  #rest = "";
  #frame = {};

  /** The frames that are whole with these bytes: `{id, event, data}`, each as it was said. */
  feed(bytes) {
    const found = [];
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = lines.pop();
    for (const ended of lines) {
      const line = ended.endsWith("\r") ? ended.slice(0, -1) : ended;
      if (line === "") {
        if (this.#frame.data !== undefined) found.push(this.#frame);
        this.#frame = {};
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // a comment: the line lives
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (name === "data") this.#frame.data = this.#frame.data === undefined ? value : `${this.#frame.data}\n${value}`;
      else if (name === "id" || name === "event") this.#frame[name] = value;
    }
    return found;
  }
}
