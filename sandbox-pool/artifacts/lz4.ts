/** The LZ4 "legacy frame", in which kernels carry themselves: block format as in lz4's `lz4_Block_format.md`. */

const LEGACY_MAGIC = 0x184c2102;
const MAX_BLOCK_BYTES = 8 * 1024 * 1024;

export function isLz4Legacy(data: Buffer): boolean {
  return data.length >= 4 && data.readUInt32LE(0) === LEGACY_MAGIC;
}

/** Decompresses up to the end of the data or to the first thing that is no block. Throws RangeError on damaged data. */
export function decompressLz4Legacy(data: Buffer): Buffer {
  const blocks: Buffer[] = [];
  let position = 4;
  while (position + 4 <= data.length) {
    const size = data.readUInt32LE(position);
    position += 4;
    // A kernel appends the size of the whole to its last block: it reads as a block that does not fit.
    if (size === 0 || size > data.length - position) {
      break;
    }
    blocks.push(decompressBlock(data.subarray(position, position + size)));
    position += size;
  }
  return Buffer.concat(blocks);
}

function decompressBlock(input: Buffer): Buffer {
  const output = Buffer.allocUnsafe(MAX_BLOCK_BYTES);
  let from = 0;
  let to = 0;
  const readLength = (start: number): number => {
    let length = start;
    if (start === 15) {
      let byte: number;
      do {
        byte = input[from++] ?? fail();
        length += byte;
      } while (byte === 255);
    }
    return length;
  };
  for (;;) {
    const token = input[from++] ?? fail();
    const literals = readLength(token >> 4);
    if (from + literals > input.length || to + literals > MAX_BLOCK_BYTES) {
      fail();
    }
    input.copy(output, to, from, from + literals);
    from += literals;
    to += literals;
    if (from === input.length) {
      return Buffer.from(output.subarray(0, to));
    }
    const offset = (input[from] ?? fail()) | ((input[from + 1] ?? fail()) << 8);
    from += 2;
    const length = readLength(token & 15) + 4;
    if (offset === 0 || offset > to || to + length > MAX_BLOCK_BYTES) {
      fail();
    }
    copyMatch(output, to, offset, length);
    to += length;
  }
}

/** A match may overlap what it writes: then it repeats itself. */
function copyMatch(output: Buffer, to: number, offset: number, length: number): void {
  if (offset >= length) {
    output.copyWithin(to, to - offset, to - offset + length);
    return;
  }
  for (let index = to; index < to + length; index++) {
    output[index] = output[index - offset] as number;
  }
}

function fail(): never {
  throw new RangeError("LZ4 data is damaged");
}
