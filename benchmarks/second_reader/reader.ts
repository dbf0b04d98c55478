/** Reads and checks a log or an export of mnemolog. Written from docs/format*.md alone, with nothing but Node.
 *
 *     node reader.ts MEMORY/log.db [--keys MEMORY/keys.db [--wrapped-with HEX]] [--at MICROSECONDS]
 *     node reader.ts export.jsonl
 *
 * Prints one JSON object: the head, what is damaged and where, and what sessions, agents and facts are. Exit status
 * 0: sound, 1: damaged, 2: this is no log of a format that is known here. What distrust leaves out is not left out.
 */
import { createDecipheriv, createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";

type Value = null | boolean | number | bigint | string | Uint8Array | Value[] | { [key: string]: Value };
type Fields = { [name: string]: Value };
type Stored = {
  position: bigint; stream: string; version: bigint; topic: string; state: Uint8Array; key: string | null;
  recorded_at: bigint; digest: Uint8Array;
};
type Log = {
  id: string; format: bigint; createdAt: bigint; after: bigint; digest: Uint8Array; events: Iterable<Stored>;
  /** Checks what follows the last event. */
  end: (events: bigint, position: bigint, digest: Uint8Array) => void;
};
/** An event whose link fits. `fields` is null where its content cannot be read: `content` says why. */
type Event = { position: number; recordedAt: number; topic: string; fields: Fields | null; content: Content };
type Content = "readable" | "sealed" | "forgotten";

class NotALog extends Error {}
const damaged = (position: bigint, why: string) => Object.assign(new Error(why), { position });

// The log and the export.

function fromDatabase(path: string): Log {
  const database = new DatabaseSync(path, { readOnly: true });
  const rows = (sql: string) => {
    const statement = database.prepare(sql);
    statement.setReadBigInts(true);
    return statement.iterate() as Iterable<any>;
  };
  const one = (sql: string) => [...rows(sql)][0] ?? {};
  if (one("PRAGMA application_id").application_id !== 0x6d6e6c67n) throw new NotALog("not a log of mnemolog");
  const { log_id: id, format, created_at: createdAt } = one("SELECT * FROM log");
  const counted = (one("SELECT seq FROM sqlite_sequence WHERE name = 'events'").seq ?? 0n) as bigint;
  const events = rows("SELECT * FROM events ORDER BY position") as Iterable<Stored>;
  return {
    id, format, createdAt, after: 0n, digest: genesis(id, format, createdAt), events,
    end: (_, position) => {
      if (position !== counted) throw damaged(position + 1n, `the log ends at ${position}, its counter is ${counted}`);
    },
  };
}

/** Reads whole numbers of any size: none is rounded. */
const parsed = (line: string) => JSON.parse(line, ((_: string, value: unknown, context: { source?: string }) =>
  typeof value === "number" ? BigInt(context.source!) : value) as any);

function fromExport(path: string): Log {
  const lines = readFileSync(path, "utf8").split("\n").filter((line) => line !== "").map((line) => {
    try {
      return parsed(line);
    } catch {
      return { line: "broken" };
    }
  });
  const header = lines[0];
  if (header?.format !== "mnemolog-export" || header.version !== 1n) throw new NotALog("not an export that is known here");
  const last = lines.at(-1).line === "end" ? lines.pop() : null;
  const { log_id: id, log_format: format, created_at: createdAt, after, digest } = header;
  if (after === 0n && digest !== hex(genesis(id, format, createdAt)))
    throw new NotALog("the digest at 0 is not that of the header");
  function* events(): Iterable<Stored> {
    for (const [index, event] of lines.slice(1).entries()) {
      if (event.line !== "event") throw damaged(after + BigInt(index) + 1n, `the line ${index + 2} is no event`);
      yield { ...event, state: Buffer.from(event.state, "base64"), digest: Buffer.from(event.digest, "hex") };
    }
  }
  return {
    id, format, createdAt, after, digest: Buffer.from(digest, "hex"), events: events(),
    end: (events, position, digest) => {
      if (last === null) throw damaged(position + 1n, "the export has no end line: it was cut off");
      if (last.events !== events || last.position !== position || last.digest !== hex(digest))
        throw damaged(position + 1n, `the end line says ${last.events} events up to ${last.position}:${last.digest}`);
    },
  };
}

// The chain.

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
const sha256 = (...parts: Uint8Array[]) => createHash("sha256").update(Buffer.concat(parts)).digest();
const int64 = (...numbers: bigint[]) => Buffer.from(BigInt64Array.from(numbers).buffer).swap64();
const int32 = (...numbers: number[]) => Buffer.from(Int32Array.from(numbers).buffer).swap32();

function genesis(id: string, format: bigint, createdAt: bigint): Uint8Array {
  return sha256(Buffer.from("mnemolog/genesis/1\0"), int64(format, createdAt), Buffer.from(id));
}

function link(before: Uint8Array, event: Stored): Uint8Array {
  const [stream, topic, key] = [event.stream, event.topic, event.key ?? ""].map((text) => Buffer.from(text));
  const lengths = int32(stream!.length, topic!.length, event.state.length, event.key === null ? -1 : key!.length);
  const numbers = int64(event.position, event.version, event.recorded_at);
  return sha256(Buffer.from("mnemolog/event/1\0"), before, numbers, lengths, stream!, topic!, event.state, key!);
}

/** Calls `seen` with each event whose link fits. Raises `Damaged` at the first that does not. */
function follow(log: Log, seen: (event: Stored) => void): void {
  let [position, digest, events] = [log.after, log.digest, 0n];
  const versions = new Map<string, bigint>();
  for (const event of log.events) {
    const next = position + 1n;
    if (event.position !== next) throw damaged(next, `event ${next} is missing: ${event.position} follows ${position}`);
    const version = versions.get(event.stream) ?? (log.after === 0n ? 0n : event.version - 1n);
    if (event.version !== version + 1n) throw damaged(next, `${event.stream}: version ${event.version} follows ${version}`);
    const expected = link(digest, event);
    if (hex(expected) !== hex(event.digest)) throw damaged(next, "the digest does not fit the event and the digest before");
    versions.set(event.stream, event.version);
    [position, digest, events] = [next, expected, events + 1n];
    seen(event);
    Object.assign(log, { digest, after: position });
  }
  log.end(events, position, digest);
}

// Content: msgpack, and what is sealed.

function decoded(bytes: Buffer): Value {
  let at = 0;
  const take = (length: number) => {
    if (at + length > bytes.length) throw new Error("msgpack: cut off");
    return bytes.subarray(at, (at += length));
  };
  const unsigned = (width: number) => BigInt(`0x${hex(take(width))}`);
  const size = (width: number) => Number(unsigned(width));
  const whole = (number: bigint) => (BigInt.asIntN(53, number) === number ? Number(number) : number);
  const text = (length: number) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(take(length));
  const array = (length: number): Value[] => Array.from({ length }, value);
  const map = (length: number): Fields => Object.fromEntries(Array.from({ length }, () => [value(), value()]));
  function value(): Value {
    const first = take(1)[0]!;
    const within = (low: number, high: number) => first >= low && first <= high;
    if (within(0x00, 0x7f)) return first;
    if (within(0x80, 0x8f)) return map(first & 15);
    if (within(0x90, 0x9f)) return array(first & 15);
    if (within(0xa0, 0xbf)) return text(first & 31);
    if (first === 0xc0) return null;
    if (within(0xc2, 0xc3)) return first === 0xc3;
    if (within(0xc4, 0xc6)) return take(size(2 ** (first - 0xc4)));
    if (first === 0xca) return take(4).readFloatBE();
    if (first === 0xcb) return take(8).readDoubleBE();
    if (within(0xcc, 0xcf)) return whole(unsigned(2 ** (first - 0xcc)));
    if (within(0xd0, 0xd3)) return whole(BigInt.asIntN(8 * 2 ** (first - 0xd0), unsigned(2 ** (first - 0xd0))));
    if (within(0xd9, 0xdb)) return text(size(2 ** (first - 0xd9)));
    if (within(0xdc, 0xdd)) return array(size(2 * (first - 0xdb)));
    if (within(0xde, 0xdf)) return map(size(2 * (first - 0xdd)));
    if (within(0xe0, 0xff)) return first - 256;
    throw new Error(`msgpack: the byte ${first} is not used here`);
  }
  return value();
}

const SIGMA = [
  "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d", "2c6a0b834d75fe19",
  "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
].map((row) => [...row].map((digit) => parseInt(digit, 16)));
const IV = [
  0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
];

/** BLAKE2b of at most 128 bytes, unkeyed, 64 bytes long, with a personalisation: Node's has none. RFC 7693. */
function blake2b(message: Uint8Array, person: string): Uint8Array {
  const parameters = Buffer.alloc(64);
  parameters.set([64, 0, 1, 1]);
  parameters.write(person, 48);
  const block = Buffer.alloc(128);
  block.set(message);
  const word = (bytes: Buffer, index: number) => bytes.readBigUInt64LE(8 * index);
  const cut = (number: bigint) => BigInt.asUintN(64, number);
  const h = IV.map((word64, index) => word64 ^ word(parameters, index));
  const v = [...h, ...IV];
  v[12]! ^= BigInt(message.length);
  v[14] = cut(~v[14]!);
  const rotated = (number: bigint, by: bigint) => (number >> by) | cut(number << (64n - by));
  const mix = (a: number, b: number, c: number, d: number, x: bigint, y: bigint) => {
    for (const [part, first, second] of [[x, 32n, 24n], [y, 16n, 63n]] as const) {
      v[a] = cut(v[a]! + v[b]! + part);
      v[d] = rotated(v[d]! ^ v[a]!, first);
      v[c] = cut(v[c]! + v[d]!);
      v[b] = rotated(v[b]! ^ v[c]!, second);
    }
  };
  for (let round = 0; round < 12; round++) {
    const m = SIGMA[round % 10]!.map((index) => word(block, index));
    for (let i = 0; i < 4; i++) mix(i, 4 + i, 8 + i, 12 + i, m[2 * i]!, m[2 * i + 1]!);
    for (let i = 0; i < 4; i++)
      mix(i, 4 + ((i + 1) % 4), 8 + ((i + 2) % 4), 12 + ((i + 3) % 4), m[8 + 2 * i]!, m[9 + 2 * i]!);
  }
  const result = Buffer.alloc(64);
  h.forEach((word64, index) => result.writeBigUInt64LE(word64 ^ v[index]! ^ v[index + 8]!, 8 * index));
  return result;
}

class Keys {
  database: DatabaseSync;
  wrapping: Uint8Array | null;
  logId: string;
  constructor(path: string, logId: string, wrappedWith?: string) {
    this.database = new DatabaseSync(path, { readOnly: true });
    const meta = this.database.prepare("SELECT log_id, format FROM keys_meta").get()!;
    if (meta.log_id !== logId) throw new NotALog(`these keys are of the log ${meta.log_id}`);
    if (meta.format === 2 && wrappedWith === undefined) throw new NotALog("these keys are wrapped: give --wrapped-with");
    this.wrapping = meta.format === 2 ? Buffer.from(wrappedWith!, "hex") : null;
    this.logId = logId;
  }

  /** Returns the key of a version of a stream, or null where it was destroyed. */
  leaf(stream: string, series: number, version: number): Uint8Array | null {
    const prefix = (depth: number) => Math.floor(version / 2 ** (32 - depth));
    const found = this.database.prepare("SELECT depth, prefix, material FROM nodes WHERE stream = ? AND series = ?")
      .all(stream, series).find((node) => prefix(Number(node.depth)) === node.prefix);
    if (found === undefined) {
      const destroyed = this.database.prepare(
        "SELECT 1 FROM destroyed WHERE stream = ? AND series = ? AND first <= ? AND last >= ?");
      if (destroyed.get(stream, series, version, version) === undefined)
        throw new NotALog(`${stream}, version ${version}: the keys neither have its key nor say that it was destroyed`);
      return null;
    }
    let material = this.unwrapped(found.material as Uint8Array);
    for (let depth = Number(found.depth) + 1; depth <= 32; depth++) {
      const right = prefix(depth) % 2;
      material = blake2b(material, "mnemolog/node/1").subarray(32 * right, 32 * right + 32);
    }
    return material;
  }

  unwrapped(material: Uint8Array): Uint8Array {
    if (this.wrapping === null) return material;
    const cipher = createDecipheriv("id-aes256-wrap", this.wrapping, Buffer.alloc(8, 0xa6));
    return Buffer.concat([cipher.update(material), cipher.final()]);
  }

  /** Returns what a sealed state holds, or null where its key was destroyed. */
  unsealed(sealed: Uint8Array, event: Stored): Buffer | null {
    if (sealed[1] !== 1) throw damaged(event.position, `a sealed state of the form ${sealed[1]} is not known here`);
    const key = this.leaf(event.stream, sealed[2]!, Number(event.version));
    if (key === null) return null;
    const stream = Buffer.from(event.stream);
    const cipher = createDecipheriv("aes-256-gcm", key, sealed.subarray(3, 15));
    cipher.setAAD(Buffer.concat([Buffer.from(`mnemolog/sealed/1\0${this.logId}`), int32(stream.length), stream,
      int64(event.version), Buffer.from(event.topic)]));
    cipher.setAuthTag(sealed.subarray(-16));
    return Buffer.concat([cipher.update(sealed.subarray(15, -16)), cipher.final()]);
  }
}

// What the events say.

const TOPICS = new Set(`session.started turn.recorded session.ended session.resumed value.set value.deleted values.cleared
  task.changed note.added notes.cleared checkpoint.created checkpoint.deleted checkpoint.restored turns.rewound
  session.switched model.activated language.chosen redaction.chosen recall.served context.served recall.judged
  forget.requested content.forgotten forget.completed thread.checkpointed thread.written thread.pruned thread.deleted
  thread.copied item.put item.touched item.deleted fact.asserted fact.retracted standing.ended source.distrusted
  source.trusted proposal.made proposal.decided token.created token.revoked retention.chosen hold.placed hold.lifted
  loss.accepted`.split(/\s+/).map((name) => `${name}.v1`));
const DEFAULTS: { [topic: string]: Fields } = {
  "session.started.v1": { scope: "", reason: "new", parent: null, branched_at: null },
  "turn.recorded.v1": { speaker: null, said_at: null, tool_calls: [], metadata: {} },
  "value.set.v1": { expires_at: null },
  "task.changed.v1": { step: null, total: null, percent: null, status: "active" },
  "checkpoint.created.v1": { description: "" },
  "fact.asserted.v1": { valid_from: null, said_at: null, because: [] },
};

/** Reads the content of an event whose link fits. */
function read(stored: Stored, keys: Keys | null): Event {
  const { topic } = stored;
  if (!TOPICS.has(topic)) throw new NotALog(`position ${stored.position}: the topic ${topic} is not known here`);
  let [state, content]: [Buffer | null, Content] = [Buffer.from(stored.state), "readable"];
  if (state[0] === 0xc1) {
    state = keys && keys.unsealed(state, stored);
    if (state === null) content = keys ? "forgotten" : "sealed";
  }
  const fields = state && ({ ...DEFAULTS[topic], ...(decoded(state) as Fields) } as Fields);
  if (fields?.sealed_name) {
    const name = keys && keys.unsealed(fields.sealed_name as Uint8Array, stored);
    if (name) fields.name = name.toString();
    else content = keys ? "forgotten" : "sealed";
  }
  return { position: Number(stored.position), recordedAt: Number(stored.recorded_at), topic, fields, content };
}

type State = { turns: number[]; values: Fields; task: Fields | null; notes: Fields[]; checkpoints: Fields[] };

class Memory {
  streams = new Map<string, Event[]>();
  add(stream: string, event: Event): void {
    if (!this.streams.has(stream)) this.streams.set(stream, []);
    this.streams.get(stream)!.push(event);
  }

  /** What a session has seen and holds at a position of the log. `at`: what has expired by then is gone. */
  session(id: string, to: number, at: number): State {
    const events = this.streams.get(`session/${id}`) ?? [];
    const start = events[0]?.fields;
    const branch = start && typeof start.parent === "string" && start.branched_at !== null;
    if (branch && to < events[0]!.position) return this.session(start.parent as string, to, at);
    const state: State = branch
      ? this.session(start.parent as string, start.branched_at as number, at)
      : { turns: [], values: {}, task: null, notes: [], checkpoints: [] };
    for (const { topic, fields, position } of events) {
      if (position > to) break;
      if (topic === "values.cleared.v1") state.values = {};
      if (topic === "notes.cleared.v1") state.notes = [];
      if (fields === null) continue;
      if (topic === "turn.recorded.v1") state.turns.push(position);
      const { key, value, expires_at: expiry } = fields;
      if (topic === "value.set.v1") state.values[key as string] = value!;
      if (topic === "value.deleted.v1" || (topic === "value.set.v1" && expiry !== null && Number(expiry) <= at))
        delete state.values[key as string];
      if (topic === "task.changed.v1") state.task = fields;
      if (topic === "note.added.v1") state.notes.push(fields);
      if (topic === "checkpoint.created.v1") state.checkpoints.push({ ...fields, position });
      if (topic === "checkpoint.deleted.v1") state.checkpoints = state.checkpoints.filter(({ id }) => id !== fields.id);
      if (topic === "turns.rewound.v1") state.turns = state.turns.filter((turn) => turn <= (fields.to as number));
      if (topic === "checkpoint.restored.v1") {
        const point = fields.position as number;
        const { values, task, notes } = this.session(id, point, at);
        Object.assign(state, { values, task, notes, turns: state.turns.filter((turn) => turn <= point) });
      }
    }
    return state;
  }

  /** The facts of a scope that hold at `at`: key and value. */
  facts(events: Event[], at: number): Fields {
    const known = events.filter(({ fields }) => fields !== null);
    const retracted = new Set(known.filter(({ topic }) => topic === "fact.retracted.v1").map(({ fields }) => fields!.fact));
    const begins = ({ fields, recordedAt }: Event) => Number(fields!.valid_from ?? fields!.said_at ?? recordedAt);
    const counted = known.filter((event) =>
      event.topic === "fact.asserted.v1" && !retracted.has(event.position) && begins(event) <= at);
    counted.sort((one, other) => begins(one) - begins(other) || one.position - other.position);
    const values = Object.fromEntries(counted.map(({ fields }) => [fields!.key, fields!.value]));
    return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null)) as Fields;
  }

  /** Everything that is printed, at the end of the log and a moment. */
  told(end: number, at: number): object {
    const texts = new Map([...this.streams.values()].flat().map(({ position, fields }) => [position, fields?.text]));
    const each = (kind: string, told: (id: string, events: Event[]) => unknown) =>
      Object.fromEntries([...this.streams].filter(([name]) => name.startsWith(kind)).sort()
        .map(([name, events]) => [name.slice(kind.length), told(name.slice(kind.length), events)]));
    const sessions = each("session/", (id, [start]) => {
      const state = this.session(id, end, at);
      const turns = state.turns.map((position) => ({ position, text: texts.get(position) }));
      return { ...start!.fields, ...state, turns };
    });
    const agents = each("agent/", (_, events) => events.at(-1)!.fields!.to);
    return { sessions, agents, facts: each("facts/", (_, events) => this.facts(events, at)) };
  }
}

