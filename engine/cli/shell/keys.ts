/** What a person types: text for the guest, and commands after Ctrl-]. */

/** Ctrl-], which few programs use; typed twice it goes to the guest. */
const ESCAPE = 0x1d;

export type Typed =
  | { readonly kind: "text"; readonly bytes: Uint8Array }
  | { readonly kind: "command"; readonly key: string };

/** Keeps in mind between pieces that Ctrl-] was the last key. */
export class KeyReader {
  #escaped = false;

  read(bytes: Uint8Array): readonly Typed[] {
    const typed: Typed[] = [];
    let start = 0;
    const flush = (end: number): void => {
      if (end > start) typed.push({ kind: "text", bytes: bytes.subarray(start, end) });
    };
    for (const [index, byte] of bytes.entries()) {
      if (this.#escaped) {
        this.#escaped = false;
        if (byte === ESCAPE) typed.push({ kind: "text", bytes: Uint8Array.of(ESCAPE) });
        else typed.push({ kind: "command", key: String.fromCharCode(byte).toLowerCase() });
        start = index + 1;
      } else if (byte === ESCAPE) {
        flush(index);
        this.#escaped = true;
        start = index + 1;
      }
    }
    flush(bytes.length);
    return typed;
  }
}
