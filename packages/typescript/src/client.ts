/** A client of a mnemolog server. The types of all arguments and answers are generated: see README.md. */
import type { components, paths } from "./memory.js";

export type { components, paths };
export type Schemas = components["schemas"];
export type Problem = Schemas["Problem"];

type Method = "get" | "put" | "post" | "patch" | "delete";
/** The paths that take a method. */
export type PathOf<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, object> ? P : never }[keyof paths];
type Operation<M extends Method, P extends keyof paths> = paths[P] extends Record<M, infer O> ? O : never;
type Json<T> = T extends { content: { "application/json": infer B } } ? B : never;
type Part<O, N extends "path" | "query"> =
  O extends { parameters: infer A } ? (N extends keyof A ? Exclude<A[N], undefined> : never) : never;
type BodyOf<O> = O extends { requestBody?: infer R } ? Json<Exclude<R, undefined>> : never;
type Given<N extends string, T> = [T] extends [never] ? unknown : object extends T ? { [K in N]?: T } : { [K in N]: T };

/** What an operation takes: `path`, `query` and `body`, each as far as the operation has it. */
export type Arguments<M extends Method, P extends keyof paths> = Given<"path", Part<Operation<M, P>, "path">> &
  Given<"query", Part<Operation<M, P>, "query">> & Given<"body", BodyOf<Operation<M, P>>>;
type Answers<O> = O extends { responses: infer R } ? Json<R[Extract<keyof R, 200 | 201>]> : never;
/** The answer of an operation; undefined if it has no content. */
export type Answer<M extends Method, P extends keyof paths> =
  [Answers<Operation<M, P>>] extends [never] ? undefined : Answers<Operation<M, P>>;

/** Why there is no answer. `unreachable`: the server may or may not have carried the request out. */
export type Failure = { kind: "refused"; status: number; problem: Problem } | { kind: "unreachable"; reason: unknown };
export type Result<T> = { ok: true; value: T } | { ok: false; error: Failure };
/** An event that `follow` gives, with its position. */
export type Followed = { position: number; moment: Schemas["Moment"] };

export type Options = {
  token?: string;
  /** How long a request may take in all, with its retries, in milliseconds; 30,000 if left out. */
  patienceMs?: number;
  fetch?: typeof fetch;
};
export type CallOptions = { key?: string; signal?: AbortSignal };

/** What `follow` throws if the server refuses it. */
export class Refused extends Error {
  constructor(readonly status: number, readonly problem: Problem) { super(`${problem.title}: ${problem.detail}`); }
}

const BUSY = new Set([429, 502, 503, 504]);
const JSON_TYPE = /^application\/(problem\+)?json\b/;
const [FIRST_WAIT_MS, LONGEST_WAIT_MS] = [100, 5_000];

export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #patienceMs: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, options: Options = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = options.token === undefined ? {} : { authorization: `Bearer ${options.token}` };
    this.#patienceMs = options.patienceMs ?? 30_000;
    this.#fetch = options.fetch ?? fetch;
  }

  /**
   * Call an operation. A read, and a write with a `key`, is sent again while the server is busy or not there;
   * a write without a key is sent once. Nothing is thrown but the reason of an aborted `signal`.
   */
  async call<M extends Method, P extends PathOf<M>>(
    method: M, path: P, given: Arguments<M, P>, { key, signal }: CallOptions = {},
  ): Promise<Result<Answer<M, P>>> {
    const { path: names, query, body } = given as { path?: object; query?: object; body?: unknown };
    const headers = { ...this.#headers, "content-type": "application/json", ...(key && { "idempotency-key": key }) };
    const sent = { method: method.toUpperCase(), headers, body: body === undefined ? null : JSON.stringify(body) };
    const again = method === "get" || key !== undefined;
    const until = Date.now() + this.#patienceMs;
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      const { result, afterMs } = await this.#send(this.#place(path, names, query), sent, until, signal);
      signal?.throwIfAborted();
      const pause = afterMs ?? waitMs;
      const passing = !result.ok && (result.error.kind === "unreachable" || BUSY.has(result.error.status));
      if (!again || !passing || Date.now() + pause >= until) return result as Result<Answer<M, P>>;
      await sleep(pause, signal);
    }
  }

  /** Yield events as they are recorded, by default from now on, until `signal` aborts; a lost connection is resumed. */
  async *follow(
    query: Part<Operation<"get", "/v1/tail">, "query"> = {}, { signal }: Pick<CallOptions, "signal"> = {},
  ): AsyncGenerator<Followed, void> {
    const headers: Record<string, string> = { ...this.#headers };
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      try {
        const answer = await this.#fetch(this.#place("/v1/tail", {}, query), { headers, signal: signal ?? null });
        if (!answer.ok && !BUSY.has(answer.status)) throw new Refused(answer.status, (await answer.json()) as Problem);
        for await (const { id, data } of answer.ok ? messages(answer.body!) : []) {
          waitMs = FIRST_WAIT_MS;
          if (id !== undefined) headers["last-event-id"] = id;
          if (data !== "") yield { position: Number(id), moment: JSON.parse(data) as Schemas["Moment"] };
        }
      } catch (error) {
        if (signal?.aborted) return;
        if (!(error instanceof TypeError)) throw error; // fetch says TypeError where a connection fails or is lost.
      }
      await sleep(waitMs, signal);
      if (signal?.aborted) return;
    }
  }

  #place(path: string, names: object = {}, query: object = {}): string {
    let place = path;
    for (const [name, value] of Object.entries(names)) place = place.replace(`{${name}}`, encodeURIComponent(String(value)));
    const fields = new URLSearchParams();
    for (const [name, value] of Object.entries(query))
      if (value !== undefined && value !== null) for (const one of [value].flat()) fields.append(name, String(one));
    return this.#url + place + (fields.size > 0 ? `?${fields}` : "");
  }

  async #send(url: string, sent: RequestInit, until: number, signal?: AbortSignal) {
    const limit = AbortSignal.timeout(Math.max(0, until - Date.now()));
    try {
      const answer = await this.#fetch(url, { ...sent, signal: signal ? AbortSignal.any([signal, limit]) : limit });
      const after = answer.headers.get("retry-after");
      const text = await answer.text();
      const isJson = JSON_TYPE.test(answer.headers.get("content-type") ?? "");
      const value: unknown = isJson ? JSON.parse(text) : text || undefined;
      if (!answer.ok && !isJson) throw new Error(`${answer.status}: ${text}`); // Of a proxy.
      const error = { kind: "refused", status: answer.status, problem: value as Problem } as const;
      const result: Result<unknown> = answer.ok ? { ok: true, value } : { ok: false, error };
      return { result, afterMs: after === null ? undefined : 1_000 * Number(after) };
    } catch (reason) {
      return { result: { ok: false, error: { kind: "unreachable", reason } } as Result<unknown>, afterMs: undefined };
    }
  }
}

const sleep = (ms: number, signal?: AbortSignal) => new Promise<void>((done) => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

/** Yield server-sent events that are whole: their id and data. */
async function* messages(body: ReadableStream<Uint8Array>) {
  let text = "";
  for await (const part of body.pipeThrough(new TextDecoderStream() as never) as unknown as AsyncIterable<string>) {
    const blocks = (text + part).split("\n\n");
    text = blocks.pop()!;
    for (const lines of blocks.map((block) => block.split("\n"))) {
      const field = (name: string) => lines.find((line) => line.startsWith(name))?.slice(name.length);
      yield { id: field("id: "), data: field("data: ") ?? "" };
    }
  }
}