// The command.

function main(): number {
  const options = { keys: { type: "string" }, "wrapped-with": { type: "string" }, at: { type: "string" } } as const;
  const { values: { keys: keyFile, at, ...further }, positionals: [path] } = parseArgs({ options, allowPositionals: true });
  const log = path!.endsWith(".db") ? fromDatabase(path!) : fromExport(path!);
  if (log.format !== 1n && log.format !== 2n) throw new NotALog(`the format ${log.format} is not known here`);
  const keys = keyFile === undefined ? null : new Keys(keyFile, log.id, further["wrapped-with"]);
  const [memory, topics, contents] = [new Memory(), {} as Fields, { readable: 0, sealed: 0, forgotten: 0 }];
  let [damage, last]: [object | null, number] = [null, 0];
  try {
    follow(log, (stored) => {
      const event = read(stored, keys);
      memory.add(stored.stream, event);
      topics[event.topic] = ((topics[event.topic] as number) ?? 0) + 1;
      contents[event.content] += 1;
      last = event.recordedAt;
    });
  } catch (error) {
    if (error instanceof NotALog) throw error;
    const { position, message: why } = error as ReturnType<typeof damaged>;
    damage = { position: position ?? log.after + 1n, why };
  }
  const head = `${log.after}:${hex(log.digest)}`;
  const told = memory.told(Number(log.after), Number(at ?? last));
  const printed = { head, damaged: damage, log_id: log.id, format: log.format, contents, topics, ...told };
  console.log(JSON.stringify(printed, (_, value) =>
    typeof value === "bigint" ? Number(value) : value instanceof Uint8Array ? hex(value) : value, 1));
  return damage === null ? 0 : 1;
}

try {
  process.exitCode = main();
} catch (error) {
  if (!(error instanceof NotALog)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
